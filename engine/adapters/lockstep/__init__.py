"""One model on several devices at a time: a leader that serves, and followers that make every forward of it along.

The leader is an ordinary adapter; only the denoiser's forward is shared, so that scheduling, noise and decoding stay in
one place and cannot come apart. `company` is the leader's side, `follower` a process of the others, `cargo` what goes
between them, `spread` how a model is divided.
"""
