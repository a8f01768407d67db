"""What the tests of the page share: one stack with a real worker, one browser, a tab that tolerates no fault."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from api_stub.testing import running_api
from tasks.artifacts import ArtifactStore, object_key
from tasks.client import Client
from tasks.job import Job, JobMetrics, JobStatus, Output, Progress
from tasks.local.process import ChildProcess
from tasks.local.servers import S3Server, start_redis
from tasks.settings import Settings
from tasks.store import Claimed, Outcome, Written
from tests.e2e.nodes import environment, eventually
from tests.forks import ForkedProcess

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
DESK: ViewportSize = {"width": 1280, "height": 900}
WAIT_MS = 30_000
WORKER = "darkroom-1"
expect.set_options(timeout=WAIT_MS)

#: `tiny` has a real worker; the part of the others' workers is played by calls of the store.
MODELS = """
[tiny]
source = "bundled:tiny"
dtype = "float32"
device = "cpu"
max_batch_rows = 8
mask_input = false
sizes = [[96, 96], [128, 96], [96, 128]]
defaults = { height = 96, width = 96, num_inference_steps = 8, guidance_scale = 4.0 }
limits = { min_size = 64, max_size = 160, max_steps = 100, max_pixels = 409600 }

[still]
source = "some/pictures"
noise_schedulers = ["ddim", "euler"]
loras = { grain = "some/grain", noir = "some/noir" }
limits = { max_steps = 60, max_outputs = 4 }

[film]
source = "some/film"
modality = "video"
defaults = { num_frames = 49, fps = 16 }

[song]
source = "some/song"
modality = "audio"
image_input = false
mask_input = false
defaults = { duration_s = 10 }
"""


def chromium() -> str:
    names = (os.environ.get("SAFELIGHT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    assert found, "these tests need a browser: apt-get install chromium, or set SAFELIGHT_CHROMIUM"
    return found


@dataclass(frozen=True)
class Stack:
    url: str
    settings: Settings
    client: Client

    def wait_for_worker(self) -> None:
        def is_up() -> bool:
            return any(worker.get("host") == WORKER for worker in self.client.store.workers())

        eventually(is_up, 90, "the worker is up")

    def submit(self, prompt: str, **fields: object) -> Job:
        return self.client.submit({"model": "still", "prompt": prompt, **fields})

    def claim(self, job: Job) -> int:
        claimed = self.client.store.claim(job.id, "played:1:abc", 60)
        assert isinstance(claimed, Claimed)
        return claimed.attempt

    def report(self, job: Job, attempt: int, step: int) -> None:
        progress = Progress(stage="denoising", step=step, num_steps=30, fraction=step / 40)
        self.client.store.report({(job.id, attempt): progress})

    def succeed(
        self, job: Job, body: bytes, content_type: str, attempt: int | None = None, warnings: Sequence[str] = ()
    ) -> None:
        attempt = attempt or self.claim(job)
        digest = hashlib.sha256(body).hexdigest()
        extension = content_type.partition("/")[2]
        store = ArtifactStore(self.settings)
        keys = [object_key("", "", job.id, attempt, k, extension) for k in range(job.request.num_outputs)]
        uris = [store.put(key, body, content_type, digest) for key in keys]
        outputs = [
            Output(uri=uri, content_type=content_type, seed=7 + k, size_bytes=len(body), sha256=digest)
            for k, uri in enumerate(uris)
        ]
        metrics = JobMetrics(total_ms=2_300, denoise_ms=1_900)
        outcome = Outcome(JobStatus.SUCCEEDED, outputs=outputs, warnings=warnings, metrics=metrics)
        assert self.client.store.finish(job.id, attempt, outcome) is Written.OK


@pytest.fixture(scope="module")
def stack(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Redis of its own, which no other test empties; an API; a worker for `tiny`."""
    home = tmp_path_factory.mktemp("page")
    (home / "models.toml").write_text(MODELS, "utf-8")
    with contextlib.ExitStack() as parts:
        patch = parts.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
        redis_server = start_redis(home / "redis")
        parts.callback(redis_server.process.stop)
        settings = Settings(
            redis_url=redis_server.url,
            s3_endpoint_url=s3_server.url,
            s3_bucket=f"page-{os.getpid()}",
            models=home / "models.toml",
            spool_dir=home / "spool",
        )
        ArtifactStore(settings).ensure_bucket()
        start_worker(settings, home, parts)
        client = parts.enter_context(Client(settings))
        yield Stack(parts.enter_context(running_api(settings)), settings, client)


def start_worker(settings: Settings, home: Path, parts: contextlib.ExitStack) -> ChildProcess:
    """Not waited for here: most tests need none."""
    env = {**os.environ, **environment(settings), "SAFELIGHT_MODELS": str(settings.models)}
    env |= {"SAFELIGHT_WORKER_NAME": WORKER}
    worker = ForkedProcess(WORKER, "worker", "--model", "tiny", log=home / "worker.log", env=env)
    parts.callback(worker.stop, 20)
    return worker


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Playwright keeps an event loop running in this thread: no other module must find it there."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS.split(), timeout=60_000)
        yield browser
        browser.close()


@contextlib.contextmanager
def tab(browser: Browser, url: str, *homes: str, **options: object) -> Iterator[Page]:
    """A tab on the page. Whatever the browser complains of, and any request to a third host, is a fault.

    Without a GPU what moves takes half of the time of these tests: it moves where a test asks for it."""
    usual = {"viewport": DESK, "reduced_motion": "reduce"}
    context: BrowserContext = browser.new_context(**{**usual, **options})  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    known = (url, *homes, "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(known) else faults.append(request.url))
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    expected = ("the server responded with a status of 4", "net::ERR_INTERNET_DISCONNECTED")
    found = [fault for fault in faults if not any(part in fault for part in expected)]
    assert found == [], found


@pytest.fixture
def page(browser: Browser, stack: Stack) -> Iterator[Page]:
    with tab(browser, stack.url, str(stack.settings.s3_endpoint_url)) as page:
        yield page


def picture(colour: str = "#0d2a52") -> bytes:
    image = Image.new("RGB", (96, 96), colour)
    draw = ImageDraw.Draw(image)
    draw.ellipse((56, 12, 80, 36), fill="#f6e7b4")
    draw.polygon([(20, 62), (78, 62), (66, 80), (32, 80)], fill="#c8321e")
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()
