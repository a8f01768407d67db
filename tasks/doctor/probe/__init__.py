"""Questions to the world, each bounded in time: facts come back, and nothing is left behind. One file an area."""
