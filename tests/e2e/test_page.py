"""The page in a real browser: submit, watch, see, abort, correct, log in. The worker's part is played by the store."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterator

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright
from pydantic import SecretStr

from api_stub.testing import running_api
from tasks.artifacts import ArtifactStore, object_key
from tasks.client import Client
from tasks.job import JobError, JobMetrics, JobStatus, Output, Progress
from tasks.models import BUNDLED
from tasks.settings import Settings
from tasks.store import Claimed, Outcome, Written

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 320, "height": 700}
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


def chromium() -> str:
    names = (os.environ.get("SAFELIGHT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    assert found, "these tests need a browser: apt-get install chromium, or set SAFELIGHT_CHROMIUM"
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS.split(), timeout=60_000)
        yield browser
        browser.close()


@pytest.fixture
def backend(settings: Settings) -> Iterator[Client]:
    ArtifactStore(settings).ensure_bucket()
    with Client(settings) as client:
        yield client


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with running_api(settings) as url:
        yield url


@pytest.fixture
def page(browser: Browser, url: str, settings: Settings) -> Iterator[Page]:
    """A tab on the page. Whatever the browser complains of, and any request to a third host, fails the test."""
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    faults: list[str] = []
    homes = (url, str(settings.s3_endpoint_url), "data:", "blob:")
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: None if request.url.startswith(homes) else faults.append(request.url))
    page.goto(url)
    yield page
    context.close()
    unexpected = [fault for fault in faults if "the server responded with a status of 4" not in fault]
    assert unexpected == []


def picture() -> bytes:
    image = Image.new("RGB", (96, 96), "#0d2a52")
    draw = ImageDraw.Draw(image)
    draw.ellipse((56, 12, 80, 36), fill="#f6e7b4")
    draw.polygon([(20, 62), (78, 62), (66, 80), (32, 80)], fill="#c8321e")
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def claim(backend: Client, job_id: str) -> int:
    claimed = backend.store.claim(job_id, "test", 60)
    assert isinstance(claimed, Claimed)
    return claimed.attempt


def succeed(backend: Client, settings: Settings, job_id: str, attempt: int) -> None:
    body = picture()
    digest = hashlib.sha256(body).hexdigest()
    uri = ArtifactStore(settings).put(object_key("", "", job_id, attempt, 0, "png"), body, "image/png", digest)
    output = Output(uri=uri, content_type="image/png", width=96, height=96, seed=7, size_bytes=len(body), sha256=digest)
    outcome = Outcome(JobStatus.SUCCEEDED, outputs=[output], metrics=JobMetrics(total_ms=2_300))
    assert backend.store.finish(job_id, attempt, outcome) is Written.OK


def newest(backend: Client) -> str:
    return backend.store.list(limit=1).jobs[0].id


def expose(page: Page, prompt: str) -> None:
    page.get_by_label("Prompt", exact=True).fill(prompt)
    page.get_by_role("button", name="Expose").click()
    expect(page.get_by_role("article", name=prompt)).to_be_visible()


def test_from_a_prompt_to_a_print_that_a_reload_keeps(page: Page, backend: Client, settings: Settings) -> None:
    expect(page.get_by_text("Nothing in the tray yet")).to_be_visible()
    page.get_by_label("Seed").fill("7")
    expose(page, "a red boat at night")
    card = page.get_by_role("article", name="a red boat at night")
    expect(card.get_by_text("Next in line")).to_be_visible()
    expect(page.locator("#num-queued")).to_have_text("1")

    job_id = newest(backend)
    request = backend.get(job_id).request
    assert (request.seed, request.width, request.num_inference_steps) == (7, 96, 20)
    attempt = claim(backend, job_id)
    step = Progress(stage="denoising", step=5, num_steps=20, fraction=0.25, eta_s=4)
    backend.store.report({(job_id, attempt): step})
    expect(card.get_by_text("Developing 5 of 20")).to_be_visible()
    expect(card.get_by_text("left", exact=False)).to_be_visible()
    expect(card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")

    succeed(backend, settings, job_id, attempt)
    expect(card.get_by_text("Done in 2.3 s")).to_be_visible()
    image = card.get_by_role("img", name="a red boat at night")
    expect(image).to_have_js_property("naturalWidth", 96)
    expect(page.locator("#live")).to_contain_text("a red boat at night")

    page.reload()
    expect(image).to_have_js_property("naturalWidth", 96)
    with page.expect_download() as download:
        card.get_by_role("link", name="Save").click()
    assert download.value.suggested_filename == f"safelight-{job_id}-0.png"


def test_a_preview_is_shown_while_it_develops(page: Page, backend: Client) -> None:
    expose(page, "a tree")
    job_id = newest(backend)
    attempt = claim(backend, job_id)
    backend.store.report({(job_id, attempt): Progress(stage="denoising", step=2, num_steps=20, fraction=0.1)})
    dot = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="
    backend.store.preview(job_id, attempt, {"step": 2, "image": dot})
    expect(page.locator("img.preview")).to_have_js_property("naturalWidth", 1)


def test_abort_again_and_reuse(page: Page, backend: Client) -> None:
    expose(page, "a house")
    card = page.get_by_role("article", name="a house").first
    card.get_by_role("button", name="Abort").click()
    expect(card.get_by_text("Aborted")).to_be_visible()
    assert backend.get(newest(backend)).status is JobStatus.ABORTED
    card.get_by_role("button", name="Again").click()
    expect(page.get_by_role("article", name="a house")).to_have_count(2)
    first, second = backend.store.list(limit=2).jobs
    assert first.request == second.request
    card.get_by_role("button", name="Reuse").click()
    expect(page.get_by_label("Seed")).to_have_value(str(first.request.seed))
    expect(page.get_by_label("Prompt", exact=True)).to_be_focused()


def test_a_failure_is_told_in_words(page: Page, backend: Client) -> None:
    expose(page, "a huge balloon")
    job_id = newest(backend)
    error = JobError(type="out_of_memory", message="12 GB were needed", attempt=1)
    backend.store.finish(job_id, claim(backend, job_id), Outcome(JobStatus.FAILED, error=error))
    card = page.get_by_role("article", name="a huge balloon")
    expect(card.get_by_text("The device ran out of memory")).to_be_visible()
    expect(card.get_by_text("12 GB were needed")).to_be_visible()


def test_a_wrong_field_says_so_at_its_place(page: Page) -> None:
    page.get_by_role("button", name="Expose").click()
    expect(page.locator("#prompt-error")).to_be_visible()
    page.get_by_label("Prompt", exact=True).fill("a tree")
    expect(page.locator("#prompt-error")).to_be_hidden()
    page.get_by_label("Custom").check()
    page.get_by_label("W", exact=True).fill("97")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#width-error")).to_contain_text("97 is not a multiple of 8")
    expect(page.get_by_label("W", exact=True)).to_be_focused()
    assert page.locator("article").count() == 0


def test_the_sizes_on_offer_are_those_of_the_model(page: Page) -> None:
    offered = page.locator("input[name=size]").evaluate_all("chips => chips.map(chip => chip.value)")
    assert offered == [*(f"{width}x{height}" for width, height in BUNDLED.sizes), "custom"]


def test_long_seeds_and_hostile_prompts_survive(page: Page, backend: Client) -> None:
    prompt = """<img src=x onerror="alert(1)"> '"seed":"12"' é 🙂"""
    page.get_by_label("Seed").fill("9223372036854775807")
    expose(page, prompt)
    request = backend.get(newest(backend)).request
    assert (request.prompt, request.seed) == (prompt, 2**63 - 1)
    expect(page.locator(".plate")).to_contain_text("seed 9223372036854775807")
    expect(page.locator(".words")).to_have_text(prompt)


def test_many_live_jobs_do_not_block_the_page(page: Page, backend: Client) -> None:
    for number in range(12):
        backend.submit(prompt=f"tree {number}")
    expect(page.locator("article")).to_have_count(12)
    expose(page, "one more")
    job = backend.store.list(limit=1).jobs[0]
    backend.abort(job.id)
    expect(page.get_by_role("article", name="one more").get_by_text("Aborted")).to_be_visible()


def test_a_phone_scrolls_one_way_only(page: Page, backend: Client) -> None:
    backend.submit(prompt="Donaudampfschifffahrtsgesellschaftskapitänsmütze" * 3)
    page.set_viewport_size(PHONE)
    page.reload()
    expect(page.locator("article")).to_have_count(1)
    page.get_by_role("button", name="More").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_every_control_has_a_name(page: Page) -> None:
    nameless = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')]"
        ".filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).map((e) => e.outerHTML)"
    )
    assert nameless == []


def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser, settings: Settings, backend: Client) -> None:
    backend.submit(prompt="behind a lock")
    locked = settings.model_copy(update={"api_keys": SecretStr("alpha")})
    with running_api(locked) as url:
        context = browser.new_context(viewport=DESK)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(url)
        page.get_by_label("Key", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_contain_text("not known")
        page.get_by_label("Key", exact=True).fill("alpha")
        page.keyboard.press("Enter")
        expect(page.get_by_role("article", name="behind a lock")).to_be_visible()
        backend.abort(newest(backend))
        expect(page.get_by_text("Aborted", exact=True)).to_be_visible()
        page.reload()
        expect(page.get_by_role("article", name="behind a lock")).to_be_visible()
        assert page.evaluate("localStorage.length") == 0
        context.close()
