"""The page for everybody and in bad weather: keyboard, phone, contrast, motion, names, keys, an API that is away."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect
from pydantic import SecretStr

from api_stub.testing import running_api
from tasks.job import JobStatus
from tasks.store import Outcome
from tests.e2e.page_stack import WORKER, Stack, picture, tab

LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmütze" * 3
#: WCAG's contrast of two colours of the page, by the names of their variables.
CONTRAST = """([ink, paper]) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  const light = (name) => {
    canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
    canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
    const linear = parts.map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05;
  };
  const [a, b] = [light(ink), light(paper)];
  return Math.max(a, b) / Math.min(a, b);
}"""


@pytest.fixture(scope="module")
def furnished(stack: Stack) -> str:
    """A group with a picture, a failure to be and one that waits."""
    stack.succeed(stack.submit(LONG, group="furnished"), picture(), "image/png")
    stack.succeed(stack.submit("a small one", group="furnished", seed=3), picture(), "image/png")
    stack.submit(LONG + " waits", group="furnished")
    return "furnished"


def only(page: Page, group: str) -> None:
    page.locator("#filter-group").fill(group)
    expect(page.locator("article")).to_have_count(2)


def test_the_keyboard_is_enough(page: Page, furnished: str) -> None:
    only(page, furnished)
    page.locator("#search").focus()
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    for _ in range(20):
        page.keyboard.press("Tab")
        if "Open: a small one" in page.evaluate(focused):
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="a small one")
    expect(dialog).to_be_visible()
    for _ in range(25):  # the focus goes round within the dialog, or to the browser's own bar
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert "Open: a small one" in page.evaluate(focused)


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_scrolls_one_way_only(browser: Browser, stack: Stack, furnished: str, width: int) -> None:
    def fits() -> None:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.querySelectorAll('dialog[open]')].every(d => d.scrollWidth <= innerWidth)")

    size = {"width": width, "height": 800}
    with tab(browser, stack.url, str(stack.settings.s3_endpoint_url), viewport=size, has_touch=True) as page:
        only(page, furnished)
        for part in ("Start from a picture", "More options"):
            page.get_by_text(part).click()
        fits()
        page.get_by_role("button", name="Details").first.click()
        expect(page.get_by_role("dialog").get_by_role("img")).to_be_visible()
        fits()
        page.keyboard.press("Escape")
        for box in page.get_by_label("Select for comparison").all():
            box.check()
        page.get_by_role("button", name="Compare", exact=True).click()
        expect(page.get_by_role("dialog", name="Compare")).to_be_visible()
        fits()
        page.keyboard.press("Escape")
        page.get_by_role("link", name="System").click()
        expect(page.get_by_role("heading", name="Queues")).to_be_visible()
        fits()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_text_can_be_read_and_nothing_moves_if_that_is_asked(browser: Browser, stack: Stack, scheme: str) -> None:
    homes = (str(stack.settings.s3_endpoint_url),)
    with tab(browser, stack.url, *homes, color_scheme=scheme, reduced_motion="reduce") as page:
        pairs = [(ink, paper) for ink in ("--ink", "--muted", "--accent") for paper in ("--bg", "--surface", "--sunk")]
        ratios = {pair: page.evaluate(CONTRAST, list(pair)) for pair in [*pairs, ("--on-accent", "--accent-deep")]}
        assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}
        assert page.evaluate("document.getAnimations().length") == 0


def test_every_control_has_a_name(page: Page, furnished: str) -> None:
    only(page, furnished)
    page.get_by_role("button", name="Details").first.click()
    nameless = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button, a')]"
        ".filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).map((e) => e.outerHTML)"
    )
    assert nameless == []


def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser, stack: Stack) -> None:
    locked = stack.settings.model_copy(update={"api_keys": SecretStr("alpha"), "key_prefix": "locked:"})
    with running_api(locked) as url, tab(browser, url) as page:
        page.get_by_label("Key", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_contain_text("not known")
        page.get_by_label("Key", exact=True).fill("alpha")
        page.keyboard.press("Enter")
        expect(page.get_by_text("No jobs yet.")).to_be_visible()
        page.locator("#prompt").fill("behind a lock")
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#queue").get_by_text("behind a lock")).to_be_visible()
        page.get_by_role("button", name="Abort: behind a lock").click()
        expect(page.get_by_role("article", name="behind a lock").get_by_text("Aborted")).to_be_visible()
        page.reload()
        expect(page.get_by_role("article", name="behind a lock")).to_be_visible()
        assert page.evaluate("localStorage.length") == 0


def test_an_api_that_is_away_is_told_and_found_again(page: Page, stack: Stack) -> None:
    expect(page.locator("#submit")).to_be_enabled()
    page.context.set_offline(True)
    expect(page.get_by_text("The API does not answer. Trying again…")).to_be_visible()
    page.locator("#prompt").fill("while it is away")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#form-error")).to_have_text("The API cannot be reached.")
    job = stack.submit("made meanwhile", group="away")
    page.context.set_offline(False)
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#queue").get_by_text("made meanwhile")).to_be_visible()
    expect(page.locator("#prompt")).to_have_value("while it is away")
    stack.client.abort(job.id)
    expect(page.get_by_role("article", name="made meanwhile").get_by_text("Aborted")).to_be_visible()


def test_a_wish_to_end_is_seen_by_who_comes_later(page: Page, stack: Stack) -> None:
    job = stack.submit("unwanted")
    attempt = stack.claim(job)
    stack.client.abort(job.id)
    page.reload()
    card = page.get_by_role("article", name="unwanted")
    expect(card.get_by_text("Aborting")).to_be_visible()
    expect(card.get_by_role("button", name="Abort")).to_be_disabled()
    stack.client.store.finish(job.id, attempt, Outcome(JobStatus.ABORTED))
    expect(card.get_by_text("Aborted")).to_be_visible()


def test_a_wish_to_end_that_was_not_heard_can_be_told_again(page: Page, stack: Stack) -> None:
    job = stack.submit("unheard", group="unheard")
    attempt = stack.claim(job)
    button = page.get_by_role("article", name="unheard").get_by_role("button", name="Abort")
    expect(button).to_be_visible()
    page.context.set_offline(True)
    button.click()
    expect(page.get_by_text("The API does not answer. Trying again…")).to_be_visible()
    expect(button).to_be_enabled()
    page.context.set_offline(False)
    button.click()
    expect(page.get_by_role("article", name="unheard").get_by_text("Aborting")).to_be_visible()
    stack.client.store.finish(job.id, attempt, Outcome(JobStatus.ABORTED))


def test_only_previews_that_somebody_asked_for_are_missed(page: Page, stack: Stack) -> None:
    missing = ["no previews: a model has them for pictures, from its first finished one on"]
    for prompt, every in (("by itself", 2), ("on request", 5)):
        job = stack.submit(prompt, group="previews", num_inference_steps=16, preview_every=every)
        stack.succeed(job, picture(), "image/png", warnings=missing)
    only(page, "previews")
    expect(page.get_by_role("article", name="on request").get_by_text("1 warning: no previews")).to_be_visible()
    expect(page.get_by_role("article", name="by itself").locator(".warned")).to_be_hidden()


def test_workers_and_queues(page: Page, stack: Stack) -> None:
    stack.wait_for_worker()
    job = stack.submit("depth of the queue")
    page.get_by_role("link", name="System").click()
    worker = page.locator(".worker").filter(has_text=WORKER)
    expect(worker.get_by_text("of 8 rows")).to_be_visible()
    expect(worker.get_by_text("cpu, float32")).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="still"))
    expect(row.get_by_role("cell").last).not_to_have_text("–")  # the oldest waits
    stack.client.abort(job.id)


def test_a_job_that_waits_says_why(page: Page, stack: Stack) -> None:
    stack.wait_for_worker()
    job = stack.submit("waits for a reason", group="explain")
    page.locator("#filter-group").fill("explain")
    page.get_by_role("button", name="waits for a reason", exact=True).click()
    dialog = page.get_by_role("dialog", name="waits for a reason")
    expect(dialog.get_by_role("heading", name="Why does it wait?")).to_be_visible()
    expect(dialog.get_by_text("none has model still")).to_be_visible()
    stack.claim(job)
    expect(dialog.get_by_role("heading", name="What is it waiting for?")).to_be_visible()
    expect(dialog.get_by_text("Worker played:1:abc has it")).to_be_visible()
    stack.client.abort(job.id)


def test_each_of_several_outputs_can_be_saved_from_its_card(page: Page, stack: Stack) -> None:
    job = stack.submit("four of a kind", num_outputs=4)
    stack.succeed(job, picture(), "image/png")
    card = page.get_by_role("article", name="four of a kind")
    for number in range(1, 5):
        link = card.get_by_role("link", name=f"Save output {number}", exact=True)
        expect(link).to_be_visible()
        assert f"{job.id}-{number - 1}.png" in (link.get_attribute("href") or "")


def test_the_last_choices_of_the_form_are_in_sight_on_a_small_screen(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(page.get_by_text("More options")).to_be_in_viewport(ratio=1)
    summary, send = page.locator("#more-options summary").bounding_box(), page.locator(".send").bounding_box()
    assert summary is not None and send is not None
    assert summary["y"] + summary["height"] <= send["y"] + 1
