"""The demo: a local stack, 24 jobs of every kind, their pictures, and a verdict on whether all went as it should."""
