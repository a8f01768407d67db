"""Which objects a request may name as `s3://` inputs. Not all that the worker's credentials open."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InputPlaces:
    """Pairs of a bucket and a folder in it; the folder is empty or ends in `/`."""

    places: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, setting: str, own: str) -> InputPlaces:
        """`bucket` or `bucket/folder`, separated by commas. Empty: the own bucket."""
        places = []
        for entry in setting.split(",") if setting else [own]:
            bucket, _, folder = entry.strip().partition("/")
            places.append((bucket, f"{folder.strip('/')}/" if folder.strip("/") else ""))
        return cls(tuple(places))

    def allow(self, bucket: str, key: str) -> bool:
        """A key that climbs is refused: some stores, and proxies before them, follow `..`."""
        if any(part in (".", "..") for part in re.split(r"[/\\]", key)):
            return False
        return any(bucket == place and key.startswith(folder) for place, folder in self.places)

    def __str__(self) -> str:
        return " and ".join(f"s3://{bucket}/{folder}" for bucket, folder in self.places)
