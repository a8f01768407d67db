"""Equal requests that start together run in one pipeline call; each can still leave, fail, stand aside, be exported."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from engine import Aborted, Checkpoint, Completed, DiffusionEngine, DiffusionRequest, EngineConfig, Failed, Progress
from engine.adapter import RowCall
from engine.adapters.gang import DiffusersRowCall
from engine.adapters.merging.site import Site
from engine.adapters.stepwise import StepPipeline
from engine.testing_pipelines import stable_diffusion
from tests.contract.families import FAMILIES, PROMPTS

pytestmark = pytest.mark.usefixtures("one_thread")

SD = FAMILIES["stable_diffusion"]
SOON_S = 120.0


class Rig:
    """An engine over a random Stable Diffusion whose denoiser treats each row alike, whatever company it has, to the
    last bit; so that any difference is the engine's. `forwards` are the rows of each that denoised."""

    def __init__(self, folder: str, **changes: Any) -> None:
        config = EngineConfig(**{"model": folder, "num_threads": 1, "mode": "step", "warmup": False, **changes})
        self.adapter = StepPipeline(config)
        self.forwards: list[int] = []
        self.before_forward: Callable[[Sequence[RowCall]], None] = lambda calls: None
        self._advance = self.adapter.advance
        self.adapter.advance = self._watched  # type: ignore[method-assign]
        self.engine = DiffusionEngine.make_engine(config, adapter=self.adapter)
        for stage, stand_in in (("encoding", encode), ("denoising", denoise), ("decoding", decode)):
            site(self, stage).original = stand_in

    def _watched(self, calls: Sequence[RowCall]) -> None:
        self.before_forward(calls)
        if calls[0].stage == "denoising":
            self.forwards.append(len(calls))
        self._advance(calls)

    def submit(self, *wanted: DiffusionRequest) -> list[Any]:
        self.forwards.clear()
        self.engine.pause()
        streams = [self.engine.submit(one) for one in wanted]
        self.engine.resume()
        return streams

    def pixels(self, *wanted: DiffusionRequest) -> list[Any]:
        return [pixels(stream.result(SOON_S)) for stream in self.submit(*wanted)]

    def alone(self, wanted: DiffusionRequest) -> Any:
        return self.pixels(wanted)[0]


def site(rig: Rig, stage: str) -> Site:
    """The first where calls of this stage are held."""
    assert rig.adapter._rendezvous is not None
    return next(one for one in rig.adapter._rendezvous.sites if one.stage == stage and one.mergeable)


def encode(input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return (torch.stack([torch.sin(row.float() + 1)[:, None].expand(-1, 32) for row in input_ids]),)


def denoise(sample: torch.Tensor, timestep: Any, encoder_hidden_states: torch.Tensor, **kwargs: Any) -> Any:
    text = encoder_hidden_states[:, :, 0].sum(dim=1)
    return (torch.stack([torch.sin(3 * row + one) for row, one in zip(sample, text, strict=True)]),)


def decode(z: torch.Tensor, **kwargs: Any) -> Any:
    return (torch.stack([row[:3].repeat_interleave(2, 1).repeat_interleave(2, 2) for row in z]),)


def pixels(event: Any) -> Any:
    assert isinstance(event, Completed), event
    return event.media[0].pixels


def equal(index: int, **changes: Any) -> DiffusionRequest:
    """Of a request, what may differ in a gang: the prompt and the seed."""
    base = {"num_inference_steps": 5, "seed": index, "negative_prompt": None, **changes}
    return SD.request(f"r{index}", PROMPTS[index % len(PROMPTS)], **base)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("sd")
    stable_diffusion().save_pretrained(made)
    return str(made)


@pytest.fixture(scope="module")
def rig(folder: str) -> Iterator[Rig]:
    made = Rig(folder)
    yield made
    made.engine.close()


@pytest.fixture(autouse=True)
def unwatched(rig: Rig) -> Iterator[None]:
    yield
    rig.before_forward = lambda calls: None


def gang_sizes(calls: Sequence[RowCall]) -> list[int]:
    return [len(call.gang.rows) for call in calls if isinstance(call, DiffusersRowCall)]


def test_they_share_a_call_and_are_what_they_are_alone(rig: Rig) -> None:
    wanted = [equal(k) for k in range(4)]
    alone = [rig.alone(one) for one in wanted]
    sizes: list[list[int]] = []
    rig.before_forward = lambda calls: sizes.append(gang_sizes(calls))
    together = rig.pixels(*wanted)
    assert sizes[0] == [4] * 4
    assert rig.forwards == [4] * 5
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


def test_outputs_of_one_request_are_one(rig: Rig) -> None:
    (stream,) = rig.submit(equal(1, num_outputs=3))
    end = stream.result(SOON_S)
    assert rig.forwards == [3] * 5
    for index, media in enumerate(end.media):
        assert np.array_equal(media.pixels, rig.alone(equal(1, seed=1 + index)))


@pytest.mark.parametrize("changes", [{"exact": True}, {"solo": True}])
def test_what_must_be_alone_is(rig: Rig, changes: dict[str, Any]) -> None:
    sizes: list[int] = []
    rig.before_forward = lambda calls: sizes.extend(gang_sizes(calls))
    rig.pixels(*(equal(k, **changes) for k in range(3)))
    assert set(sizes) == {1}


def test_one_of_other_steps_joins_them(rig: Rig) -> None:
    other = equal(7, num_inference_steps=3, guidance_scale=2.0)
    alone = rig.alone(other)
    results = rig.pixels(equal(0), equal(1), other)
    assert 3 in rig.forwards
    assert np.array_equal(results[2], alone)
    assert np.array_equal(results[1], rig.alone(equal(1)))


@pytest.mark.parametrize("name", ["pndm", "euler_a", "dpmpp_2m", "unipc", "heun", "ddpm"])
def test_a_row_of_a_gang_goes_on_elsewhere(rig: Rig, name: str) -> None:
    """Its part of the latents, of the solver's history and of the generators."""
    wanted = [equal(k, noise_scheduler=name, num_inference_steps=6) for k in range(3)]
    alone = rig.alone(wanted[1])
    taken: list[Checkpoint] = []

    def export(calls: Sequence[RowCall]) -> None:
        runner: Any = rig.engine._loop.runner
        state = next(iter(runner._calls.values())).state()
        if not taken and state is not None and state.step == 3:
            found = runner.export(wanted[1])
            assert found is not None
            taken.append(Checkpoint.from_bytes(found.to_bytes()))

    rig.before_forward = export
    rig.pixels(*wanted)
    rig.before_forward = lambda calls: None
    assert taken[0].step == 3
    again = DiffusionRequest(request_id="again", prompt=wanted[1].prompt, params=wanted[1].params, resume=taken[0])
    assert np.array_equal(rig.alone(again), alone)


def test_a_row_that_makes_room_goes_on_by_itself(folder: str) -> None:
    """Its mates go on at once, as rows of their own; nobody's picture changes and no progress falls."""
    rig = Rig(folder, max_batch_rows=3)
    try:
        low = [equal(k, priority=1) for k in range(3)]
        alone = [rig.alone(one) for one in low]
        urgent: list[Any] = []

        def send(calls: Sequence[RowCall]) -> None:
            if not urgent and calls[0].stage == "denoising" and len(rig.forwards) == 2:
                urgent.append(rig.engine.submit(equal(9, priority=9, num_inference_steps=2)))

        rig.before_forward = send
        streams = rig.submit(*low)
        for stream, expected in zip(streams, alone, strict=True):
            *events, end = list(stream)
            steps = [event.step for event in events if isinstance(event, Progress)]
            assert steps == sorted(steps)
            assert np.array_equal(pixels(end), expected)
        pixels(urgent[0].result(SOON_S))
        assert sum(rig.forwards) == 3 * 5 + 2, "not one step twice"
    finally:
        rig.engine.close()


def test_one_that_the_model_chokes_on_fails_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, unet = site(rig, "encoding"), site(rig, "denoising")
    poison = rig.adapter._loaded.tokenizer("poison").input_ids[1]

    def mark(input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        (texts,) = encode(input_ids)
        return (texts + 1000 * (input_ids == poison).any(dim=1)[:, None, None],)

    def picky(sample: torch.Tensor, timestep: Any, encoder_hidden_states: torch.Tensor, **kwargs: Any) -> Any:
        if bool((encoder_hidden_states > 500).any()):
            raise RuntimeError("cannot work with that")
        return denoise(sample, timestep, encoder_hidden_states, **kwargs)

    monkeypatch.setattr(encoder, "original", mark)
    monkeypatch.setattr(unet, "original", picky)
    wanted = [equal(0), SD.request("x", "poison", num_inference_steps=5, negative_prompt=None), equal(2)]
    ends = [stream.result(SOON_S) for stream in rig.submit(*wanted)]
    monkeypatch.undo()
    assert isinstance(ends[1], Failed)
    assert "cannot work with that" in ends[1].message
    for k in (0, 2):
        assert np.array_equal(pixels(ends[k]), rig.alone(wanted[k]))


def test_more_than_fit_are_served_in_parts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(sample) > 4:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return denoise(sample, *args, **kwargs)

    monkeypatch.setattr(site(rig, "denoising"), "original", small)
    wanted = [equal(k, height=24) for k in range(4)]  # a size of its own, as the bound is remembered
    together = rig.pixels(*wanted)
    assert rig.forwards == [4] + [2] * 10
    for one, result in zip(wanted, together, strict=True):
        assert np.array_equal(result, rig.alone(one))


def test_a_thousand_aborts_at_random_steps_never_touch_a_mate(rig: Rig) -> None:
    """Each is in no forward after the boundary at which it was aborted; those that stay are equal to the last bit."""
    draw = random.Random(11)
    wanted = [equal(k, num_inference_steps=2 + (k > 3), guidance_scale=4.0 + (k > 5)) for k in range(8)]
    expected = {one.request_id: rig.alone(one) for one in wanted}
    ends: Counter[str] = Counter()
    while ends["aborted"] < 1000:
        trial = Trial(rig, {name: draw.randrange(7) for name in draw.sample(sorted(expected), 7)})
        rig.before_forward = trial
        for one, stream in zip(wanted, rig.submit(*wanted), strict=True):
            end = stream.result(SOON_S)
            ends["aborted" if isinstance(end, Aborted) else "completed"] += 1
            assert isinstance(end, Aborted | Completed), end
            assert one.request_id in trial.gone or isinstance(end, Completed)
            if isinstance(end, Completed):
                assert np.array_equal(pixels(end), expected[one.request_id])
        assert trial.late == set()
    assert ends["completed"] > 100


class Trial:
    """Aborts by name, each before the forward of that number; `late` are those that were in one afterwards."""

    def __init__(self, rig: Rig, doomed: dict[str, int]) -> None:
        self._rig = rig
        self._doomed = doomed
        self._turn = 0
        self.gone: set[str] = set()
        self.late: set[str] = set()

    def __call__(self, calls: Sequence[RowCall]) -> None:
        rows = [call.gang.rows[call.member] for call in calls if isinstance(call, DiffusersRowCall)]
        self.late |= self.gone & {row.request.request_id for row in rows}
        now = {name for name, when in self._doomed.items() if when == self._turn}
        self._rig.engine.abort(now)
        self.gone |= now
        self._turn += 1
