"""Pictures in a terminal: what it can show, and the bytes that show it. Pure but for Pillow's decoding."""
