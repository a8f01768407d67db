"""Step mode: any mix of requests and one that leaves; no picture tells who ran beside it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import (
    Aborted,
    Completed,
    DiffusionRequest,
)
from tests.contract.random_models import PROMPTS, SOON_S, assert_close, picture
from tests.contract.step_models import Model, request

pytestmark = pytest.mark.usefixtures("one_thread")


@st.composite
def mixes(draw: st.DrawFn) -> list[DiffusionRequest]:
    requests = []
    for i in range(draw(st.integers(2, 5))):
        image = picture(draw(st.integers(0, 2))) if draw(st.booleans()) else None
        requests.append(
            request(
                f"r{i}",
                draw(st.sampled_from(PROMPTS)),
                height=draw(st.sampled_from([16, 24])),
                num_inference_steps=draw(st.integers(2, 5)),
                guidance_scale=draw(st.sampled_from([1.0, 3.0, 8.0])),
                negative_prompt=draw(st.sampled_from([None, "", "fog"])),
                seed=draw(st.integers(0, 5)),
                num_outputs=draw(st.integers(1, 2)),
                noise_scheduler=draw(st.sampled_from([None, "euler", "dpmpp_2m"])),
                image=image,
                strength=None if image is None else draw(st.sampled_from([0.5, 1.0])),
            )
        )
    return requests


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=mixes(), aborted=st.integers(0, 4))
def test_neighbours_never_show(sd: Model, wanted: list[DiffusionRequest], aborted: int) -> None:
    sd.engine.pause()
    streams = [sd.engine.submit(one) for one in wanted]
    sd.engine.resume()
    if aborted < len(wanted):
        streams[aborted].get(SOON_S)
        streams[aborted].close()
    for one, stream in zip(wanted, streams, strict=True):
        end = stream.result(SOON_S)
        if isinstance(end, Aborted):
            continue
        reference = sd.alone.submit(one).result(SOON_S)
        assert isinstance(end, Completed), end
        assert isinstance(reference, Completed)
        for got, alone in zip(end.media, reference.media, strict=True):
            assert got.seed == alone.seed
            assert_close(got.pixels, alone.pixels)
