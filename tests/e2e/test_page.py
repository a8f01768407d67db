"""The page in a real browser, its jobs: from a prompt to a picture, many at once, looked at, compared, found again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from api_stub.testing import running_api
from engine.media import encode
from tasks.job import JobError, JobStatus
from tasks.store import Outcome
from tests.e2e.page_stack import Stack, picture, tab
from tests.unit.test_engine_media_moving import clip, tone

HOSTILE = """<img src=x onerror="window.broken=1"><script>window.broken=1</script> '"seed":"12"' é 🙂"""

#: For a real picture, on a machine that is busy with other tests.
RENDER_MS = 100_000


def only(page: Page, group: str) -> None:
    """The stack is shared: look at the jobs of one group."""
    page.locator("#filter-group").fill(group)


def generate(page: Page, prompt: str) -> None:
    page.get_by_label("Prompt", exact=True).fill(prompt)
    page.get_by_role("button", name="Generate").click()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group of the test's own: the stack is shared."""
    return str(request.node.name)[:100]


def test_an_empty_page_says_what_to_do_next(browser: Browser, stack: Stack) -> None:
    empty = stack.settings.model_copy(update={"key_prefix": "empty:"})
    with running_api(empty) as url, tab(browser, url) as page:
        expect(page.get_by_text("No jobs yet.")).to_be_visible()
        expect(page.locator(".skeleton")).to_have_count(0)
        page.get_by_role("button", name="Write a prompt").click()
        expect(page.get_by_label("Prompt", exact=True)).to_be_focused()
        page.get_by_role("link", name="System").click()
        expect(page.get_by_text("No worker is running. Start one")).to_be_visible()


@pytest.mark.timeout(360)
def test_from_a_prompt_to_a_picture_that_a_reload_keeps(page: Page, stack: Stack) -> None:
    stack.wait_for_worker()
    page.get_by_label("Seed", exact=True).fill("7")
    generate(page, "a red boat at night")
    boat = page.get_by_role("article", name="a red boat at night")
    image = boat.get_by_role("img", name="a red boat at night")
    expect(image).to_have_js_property("naturalWidth", 96, timeout=RENDER_MS)
    expect(boat.get_by_text(re.compile("^Done in"))).to_be_visible()

    page.get_by_label("Steps", exact=True).fill("40")  # previews come from a model's second picture on
    generate(page, "a tree on a hill")
    tree = page.get_by_role("article", name="a tree on a hill")
    expect(tree.get_by_role("img", name="a tree on a hill")).to_have_js_property("naturalWidth", 96, timeout=RENDER_MS)
    expect(tree.locator("img.preview")).not_to_have_js_property("naturalWidth", 0)

    boat.get_by_role("button", name="Details").click()
    details = page.get_by_role("dialog", name="a red boat at night")
    expect(details.get_by_role("img", name="a red boat at night")).to_have_js_property("naturalWidth", 96)
    for text in ("96 × 96", "darkroom-1", "Denoising"):
        expect(details.get_by_text(text).first).to_be_visible()
    page.reload()
    expect(details.get_by_role("img", name="a red boat at night")).to_have_js_property("naturalWidth", 96)
    with page.expect_download() as download:
        details.get_by_role("link", name="Save").click()
    assert re.fullmatch(r"safelight-\w+-0\.png", download.value.suggested_filename)

    details.get_by_role("button", name="Use as input").click()
    page.get_by_label("Steps", exact=True).fill("8")
    generate(page, "a red boat by day")
    made = page.get_by_role("article", name="a red boat by day").get_by_role("img", name="a red boat by day")
    expect(made).to_have_js_property("naturalWidth", 96, timeout=RENDER_MS)
    job = next(job for job in stack.client.store.list().jobs if job.request.prompt == "a red boat by day")
    assert job.request.image is not None and job.request.image.startswith("s3://")


def test_thirty_running_jobs_move_over_one_connection(page: Page, stack: Stack, group: str) -> None:
    page.emulate_media(reduced_motion="no-preference")
    streams: set[Request] = set()
    most = 0

    def opened(request: Request) -> None:
        nonlocal most
        if "/v1/events?" in request.url:
            streams.add(request)
            most = max(most, len(streams))

    page.on("request", opened)
    for ended in ("requestfinished", "requestfailed"):
        page.on(ended, lambda request: streams.discard(request))  # type: ignore[call-overload]
    running = [(job := stack.submit(f"crowd {number}", group=group), stack.claim(job)) for number in range(30)]
    only(page, group)
    expect(page.locator("article")).to_have_count(30)
    for job, attempt in running:
        stack.report(job, attempt, 9)
    expect(page.get_by_text("Step 9 of 30")).to_have_count(30)
    page.get_by_role("article", name="crowd 3", exact=True).get_by_role("button", name="Abort").click()
    expect(page.get_by_role("article", name="crowd 3", exact=True).get_by_text("Aborting")).to_be_visible()
    assert [stack.client.store.aborts_wanted([job.id]) for job, _ in running[3:4]] == [frozenset({running[3][0].id})]
    for job, attempt in running:
        stack.client.store.finish(job.id, attempt, Outcome(JobStatus.ABORTED))
    expect(page.get_by_text("Aborted", exact=True)).to_have_count(31)  # and the choice of that name in the filter
    assert most <= 2  # the next one opens while the one before is being closed


def test_the_waiting_list_tells_the_place_and_lets_go(page: Page, stack: Stack, group: str) -> None:
    for number in range(7):
        stack.submit(f"waits {number}", group=group, priority=9)
    only(page, group)
    queue = page.locator("#queue")
    expect(queue.get_by_text("Next in line")).to_be_visible()
    expect(queue.get_by_role("listitem")).to_have_count(5)
    page.get_by_role("button", name="Show all 7").click()
    expect(queue.get_by_text("6 jobs ahead")).to_be_visible()
    page.get_by_role("button", name="Abort: waits 0").click()
    expect(page.get_by_role("article", name="waits 0").get_by_text("Aborted")).to_be_visible()
    expect(queue.get_by_text("5 jobs ahead")).to_be_visible()
    page.get_by_role("button", name=f"Abort all live jobs of group {group}").click()
    expect(page.locator("article")).to_have_count(1)  # nothing yet: it asks first
    page.get_by_role("button", name="Click again to abort them all").click()
    expect(page.locator("article").get_by_text("Aborted", exact=True)).to_have_count(7)


def test_replay_new_seed_and_edit(page: Page, stack: Stack, group: str) -> None:
    first = stack.submit("a house", group=group, seed=2**63 - 1, negative_prompt="people", metadata={"a": [1]})
    stack.client.abort(first.id)
    only(page, group)
    page.get_by_role("article", name="a house").get_by_role("button", name="Details").click()
    details = page.get_by_role("dialog", name="a house")
    expect(details.get_by_text("9223372036854775807")).to_be_visible()
    details.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("the same request once more")).to_be_visible()
    details.get_by_role("button", name="New seed", exact=True).click()
    expect(page.get_by_text("with a new seed")).to_be_visible()
    details.get_by_role("button", name="Edit", exact=True).click()
    expect(details).to_be_hidden()
    expect(page.get_by_label("Seed", exact=True)).to_have_value("9223372036854775807")
    expect(page.get_by_label("Negative prompt")).to_have_value("people")
    expect(page.get_by_label("Prompt", exact=True)).to_be_focused()
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#queue li")).to_have_count(3)
    edited, fresh, replayed = stack.client.store.list(group=group, limit=3).jobs
    assert edited.request.model_copy(update={"preview_every": 0}) == replayed.request == first.request
    assert fresh.request.model_copy(update={"seed": first.request.seed}) == first.request != fresh.request
    stack.client.abort_group(group)


def test_pictures_are_compared_with_what_differs_marked(page: Page, stack: Stack, group: str) -> None:
    for seed in (1, 2, 3):
        stack.succeed(stack.submit("a pair", group=group, seed=seed), picture(), "image/png")
    only(page, group)
    boxes = page.get_by_label("Select for comparison")
    expect(boxes).to_have_count(3)
    for index in range(2):
        boxes.nth(index).check()
    expect(page.get_by_text("2 jobs selected")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    dialog = page.get_by_role("dialog", name="Compare")
    expect(dialog.get_by_role("img")).to_have_count(2)
    expect(dialog.get_by_role("row").filter(has_text="differs")).to_have_count(1)
    expect(dialog.get_by_role("row").filter(has_text="differs")).to_contain_text("Seed")
    dialog.get_by_label("Show only what differs").check()
    expect(dialog.get_by_role("rowheader", name="Steps")).to_be_hidden()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Details").first.click()
    page.get_by_role("button", name="Compare seeds").click()
    expect(page.get_by_role("dialog", name="Compare").get_by_role("img")).to_have_count(3)


def test_a_failure_tells_why_and_what_was_tried(page: Page, stack: Stack, group: str) -> None:
    job = stack.submit("a huge balloon", group=group)
    first = JobError(type="model_error", message="NaN at step 3", retryable=True, attempt=1)
    stack.client.store.retry(job.id, stack.claim(job), first, 3)
    last = JobError(type="out_of_memory", message="12 GB were needed", attempt=2)
    stack.client.store.finish(
        job.id, stack.claim(job), Outcome(JobStatus.FAILED, error=last, warnings=["prompt truncated"])
    )
    only(page, group)
    balloon = page.get_by_role("article", name="a huge balloon")
    expect(balloon.get_by_text("The device ran out of memory")).to_be_visible()
    expect(balloon.get_by_text("1 warning: prompt truncated")).to_be_visible()
    balloon.get_by_role("button", name="Details").click()
    details = page.get_by_role("dialog", name="a huge balloon")
    expect(details.get_by_text("Attempt 1, model_error: NaN at step 3")).to_be_visible()
    expect(details.get_by_text("Attempt 2, out_of_memory: 12 GB were needed")).to_be_visible()


def test_text_from_outside_is_never_markup(page: Page, stack: Stack) -> None:
    group = HOSTILE[:100]
    fields = {"group": group, "metadata": {HOSTILE: HOSTILE}, "negative_prompt": HOSTILE}
    failed, made = stack.submit(HOSTILE, **fields), stack.submit(HOSTILE, **fields)
    error = JobError(type="model_error", message=HOSTILE, attempt=1)
    stack.client.store.finish(
        failed.id, stack.claim(failed), Outcome(JobStatus.FAILED, error=error, warnings=[HOSTILE])
    )
    stack.succeed(made, picture(), "image/png")
    stack.submit(HOSTILE, **fields)
    hostile_worker = {"name": HOSTILE, "host": HOSTILE, "state": HOSTILE, "models": {HOSTILE: {"mode": HOSTILE}}}
    stack.client.store.beat("hostile", hostile_worker, 5)
    only(page, group)
    for words in page.locator(".words, .queue .title").all():
        expect(words).to_have_text(HOSTILE)
    expect(page.locator("article")).to_have_count(2)
    for index in range(2):
        page.locator("article").nth(index).get_by_role("button", name="Details").click()
        expect(page.get_by_role("dialog").locator(".whole-prompt")).to_have_text(HOSTILE)
        page.keyboard.press("Escape")
    page.get_by_label("Select for comparison").locator("visible=true").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("dialog", name="Compare").get_by_text(HOSTILE).first).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="System").click()
    expect(page.get_by_text("Queues")).to_be_visible()
    assert page.locator('img[src="x"], body script').count() == 0
    assert page.evaluate("window.broken") is None
    stack.client.abort_group(group)


def test_filters_and_older_jobs(page: Page, stack: Stack, group: str) -> None:
    jobs = [stack.submit(f"{'red' if number % 3 else 'blue'} car {number}", group=group) for number in range(30)]
    for job in jobs:
        stack.client.abort(job.id)
    only(page, group)
    expect(page.get_by_role("article", name="car 29")).to_be_visible()
    page.get_by_role("article", name="car 8").scroll_into_view_if_needed()
    expect(page.locator("article")).to_have_count(30)
    expect(page.get_by_role("button", name="Older jobs")).to_be_hidden()
    page.get_by_label("Search the prompts").fill("blue CAR")
    expect(page.locator("article")).to_have_count(10)
    page.get_by_label("Status").select_option("succeeded")
    expect(page.get_by_text("No job here matches.")).to_be_visible()
    page.get_by_role("button", name="Show all jobs").click()
    expect(page.get_by_label("Search the prompts")).to_have_value("")
    expect(page.locator("article").first).to_be_visible()


@pytest.mark.parametrize(("model", "kind"), [("film", "video"), ("song", "audio")])
def test_moving_pictures_and_sound_are_played(page: Page, stack: Stack, group: str, model: str, kind: str) -> None:
    job = stack.client.submit(model=model, prompt=f"a {kind}", group=group)
    media, file_format, content_type = (clip(), "mp4", "video/mp4") if kind == "video" else (tone(), "wav", "audio/wav")
    stack.succeed(job, encode(media, file_format), content_type)
    only(page, group)
    player = page.get_by_role("article", name=f"a {kind}").locator(kind)
    expect(player).not_to_have_js_property("readyState", 0)
    page.get_by_role("article", name=f"a {kind}").get_by_role("button", name="Details").click()
    expect(page.get_by_role("dialog").locator(kind)).not_to_have_js_property("readyState", 0)


def test_a_request_is_copied_as_curl_and_python(browser: Browser, stack: Stack, group: str) -> None:
    job = stack.submit('it\'s a "tree"', group=group, seed=2**63 - 1)
    stack.client.abort(job.id)
    homes = (str(stack.settings.s3_endpoint_url),)
    with tab(browser, stack.url, *homes, permissions=["clipboard-read", "clipboard-write"]) as page:
        only(page, group)
        page.get_by_role("button", name="Details").click()
        page.get_by_role("button", name="Python", exact=True).click()
        expect(page.get_by_text("Copied as Python.")).to_be_visible()
        code = page.evaluate("navigator.clipboard.readText()")
        body = re.search(r"submit\((\{.*?\n\})\)", code, re.DOTALL)
        assert body is not None
        assert eval(body.group(1))["seed"] == 2**63 - 1  # our own text, and no other's
        page.get_by_role("button", name="curl", exact=True).click()
        expect(page.get_by_text("Copied as curl.")).to_be_visible()
        assert r"it'\''s a \"tree\"" in page.evaluate("navigator.clipboard.readText()")
