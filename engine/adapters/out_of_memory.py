"""How the libraries say that the device has no room left."""

OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "out of memory")


def is_out_of_memory(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, MemoryError) or any(known in text for known in OUT_OF_MEMORY_TEXTS)
