"""Model calls of several pipeline calls, merged into one: what step mode is made of."""
