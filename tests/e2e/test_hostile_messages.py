"""Messages that no honest producer sends, to a real worker: none is obeyed, and none keeps the next job waiting."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import redis
from kombu import Connection, Producer

from tasks.broker_queues import GENERATE, SUBMIT, queue_for
from tasks.broker_url import broker_url, transport_options
from tasks.settings import Settings
from tests.e2e.nodes import eventually, fleet

MIB = 1024 * 1024


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self._path,))


def headers(task: str, task_id: object, **changes: object) -> dict[str, object]:
    return {"lang": "py", "task": task, "id": task_id, "root_id": task_id, "argsrepr": "", "kwargsrepr": "", **changes}


def body(args: object, kwargs: object, embed: object = None) -> bytes:
    return json.dumps([args, kwargs, embed or {}]).encode()


def send_all(settings: Settings, marker: Path) -> None:
    evil = pickle.dumps([[Touch(marker)], {}, {}])
    with Connection(broker_url(settings.redis_url), transport_options=transport_options(settings.redis_url)) as broker:
        producer = Producer(broker.channel(), auto_declare=False)

        def send(queue: str, content: bytes, heads: dict[str, object], kind: str = "application/json") -> None:
            producer.publish(content, routing_key=queue, content_type=kind, content_encoding="utf-8", headers=heads)

        for queue, task in ((SUBMIT, SUBMIT), (queue_for("fake"), GENERATE)):
            send(queue, evil, headers(task, "p1"), "application/x-python-serialize")
            send(queue, base64.b64encode(evil), headers(task, "p2"), "application/x-python-serialize")
            send(queue, b"!!python/object/apply:os.system ['true']", headers(task, "y1"), "application/x-yaml")
            send(queue, b"\x80\x04not json", headers(task, "n1"))
            for number, odd in enumerate((b"", b"null", b"7", b"{}", b"[]", b"[1, 2, 3]", b"[[], {}, 7]")):
                send(queue, odd, headers(task, f"o{number}"))
            send(queue, body([], {}), headers("os.system", "u1"))
            send(queue, body([], {"prompt": "x"}), headers(task, 7))
            send(queue, body([], {"prompt": "x"}), {})
            send(queue, body([], {"prompt": "x"}), headers(task, "t1", eta="never", timelimit="no", retries="many"))
        for number, job_id in enumerate(({}, None, 7, "", "../x", "x" * MIB, ["a"], "unknown")):
            send(queue_for("fake"), body([job_id], {}), headers(GENERATE, f"g{number}"))
        send(SUBMIT, body([], {"prompt": "x" * (4 * MIB)}), headers(SUBMIT, "huge-prompt"))
        send(SUBMIT, body([], {"prompt": "x", "y" * MIB: 1}), headers(SUBMIT, "huge-name"))
        send(SUBMIT, body([], {"prompt": "x", "model": "m" * MIB}), headers(SUBMIT, "huge-model"))
        send(SUBMIT, body([], {"prompt": "x", **{f"f{n}": [[[n]]] for n in range(20_000)}}), headers(SUBMIT, "many"))
        send(SUBMIT, body([], {"prompt": ["x"], "seed": {"a": 1}, "loras": 3}), headers(SUBMIT, "types"))
        send(SUBMIT, body([[1, 2]], {}), headers(SUBMIT, "positional"))
        send(SUBMIT, body([1, 2, 3], {}), headers(SUBMIT, "several"))
        send(SUBMIT, body([], {"prompt": "x", "self": 1}), headers(SUBMIT, "self"))
        send(SUBMIT, b'[[], {"prompt": "\\ud800", "metadata": {"\\udfff": 1}}, {}]', headers(SUBMIT, "surrogate"))
        send(SUBMIT, b'[[], {"prompt": "x", "guidance_scale": 1e999}, {}]', headers(SUBMIT, "infinite"))


def test_no_message_poisons_a_worker(settings: Settings, tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    with fleet(settings, tmp_path / "n") as running:
        worker = running.start_worker()
        name = running.client.store.workers()[0]["name"]
        send_all(settings, marker)
        with redis.Redis.from_url(settings.redis_url) as client:
            for queue in (SUBMIT, queue_for("fake")):  # not even an envelope
                client.lpush(queue, b"\xff\xfe garbage", b"{}", b"[]")
        last = (
            "huge-prompt",
            "huge-name",
            "huge-model",
            "many",
            "types",
            "positional",
            "several",
            "self",
            "surrogate",
            "infinite",
        )
        eventually(lambda: {job.id for job in running.client.store.list(limit=100).jobs} >= set(last), 60, "all told")
        for job_id in last:
            job = running.client.get(job_id)
            assert (job.status, job.error and job.error.type) == ("failed", "invalid_request"), job_id
            assert len(json.dumps(job.to_json())) < 20_000, f"the record of {job_id} carries what was refused"
        assert running.client.wait(running.submit().id, timeout_s=60).status == "succeeded"
        assert [each["name"] for each in running.client.store.workers()] == [name], "the same process as before"
        assert worker.returncode is None
    assert not marker.exists()
