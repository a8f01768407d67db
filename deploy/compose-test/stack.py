"""The stack under test from outside: compose and docker as commands, the API by its published port."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from typing import Any

PROJECT = "safelight-test"
TERMINAL = {"succeeded", "failed", "aborted"}


class Failure(Exception):
    """Something does not hold."""


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failure(otherwise)


class Stack:
    """The project of that name on the engine of `DOCKER_HOST`. Every wait is bounded."""

    mine = ("--filter", f"label=com.docker.compose.project={PROJECT}")

    def __init__(self) -> None:
        self._api = f"http://127.0.0.1:{os.environ['API_PORT']}"
        self.s3_port = os.environ["S3_PORT"]

    # -- docker -------------------------------------------------------------------------------------------------

    def docker(self, *words: str) -> str:
        done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=600)
        require(done.returncode == 0, f"docker {' '.join(words)}: {done.stderr.strip()[-2000:]}")
        return done.stdout.strip()

    def compose(self, *words: str) -> str:
        return self.docker("compose", "-p", PROJECT, "-f", "docker-compose.yml", *words)

    def containers(self, service: str | None = None, *, stopped: bool = False) -> list[str]:
        """Ids of the running ones (or of all), of one service or of every one."""
        words = ["ps", "-q", "--no-trunc", *self.mine]
        if service is not None:
            words += ["--filter", f"label=com.docker.compose.service={service}"]
        if stopped:
            words.append("-a")
        return self.docker(*words).split()

    def states(self) -> dict[str, str]:
        return {
            self.inspect(one, "{{.Name}}"): self.inspect(one, "{{.State.Status}} ({{.State.Health.Status}})")
            for one in self.containers(stopped=True)
        }

    def inspect(self, container: str, template: str) -> str:
        return self.docker("inspect", "-f", template, container)

    def published(self, container: str) -> list[str]:
        return [line.partition(" -> ")[2] for line in self.docker("port", container).splitlines()]

    def run_in(self, container: str, *command: str) -> str:
        return self.docker("exec", container, *command)

    def fails_in(self, container: str, *command: str) -> bool:
        return subprocess.run(["docker", "exec", container, *command], capture_output=True, timeout=60).returncode != 0

    def print_logs(self) -> None:
        print(self.compose("ps", "-a"), self.compose("logs", "--tail", "60"), sep="\n", flush=True)

    # -- the API ------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self._api + path, timeout=60) as reply:
            return json.load(reply)

    def submit(self, request: dict[str, Any]) -> str:
        body = json.dumps(request).encode()
        post = urllib.request.Request(f"{self._api}/v1/jobs", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(post, timeout=30) as reply:
            require(reply.status == 202, f"POST answered {reply.status}")
            job: dict[str, Any] = json.load(reply)
        return str(job["id"])

    def finish(self, job_id: str, within_s: float = 900) -> dict[str, Any]:
        """The job once it has succeeded; outages of the API are waited out."""
        deadline = time.monotonic() + within_s
        job: dict[str, Any] = {}
        while job.get("status") not in TERMINAL:
            require(time.monotonic() < deadline, f"{job_id} has not ended within {within_s:.0f} s: {job}")
            try:
                job = self.get(f"/v1/jobs/{job_id}?wait=5")
            except OSError:
                time.sleep(0.5)
        require(job["status"] == "succeeded", f"{job_id}: {job['status']}, {job['error']}")
        return job

    def wait_step(self, job_id: str, step: int, within_s: float = 300) -> int:
        """Returns the step that a running job has reached, `step` or later."""
        deadline = time.monotonic() + within_s
        while True:
            job = self.get(f"/v1/jobs/{job_id}")
            require(job["status"] not in TERMINAL, f"{job_id} has {job['status']} before step {step}")
            if job["progress"] is not None and job["progress"]["step"] >= step:
                return int(job["progress"]["step"])
            require(time.monotonic() < deadline, f"{job_id} not at step {step} within {within_s:.0f} s: {job}")
            time.sleep(0.1)

    def jobs(self, status: str | None = None) -> list[dict[str, Any]]:
        """Newest first, up to 200."""
        found: list[dict[str, Any]] = self.get("/v1/jobs?limit=200" + (f"&status={status}" if status else ""))["jobs"]
        return found

    def picture(self, job: dict[str, Any]) -> bytes:
        """By the redirect to a presigned URL, as a browser follows it."""
        return self.fetch(f"{self._api}/v1/jobs/{job['id']}/outputs/0")

    def fetch(self, url: str) -> bytes:
        with urllib.request.urlopen(url, timeout=60) as reply:
            require(f":{self.s3_port}/" in reply.url, f"{url} led to {reply.url}")
            body: bytes = reply.read()
        return body

    def worker_names(self) -> set[str]:
        return {worker["name"] for worker in self.get("/v1/workers")["workers"]}
