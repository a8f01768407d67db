"""Engines over several devices: one spawned process, a *rank*, for each, behind one placement. Knows nothing of torch.

`executor` is the seam, `front` the engine's thread in front of the ranks, `placement` (pure) decides who goes where,
`rank` follows one rank through its incarnations, `rank_main` is what runs in its process, `wire` and `messages` are
all that crosses between them.
"""
