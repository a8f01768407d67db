"""The embedded stack of a laptop: a Redis-protocol server and an S3 server from wheels, as child processes."""
