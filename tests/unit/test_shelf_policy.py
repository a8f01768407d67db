"""Which model makes room for which, by cases and by simulated days with any mix of models, jobs and sizes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.shelf_policy import ModelState, Move, ShelfPolicy, next_move

POLICY = ShelfPolicy(turn_s=10.0, linger_s=1.0)


def here(name: str, **changes: object) -> ModelState:
    return ModelState(name=name, need_bytes=6, loaded=True, **changes)  # type: ignore[arg-type]


def wanted(name: str, since_s: float = 100.0, **changes: object) -> ModelState:
    return ModelState(**{"name": name, "need_bytes": 6, "wanted_s": since_s, **changes})  # type: ignore[arg-type]


def move(*models: ModelState, room: int | None = 0, now: float = 100.0) -> Move:
    return next_move(models, {} if room is None else {"cpu": room}, POLICY, now)


def test_what_fits_is_loaded_and_nothing_leaves() -> None:
    assert move(here("a", seats=3), wanted("b"), room=6) == Move(enters="b")
    assert move(here("a", seats=3), wanted("b"), room=None) == Move(enters="b")
    assert move(here("a"), here("b")) == Move()


def test_the_idle_one_that_was_unused_for_longest_leaves() -> None:
    models = (here("a", used_s=50), here("b", used_s=40), here("c", used_s=60), wanted("d"))
    assert move(*models) == Move(enters="d", leaving=("b",))
    assert move(*models, wanted("e", 99.0, need_bytes=18)).leaving == ("b", "a", "c")


def test_nothing_leaves_that_need_not() -> None:
    small = replace(here("small", used_s=10), need_bytes=1)
    assert move(small, here("large", used_s=20), wanted("b")) == Move(enters="b", leaving=("large",))


def test_one_that_is_kept_stays_and_so_does_another_devices() -> None:
    assert move(here("a", keep=True), here("b", used_s=90), wanted("c")).leaving == ("b",)
    other = replace(here("a"), device="cuda:0")
    assert move(other, here("b", used_s=90), wanted("c")).leaving == ("b",)


def test_a_model_with_jobs_goes_on_for_a_turn_and_then_takes_no_more() -> None:
    busy = here("a", seats=2, since_s=95.0)
    assert move(busy, wanted("b")) == Move(again_s=110.0)
    assert move(busy, wanted("b"), now=110.0) == Move(closed=frozenset({"a"}))
    assert move(replace(busy, seats=0, used_s=110.0), wanted("b"), now=110.0) == Move(enters="b", leaving=("a",))


def test_its_turn_begins_when_it_is_loaded() -> None:
    assert move(here("a", seats=1, since_s=105.0), wanted("b"), now=112.0) == Move(again_s=115.0)


def test_between_two_jobs_a_model_is_not_idle_yet() -> None:
    assert move(here("a", used_s=99.5), wanted("b")) == Move(again_s=100.5)
    assert move(here("a", used_s=99.5), wanted("b"), now=100.5) == Move(enters="b", leaving=("a",))


def test_nobody_changes_for_a_model_that_another_worker_has() -> None:
    busy = here("a", seats=2)
    assert move(busy, wanted("b", elsewhere=True), now=500.0) == Move()
    assert move(replace(busy, seats=0), wanted("b", elsewhere=True), now=500.0).enters == "b"


def test_a_small_one_overtakes_until_the_first_has_waited_for_a_turn() -> None:
    models = (here("a", seats=1), wanted("large", 100.0, need_bytes=9), wanted("small", 101.0, need_bytes=3))
    assert move(*models, room=3, now=105.0).enters == "small"
    late = move(*models, room=3, now=110.0)
    assert (late.enters, late.closed) == (None, frozenset({"a"}))


def test_one_that_is_too_large_for_all_is_tried_alone() -> None:
    assert move(here("a"), here("b"), wanted("c", need_bytes=100)).leaving == ("a", "b")
    assert move(here("a", keep=True), wanted("c", need_bytes=100)) == Move(enters="c")


@dataclass
class Day:
    """A worker without engines: every wish is repeated until it is granted, jobs take their time, loads too."""

    models: dict[str, ModelState]
    total: int
    load_s: float
    now: float = 0.0
    jobs: list[tuple[float, str]] = field(default_factory=list)
    wishes: list[tuple[float, str]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    loads: list[tuple[float, str]] = field(default_factory=list)

    def change(self, name: str, **changes: object) -> None:
        self.models[name] = replace(self.models[name], **changes)  # type: ignore[arg-type]

    def room(self) -> int:
        return self.total - sum(model.need_bytes for model in self.models.values() if model.loaded)

    def tick(self, job_s: float) -> None:
        for end, name in [job for job in self.jobs if job[0] <= self.now]:
            self.jobs.remove((end, name))
            self.change(name, seats=self.models[name].seats - 1, used_s=self.now)
        found = next_move(list(self.models.values()), {"cpu": self.room()}, POLICY, self.now)
        if found.enters is not None:
            self.check(found)
            for name in found.leaving:
                self.change(name, loaded=False)
            self.now += self.load_s
            self.change(found.enters, loaded=True, wanted_s=None, since_s=self.now, used_s=self.now)
            self.loads.append((self.now, found.enters))
            return
        for since, name in list(self.wishes):
            model = self.models[name]
            if model.loaded and name not in found.closed and model.seats < 2:
                self.wishes.remove((since, name))
                self.waits.append(self.now - since)
                self.jobs.append((self.now + job_s, name))
                self.change(name, seats=model.seats + 1, wanted_s=None, used_s=self.now)
            elif not model.loaded or name in found.closed:
                self.change(name, wanted_s=self.now if model.wanted_s is None else model.wanted_s)

    def check(self, found: Move) -> None:
        assert found.enters is not None
        leaving = [self.models[name] for name in found.leaving]
        assert all(one.loaded and not one.seats and not one.keep for one in leaving)
        fits = self.models[found.enters].need_bytes <= self.room() + sum(one.need_bytes for one in leaving)
        stay = [one for one in self.models.values() if one.loaded and one not in leaving]
        assert fits or all(one.keep for one in stay)
        assert not leaving or self.models[found.enters].need_bytes > self.room(), "nothing leaves that need not"


SIZES = st.lists(st.tuples(st.integers(1, 10), st.booleans()), min_size=1, max_size=5)
WISHES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(SIZES, WISHES, st.integers(1, 20), st.sampled_from([0.5, 3.0, 15.0]), st.sampled_from([0.0, 5.0]))
def test_every_job_gets_its_model_in_bounded_time_and_no_model_is_taken_from_one(
    sizes: list[tuple[int, bool]], wishes: list[tuple[int, int]], spare: int, job_s: float, load_s: float
) -> None:
    names = [f"m{index}" for index in range(len(sizes))]
    models = {n: ModelState(name=n, need_bytes=b, keep=keep) for n, (b, keep) in zip(names, sizes, strict=True)}
    kept = sum(model.need_bytes for model in models.values() if model.keep)
    day = Day(models, total=kept + max([size for size, keep in sizes if not keep], default=0) + spare, load_s=load_s)
    coming = sorted((float(at), names[index % len(names)]) for at, index in wishes)
    num_jobs, everything = len(coming), sum(size for size, _ in sizes)
    while coming or day.wishes or day.jobs:
        while coming and coming[0][0] <= day.now:
            day.wishes.append(coming.pop(0))
        day.tick(job_s)
        day.now += 0.5
        assert day.now < 60 + num_jobs * (2 * POLICY.turn_s + job_s + load_s + 5), "somebody waits for ever"
    assert len(day.waits) == num_jobs
    if everything <= day.total:
        assert len(day.loads) == len({name for _, name in day.loads}), "what fits is loaded once"
    # Not thrashed: a model that came for one with jobs at hand stays for its turn, or was idle.
    assert len(day.loads) <= num_jobs
