"""Places for jobs are counted, given back after an error too, and nobody waits long for one."""

from __future__ import annotations

import contextlib

from worker.places import Places


def test_a_place_is_for_one_and_is_given_back_whatever_happens() -> None:
    places = Places(1)
    with places.one() as taken:
        assert taken
        with places.one(0.01) as other:
            assert not other
        with places.one(0.01) as other:
            assert not other, "who had none gives none back"
    with contextlib.suppress(RuntimeError), places.one(0.01):
        raise RuntimeError
    with places.one(0.01) as taken:
        assert taken
