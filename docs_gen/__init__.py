"""Writes `docs/reference/` from the code, so that no page can say anything else: `python -m docs_gen`."""
