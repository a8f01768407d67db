"""One script a claim; both sides of each ratio run in one process tree, interleaved. `bench/README.md` has the tables."""
