"""The page's form in a real browser: it follows the model, sends what it shows, says what is wrong and where."""

from __future__ import annotations

import base64
import io

from PIL import Image
from playwright.sync_api import FilePayload, Page, expect

from tasks.job import Job
from tasks.request import LoraRequest
from tests.e2e.page_stack import Stack, picture

PNG: FilePayload = {"name": "hill.png", "mimeType": "image/png", "buffer": picture()}
URI = "data:image/png;base64," + base64.b64encode(picture()).decode()
PASTE = """([type, data]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
  const event = type === "paste" ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true })
    : new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
  document.querySelector(type === "paste" ? "#prompt" : "#image-drop").dispatchEvent(event);
}"""

DROP_LARGE = """() => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(16 * 2 ** 20)], "hill.png", { type: "image/png" }));
  document.querySelector("#image-drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer }));
}"""


def choose(page: Page, model: str) -> None:
    page.locator("#model").select_option(model)


def generate(page: Page, stack: Stack, prompt: str) -> Job:
    """Send the form; the job that it made, which is aborted at once."""
    page.locator("#prompt").fill(prompt)
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#queue, #sheet").get_by_text(prompt).first).to_be_visible()
    job = next(job for job in stack.client.store.list().jobs if job.request.prompt == prompt)
    stack.client.abort(job.id)
    return job


def options(page: Page, name: str) -> list[str]:
    found: list[str] = page.locator(f"#{name} option").evaluate_all("all => all.map(option => option.value)")
    return found


def test_the_fields_are_those_of_the_model(page: Page) -> None:
    sizes = "chips => chips.map(chip => chip.value)"
    expect(page.locator("input[name=size]").first).to_be_attached()
    assert page.locator("input[name=size]").evaluate_all(sizes) == ["96x96", "128x96", "96x128", "custom"]
    assert options(page, "output_format") == ["png", "jpeg", "webp"]
    assert (page.locator("#num_inference_steps").get_attribute("max"), page.locator("#steps-value").inner_text()) == (
        "100",
        "8",
    )
    page.get_by_text("More options").click()
    for hidden in ("num_frames", "duration_s", "noise_scheduler", "add-lora", "mask_image-file"):
        expect(page.locator(f"#{hidden}")).to_be_hidden()
    choose(page, "film")
    assert options(page, "output_format") == ["mp4", "webp", "gif"]
    expect(page.locator("#num_frames")).to_have_attribute("placeholder", "49")
    expect(page.locator("#fps")).to_be_visible()
    choose(page, "song")
    assert options(page, "output_format") == ["wav", "flac"]
    expect(page.locator("#duration_s")).to_have_attribute("placeholder", "10")
    for hidden in ("size-field", "image-field", "num_frames"):
        expect(page.locator(f"#{hidden}")).to_be_hidden()
    choose(page, "still")
    assert options(page, "noise_scheduler") == ["", "ddim", "euler"]
    expect(page.get_by_role("button", name="Add a LoRA")).to_be_visible()


def test_all_that_is_filled_in_arrives(page: Page, stack: Stack) -> None:
    choose(page, "still")
    page.get_by_text("More options").click()
    page.get_by_role("button", name="Add a LoRA").click()
    page.get_by_role("button", name="Add a LoRA").click()
    expect(page.get_by_role("button", name="Add a LoRA")).to_be_disabled()
    page.get_by_label("Scale", exact=True).nth(1).fill("-0.5")
    filled = {
        "negative_prompt": "people",
        "seed": str(2**63 - 2),
        "num_outputs": "2",
        "priority": "8",
        "deadline_s": "3600",
        "preview_every": "5",
        "group": "all of it",
        "output_prefix": "a/b",
        "webhook_url": "https://example.com/hook",
        "metadata": '{"user": 42}',
    }
    for name, value in filled.items():
        page.locator(f"#{name}").fill(value)
    page.locator("#noise_scheduler").select_option("euler")
    page.locator("#output_format").select_option("webp")
    page.locator("#num_inference_steps").fill("12")
    page.locator("#guidance_scale").fill("6.5")
    page.get_by_label("Landscape").check()
    for box in ("supersede", "exact"):
        page.locator(f"#{box}").check()
    request = generate(page, stack, "all of it").request
    assert (request.width, request.height) == (592, 440)
    expected = filled | {"metadata": {"user": 42}, "output_prefix": "a/b/", "noise_scheduler": "euler"}
    expected |= {"num_inference_steps": 12, "guidance_scale": 6.5, "output_format": "webp"}
    numbers = ("seed", "num_outputs", "priority", "deadline_s", "preview_every")
    expected |= {name: int(filled[name]) for name in numbers}
    assert {name: getattr(request, name) for name in expected} == expected
    assert request.loras == (LoraRequest(name="grain"), LoraRequest(name="noir", scale=-0.5))
    assert request.supersede and request.exact and request.model == "still"


def test_frames_and_seconds_go_to_the_models_that_take_them(page: Page, stack: Stack) -> None:
    choose(page, "film")
    page.locator("#num_frames").fill("17")
    request = generate(page, stack, "a short film").request
    assert (request.num_frames, request.fps, request.duration_s) == (17, 16, None)
    choose(page, "song")
    page.locator("#duration_s").fill("2.5")
    request = generate(page, stack, "a short song").request
    assert (request.num_frames, request.fps, request.duration_s) == (None, None, 2.5)


def test_an_error_is_shown_at_its_field(page: Page) -> None:
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#prompt-error")).to_have_text("Prompt: say what to make.")
    page.locator("#prompt").fill("a tree")
    expect(page.locator("#prompt-error")).to_be_hidden()
    page.get_by_label("Custom").check()
    page.get_by_label("Width", exact=True).fill("97")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#width-error")).to_contain_text("97 is not a multiple of 8")
    expect(page.get_by_label("Width", exact=True)).to_be_focused()
    page.get_by_label("Width", exact=True).fill("96")
    page.locator("#deadline_s").evaluate("field => field.value = -3")  # in a part of the form that is closed
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#deadline_s-error")).to_be_visible()
    expect(page.locator("#deadline_s")).to_be_focused()
    expect(page.locator("#deadline_s")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#deadline_s")).to_be_in_viewport()
    page.locator("#deadline_s").fill("")
    page.locator("#metadata").fill("{user: 42}")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#metadata-error")).to_contain_text("is not JSON")
    page.locator("#metadata").fill("")
    page.locator("#supersede").check()
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#supersede-error")).to_contain_text("needs a group")


def test_a_picture_is_chosen_dropped_pasted_and_kept(page: Page, stack: Stack) -> None:
    expect(page.locator("#submit")).to_be_enabled()
    page.get_by_text("Start from a picture").click()
    page.locator("#image-file").set_input_files(PNG)
    expect(page.locator("#image-preview")).to_have_js_property("naturalWidth", 96)
    expect(page.locator("#image-about")).to_contain_text("hill.png")
    page.locator("#strength").fill("0.45")
    page.reload()
    expect(page.locator("#image-preview")).to_have_js_property("naturalWidth", 96)
    expect(page.locator("#strength-value")).to_have_text("0.45")
    job = generate(page, stack, "from a picture")
    assert (job.request.image, job.request.strength) == (URI, 0.45)
    with page.expect_response("**/v1/jobs?brief=true*") as listed:
        pass
    assert job.id in listed.value.text() and URI[:80] not in listed.value.text()  # lists go without the bytes

    page.get_by_text("Start from a picture").click()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("#image-preview")).to_be_hidden()
    page.get_by_role("article", name="from a picture").get_by_role("button", name="Edit").click()
    expect(page.locator("#image-preview")).to_have_attribute("src", URI)
    for way in ("drop", "paste"):
        page.get_by_role("button", name="Remove").click()
        page.evaluate(PASTE, [way, URI.partition(",")[2]])
        expect(page.locator("#image-about")).to_contain_text("pasted.png")
    page.evaluate(DROP_LARGE)
    expect(page.locator("#image-error")).to_contain_text("16.0 MiB; at most 15.0 MiB fit into a request")
    page.locator("#image-file").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"no"})
    expect(page.locator("#image-error")).to_contain_text("a.txt is not a picture")


def test_a_mask_is_painted(page: Page, stack: Stack) -> None:
    choose(page, "still")
    page.get_by_text("Start from a picture").click()
    page.locator("#image-file").set_input_files(PNG)
    page.get_by_role("button", name="Paint a mask").click()
    canvas = page.get_by_role("dialog", name="Paint a mask").locator("canvas")
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Use this mask").click()
    expect(page.locator("#mask_image-about")).to_have_text("Painted mask")
    uri = generate(page, stack, "with a mask").request.mask_image
    assert uri is not None
    mask = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("L")
    assert mask.size == (96, 96)
    assert [mask.getpixel(at) for at in ((48, 48), (48, 5), (5, 90))] == [255, 0, 0]


def test_the_form_survives_a_reload_and_is_reset(page: Page) -> None:
    choose(page, "still")
    page.locator("#prompt").fill("a long thought\nin two lines")
    page.locator("#seed").fill("9223372036854775807")
    page.get_by_label("Portrait").check()
    page.get_by_text("More options").click()
    page.get_by_role("button", name="Add a LoRA").click()
    page.locator("#priority").fill("2")
    page.reload()
    expect(page.locator("#prompt")).to_have_value("a long thought\nin two lines")
    expect(page.locator("#model")).to_have_value("still")
    expect(page.locator("#seed")).to_have_value("9223372036854775807")
    expect(page.get_by_label("Portrait")).to_be_checked()
    expect(page.locator("#num-more")).to_have_text("2 set")
    page.get_by_role("button", name="Reset to defaults").click()
    expect(page.locator("#prompt")).to_have_value("a long thought\nin two lines")
    expect(page.locator("#seed")).to_have_value("")
    expect(page.locator("#num-more")).to_have_text("")
    expect(page.get_by_label("Square")).to_be_checked()
