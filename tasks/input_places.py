"""Which objects a request may name as `s3://` inputs. Not all that the worker's credentials open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.settings import Settings


def uploads_folder(prefix: str) -> str:
    """Where the API keeps the pictures that come with a request."""
    return "/".join([*(part for part in prefix.split("/") if part), "inputs", ""])


@dataclass(frozen=True, slots=True)
class InputPlaces:
    """Pairs of a bucket and a folder in it; the folder is empty or ends in `/`."""

    places: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, setting: str, own: str, uploads: str = "inputs/") -> InputPlaces:
        """`bucket` or `bucket/folder`, separated by commas; empty: the own bucket. What the API itself keeps for a
        request, in `uploads` of the own bucket, is always among them."""
        places = []
        for entry in setting.split(",") if setting else [own]:
            bucket, _, folder = entry.strip().partition("/")
            places.append((bucket, f"{folder.strip('/')}/" if folder.strip("/") else ""))
        return cls((*places, (own, uploads)) if setting else tuple(places))

    @classmethod
    def of(cls, settings: Settings) -> InputPlaces:
        return cls.parse(settings.input_buckets, settings.s3_bucket, uploads_folder(settings.s3_prefix))

    def allow(self, bucket: str, key: str) -> bool:
        """A key that climbs is refused: some stores, and proxies before them, follow `..`."""
        if any(part in (".", "..") for part in re.split(r"[/\\]", key)):
            return False
        return any(bucket == place and key.startswith(folder) for place, folder in self.places)

    def __str__(self) -> str:
        return " and ".join(f"s3://{bucket}/{folder}" for bucket, folder in self.places)
