"""Safelight beside its peers, all in one run. How each is configured, and why that is its best: `README.md` here."""
