"""The job, its store and the producer side. Never imports torch."""
