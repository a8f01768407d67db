"""engine.adapters.self_check: the sizes at which merging is proved."""

import pytest

from engine import Capabilities
from engine.adapters.self_check import MAX_SIDE, _requests


@pytest.mark.parametrize(
    ("own", "multiple", "expected"),
    [
        ((1024, 1024), 8, (MAX_SIDE, MAX_SIDE)),
        ((480, 832), 48, (96, 96)),
        ((32, 64), 8, (32, 64)),
        ((512, 512), 256, (256, 256)),
    ],
)
def test_they_are_small_and_such_as_the_model_takes(
    own: tuple[int, int], multiple: int, expected: tuple[int, int]
) -> None:
    can = Capabilities(
        model_class="P",
        device="cpu",
        dtype="float32",
        default_size=own,
        size_multiple=multiple,
        tasks=frozenset({"text2image"}),
    )
    assert {(one.params.height, one.params.width) for one in _requests(can)} == {expected}
