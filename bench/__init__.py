"""One script a claim; both sides of a ratio run interleaved in one process tree. Tables: `bench/README.md`."""
