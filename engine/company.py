"""Step mode: in what rows that are under way are alike or differ, of all that can keep them from sharing a forward."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .batch_key import BatchKey
from .stats import RunningGroup

#: Parameters that can show in a call of the denoiser. Steps, seed, strength and noise scheduler never do, guidance only
#: by whether there is any.
FORWARD_FIELDS = ("height", "width", "num_frames", "duration_s", "image_size", "loras")


def apart(one: BatchKey, other: BatchKey) -> dict[str, None]:
    """Names of the parameters in which two rows differ."""
    if one == other:
        return {}
    mine, its = _shown(one), _shown(other)
    return dict.fromkeys(name for name in mine if mine[name] != its[name])


def alike(keys: Iterable[BatchKey]) -> tuple[RunningGroup, ...]:
    """Rows of these keys, by what they share."""
    merged: list[RunningGroup] = []
    for key, rows in Counter(keys).items():
        shown = _shown(key)
        mates = [group for group in merged if group.key == shown]
        merged = [group for group in merged if group not in mates]
        merged.append(RunningGroup(rows + sum(group.rows for group in mates), shown))
    return tuple(merged)


def _shown(key: BatchKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in FORWARD_FIELDS} | {"guided": key.guided}
