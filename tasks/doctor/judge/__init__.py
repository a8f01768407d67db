"""Pure judgements: facts in, findings out. One file an area; no I/O."""
