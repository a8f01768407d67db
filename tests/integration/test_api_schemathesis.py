"""Requests made from the OpenAPI document, right ones and wrong ones: each answer is one that the document promises.

A small, fixed set in the suite. By hand, more and new ones: `SCHEMATHESIS_EXAMPLES=200 python -m pytest
tests/integration/test_api_schemathesis.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.openai_stand import KEY, Stand
from tests.integration.test_api_document import ROUTES

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "3"))
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
#: Not among them, of those that schemathesis has:
#: - positive_data_acceptance: what a model can do, and whether a picture can be fetched, is in no schema.
#: - negative_data_rejection: a query parameter that nobody knows is passed over; bodies have tests of their own.
#: - ignored_auth: `test_api_document.py` asks every route without a key and with a wrong one.
#: - unsupported_method, allow_header_conformance, missing_required_header: of a phase that is not run here.
#: - use_after_free, ensure_resource_availability, object_level_authorization: of runs with links between operations.
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@dataclass(frozen=True)
class Api:
    schema: Any
    session: requests.Session
    #: Goes with every request, whatever was made up in its place.
    key: dict[str, str]
    #: Values of parameters behind which there is something.
    known: dict[str, list[str]]


@pytest.fixture(scope="module")
def api(shared_stand: Stand) -> Iterator[Api]:
    key = {"Authorization": f"Bearer {KEY}"}
    with requests.Session() as session:

        def made(path: str, **body: object) -> str:
            reply = session.post(f"{shared_stand.url}{path}", json=body, headers=key, timeout=30)
            assert reply.ok, reply.text
            return str(reply.json()["id"])

        jobs = [made("/v1/jobs", prompt=prompt) for prompt in ("a boat", "fail model_error", "fail internal")]
        videos = [made("/v1/videos", prompt="a fish") for _ in range(2)]
        for job_id in (*jobs, *videos):
            session.get(f"{shared_stand.url}/v1/jobs/{job_id}?wait=20", headers=key, timeout=30)
        schema = schemathesis.openapi.from_url(f"{shared_stand.url}/openapi.json")
        known = {"job_id": [*jobs, *videos], "video_id": videos, "name": ["tiny"], "number": ["0"], "ids": jobs}
        yield Api(schema, session, key, known)


def requests_of(operation: Any, mode: schemathesis.GenerationMode) -> Any:
    """A strategy. What has nothing to be wrong in is asked rightly."""
    can_be_wrong = bool(operation.body) or any(operation.iter_parameters())
    return operation.as_strategy(generation_mode=mode if can_be_wrong else MODES[0])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("route", sorted(ROUTES, key=lambda route: (route.startswith("DELETE"), route)))
def test_every_answer_is_a_documented_one(api: Api, route: str, mode: schemathesis.GenerationMode) -> None:
    method, path = route.split(" ")

    @hypothesis_settings(
        max_examples=EXAMPLES,
        derandomize="SCHEMATHESIS_EXAMPLES" not in os.environ,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests_of(api.schema[path][method], mode), st.data())
    def answers(case: schemathesis.Case, data: st.DataObject) -> None:
        for parameters in (case.path_parameters, case.query):
            for name in sorted(parameters.keys() & api.known.keys()):
                if data.draw(st.booleans()):
                    parameters[name] = data.draw(st.sampled_from(api.known[name]))
        response = case.call(session=api.session, headers=api.key, timeout=30, allow_redirects=False)
        case.validate_response(response, checks=CHECKS)

    answers()
