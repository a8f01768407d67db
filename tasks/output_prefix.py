"""The folder that a request wants its outputs in: part of an object's key, so it must stay below where it is put."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

MAX_PREFIX = 256
#: A key of S3 has at most 1024 bytes; the system's own prefix, the job's id and the file's name need some.
MAX_PREFIX_BYTES = 640
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def clean_prefix(prefix: str) -> str:
    """A relative folder that ends in `/`, or nothing. Raises ValueError for what climbs, however it is spelled."""
    if prefix == "":
        return prefix
    if prefix.startswith("/"):
        raise ValueError("must be a relative path")
    if _CONTROL.search(prefix):
        raise ValueError("must not hold control characters")
    path = "/".join(part for part in prefix.split("/") if part)
    if len(path) > MAX_PREFIX or len(path.encode("utf-8", "surrogatepass")) > MAX_PREFIX_BYTES:
        raise ValueError(f"must have at most {MAX_PREFIX} characters and {MAX_PREFIX_BYTES} bytes of UTF-8")
    if _climbs(path):
        raise ValueError("must be a relative path without '.', '..' or backslash")
    return path + "/"


def _climbs(path: str) -> bool:
    """Also for a reader that decodes percent signs, even twice, or takes other scripts' dots and slashes for ours."""
    plain = unicodedata.normalize("NFKC", unquote(unquote(path)))
    for spelling in (path, plain):
        if "\\" in spelling or any(part in (".", "..") for part in spelling.split("/")):
            return True
    return plain.startswith("/")
