"""Drives the compose stack as an operator and a client would, and says what it saw. Standard library only.

`run` starts it where the published ports can be reached. The first thing that does not hold ends it with exit code 1.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable

from stack import Stack, require

JOB = {"prompt": "a red boat with a white sail on the sea at sunset", "seed": 7}
#: Long enough to be interrupted.
LONG = {**JOB, "num_inference_steps": 100}


def up(stack: Stack) -> str:
    stack.compose("up", "-d", "--wait", "--wait-timeout", "600", "--no-build")
    states = stack.states()
    require(Counter(states.values()) == {"running (healthy)": 4}, f"not all four are healthy: {states}")
    return "redis, s3, worker and api healthy"


def ports_on_loopback(stack: Stack) -> str:
    bound = [port for container in stack.containers() for port in stack.published(container)]
    require(len(bound) == 3 and all(address.startswith("127.0.0.1:") for address in bound), f"published: {bound}")
    return "published on loopback only: " + ", ".join(sorted(bound))


def hardened(stack: Stack) -> str:
    for service in ("api", "worker"):
        container = stack.containers(service)[0]
        require(stack.run_in(container, "id", "-u") == "10001", f"{service} does not run as uid 10001")
        require(stack.fails_in(container, "touch", "/opt/venv/x"), f"{service} can write to its image")
        image = stack.inspect(container, "{{.Config.Image}}")
        baked = stack.docker("image", "inspect", "-f", "{{json .Config.Env}}", image)
        require("AWS_" not in baked and "SECRET" not in baked, f"{image} carries credentials")
    for service in ("redis", "s3", "api", "worker"):
        container = stack.containers(service)[0]
        require("ALL" in stack.inspect(container, "{{json .HostConfig.CapDrop}}"), f"{service} keeps capabilities")
        require(
            "no-new-privileges" in stack.inspect(container, "{{json .HostConfig.SecurityOpt}}"), f"{service}: setuid"
        )
    require(stack.fails_in(stack.containers("api")[0], "python", "-c", "import torch"), "the api image has torch")
    return "uid 10001, read-only root, capabilities dropped, no credentials in the images, no torch in api"


def one_job(stack: Stack) -> str:
    job = stack.finish(stack.submit(JOB))
    picture = stack.picture(job)
    output = job["outputs"][0]
    require(hashlib.sha256(picture).hexdigest() == output["sha256"], "the picture is not the one that was recorded")
    return f"{output['width']} x {output['height']} PNG, {len(picture)} bytes by its presigned URL, sha256 as recorded"


def client_inside(stack: Stack) -> str:
    """The client of the package, in the api's container, where the store has another name."""
    code = (
        "from tasks import Client\n"
        "with Client() as client:\n"
        f"    job = client.wait(client.submit({JOB!r}).id, timeout_s=300)\n"
        "    print(job.status.value, *client.result_urls(job.id))\n"
    )
    said = stack.run_in(stack.containers("api")[0], "python", "-c", code)
    require(said.startswith(f"succeeded http://localhost:{stack.s3_port}/"), f"the client said {said}")
    require(stack.fetch(said.split()[1])[:4] == b"\x89PNG", "the client's URL leads to no PNG")
    return "tasks.Client in the api's container: its presigned URL opens from outside"


def worker_killed(stack: Stack) -> str:
    before = stack.worker_names()
    job_id = stack.submit(LONG)
    step = stack.wait_step(job_id, 5)
    (worker,) = stack.get("/v1/workers")["workers"]
    stack.run_in(stack.containers("worker")[0], "python", "-c", f"import os; os.kill({worker['pid']}, 9)")
    killed_at = time.monotonic()
    job = stack.finish(job_id)
    took_s = time.monotonic() - killed_at
    require(job["attempt"] == 2, f"attempt {job['attempt']} instead of 2")
    require(not before & stack.worker_names(), "the old worker still beats")
    restarts = stack.inspect(stack.containers("worker")[0], "{{.RestartCount}}")
    require(restarts == "1", f"{restarts} restarts instead of 1")
    return f"SIGKILL at step {step} of 100: restarted, attempt 2 succeeded {took_s:.0f} s later"


def two_workers(stack: Stack) -> str:
    stack.compose("up", "-d", "--wait", "--wait-timeout", "600", "--no-build", "--scale", "worker=2", "worker")
    require(len(stack.worker_names()) == 2, f"workers: {stack.worker_names()}")
    jobs = [stack.finish(job_id) for job_id in [stack.submit({**JOB, "seed": seed}) for seed in range(8)]]
    shares = Counter(job["worker"].partition(":")[0] for job in jobs)
    require(len(shares) == 2, f"one worker did everything: {shares}")
    return f"8 jobs, shared {' and '.join(str(n) for n in shares.values())}"


def one_of_two_killed(stack: Stack) -> str:
    job_ids = [stack.submit({**LONG, "num_inference_steps": 50, "seed": seed}) for seed in range(8)]
    stack.wait_step(job_ids[0], 2)
    victim = stack.containers("worker")[0]
    held = [job["id"] for job in stack.jobs("running") if job["worker"].startswith(victim[:12])]
    require(bool(held), "the victim holds no job")
    stack.docker("kill", victim)
    jobs = [stack.finish(job_id) for job_id in job_ids]
    moved = [job["id"] for job in jobs if job["attempt"] == 2]
    require(bool(moved), "nothing was taken over")
    finishers = {job["worker"].partition(":")[0] for job in jobs if job["attempt"] == 2}
    require(finishers.isdisjoint({victim[:12]}), "the killed one finished a job")
    return f"docker kill with {len(held)} of 8 jobs in hand: the other worker took over {len(moved)}, all 8 succeeded"


def redis_restarted(stack: Stack) -> str:
    before = {job["id"]: job for job in stack.jobs()}
    job_id = stack.submit(LONG)
    stack.wait_step(job_id, 5)
    stack.compose("restart", "redis")
    job = stack.finish(job_id)
    after = {job["id"]: job for job in stack.jobs()}
    require(all(after.get(known) == job for known, job in before.items()), "a record is gone or another")
    return f"{len(before)} records unchanged; the job in flight succeeded in attempt {job['attempt']}"


def stopped_and_started(stack: Stack) -> str:
    first = stack.jobs("succeeded")[-1]
    job_id = stack.submit(LONG)
    stack.wait_step(job_id, 5)
    running = stack.containers()
    began_at = time.monotonic()
    stack.compose("stop")
    stopped_s = time.monotonic() - began_at
    codes = [stack.inspect(one, "{{.Name}} {{.State.ExitCode}}") for one in running]
    require(len(codes) == 4 and all(code.endswith(" 0") for code in codes), f"exit codes {codes}")
    stack.compose("up", "-d", "--wait", "--wait-timeout", "600", "--no-build")
    job = stack.finish(job_id)
    require(stack.picture(first)[:4] == b"\x89PNG", "the first picture is gone")
    return (
        f"stopped in {stopped_s:.0f} s, all exit 0; after up: succeeded in attempt {job['attempt']}, old pictures kept"
    )


def down(stack: Stack) -> str:
    stack.compose("down", "-v")
    left = stack.docker("ps", "-aq", *stack.mine) + stack.docker("volume", "ls", "-q", *stack.mine)
    require(not left, f"left behind: {left}")
    return "no container and no volume left"


CHECKS: tuple[Callable[[Stack], str], ...] = (
    up,
    ports_on_loopback,
    hardened,
    one_job,
    client_inside,
    worker_killed,
    two_workers,
    one_of_two_killed,
    redis_restarted,
    stopped_and_started,
    down,
)


def main() -> int:
    stack = Stack()
    began_at = time.monotonic()
    for check in CHECKS:
        started_at = time.monotonic()
        try:
            said = check(stack)
        except Exception as error:
            print(f"FAILED {check.__name__}: {type(error).__name__}: {error}", flush=True)
            stack.print_logs()
            return 1
        print(f"{time.monotonic() - started_at:6.1f} s  {check.__name__:20} {said}", flush=True)
    print(f"{time.monotonic() - began_at:6.1f} s  all {len(CHECKS)} checks hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
