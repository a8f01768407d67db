// The form. Ranges, defaults, sizes, formats and which fields there are come from what /v1/models says of the model.

import { draft } from "./draft.js";
import { $ } from "./dom.js";
import { FormErrors } from "./form_errors.js";
import { ImageInput } from "./image_input.js";
import { toJson } from "./json.js";
import { LoraRows } from "./lora_rows.js";
import { MaskBrush } from "./mask_brush.js";
import { usualPreviews } from "./previews.js";
import { sizeChip, sizesOf } from "./sizes.js";

const NUMBERS = ["width", "height", "num_inference_steps", "guidance_scale", "num_outputs", "num_frames", "fps", "duration_s", "preview_every", "priority", "deadline_s"];
const TEXTS = ["negative_prompt", "seed", "output_format", "noise_scheduler", "group", "webhook_url", "output_prefix"];
const SWITCHES = ["supersede", "exact"];
const FIELDS = ["prompt", ...NUMBERS, ...TEXTS, ...SWITCHES, "strength", "metadata"];
/** Fields under "More options", and what they are when nobody has touched them. */
const MORE = { noise_scheduler: "", preview_every: "", priority: "5", deadline_s: "", group: "", webhook_url: "", output_prefix: "", metadata: "" };

export class RequestForm {
  #models = new Map();
  #maxBytes = Infinity;

  constructor(form, onSubmit) {
    this.form = form;
    this.errors = new FormErrors(form);
    const changed = () => this.#changed();
    const refuse = (field, message) => this.errors.at(field, message).focus();
    this.image = new ImageInput("image", changed, refuse);
    this.mask = new ImageInput("mask_image", changed, refuse);
    this.loras = new LoraRows(changed);
    this.brush = new MaskBrush((uri) => {
      this.mask.set(uri, "", "Painted mask");
      changed();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const request = this.read();
      if (request) onSubmit(request);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    form.addEventListener("input", changed);
    $("model").addEventListener("change", () => this.#useModel());
    $("sizes").addEventListener("change", () => this.#pickSize());
    $("new-seed").addEventListener("click", () => this.#set("seed", ""));
    $("reset").addEventListener("click", () => this.reset());
    $("paint-mask").addEventListener("click", () => this.brush.open(this.image.uri));
    document.addEventListener("paste", (event) => this.model?.image_input && this.image.takeFrom(event.clipboardData) && event.preventDefault());
    if (/Mac|iPhone|iPad/.test(navigator.platform)) form.querySelector("kbd").textContent = "⌘";
  }

  get model() {
    return this.#models.get($("model").value);
  }

  setModels({ models, default: first, max_body_bytes: maxBytes }) {
    const isFirst = this.#models.size === 0;
    const chosen = $("model").value;
    this.#models = new Map(models.map((model) => [model.name, model]));
    this.#maxBytes = this.image.maxBytes = this.mask.maxBytes = maxBytes ?? Infinity;
    $("model").replaceChildren(...models.map((model) => new Option(model.modality === "image" ? model.name : `${model.name} (${model.modality})`, model.name)));
    $("model").value = this.#models.has(chosen) ? chosen : first;
    $("model-field").hidden = models.length < 2;
    if (isFirst) this.#restore();
    else if (chosen !== $("model").value) this.#useModel();
  }

  #restore() {
    const kept = draft.load();
    if (kept && this.#models.has(kept.model)) $("model").value = kept.model;
    this.#useModel();
    if (!kept || kept.model !== $("model").value) return;
    for (const name of FIELDS) if (name in kept) this.#set(name, kept[name]);
    this.#matchSize();
    this.loras.value = kept.loras ?? [];
    for (const [input, state] of [[this.image, kept.image], [this.mask, kept.mask_image]]) if (state?.uri) input.set(state.uri, state.shown, state.about);
    this.#changed();
  }

  #useModel() {
    const { defaults, limits, modality, output_formats: formats, noise_schedulers: schedulers, image_input: takesImage } = this.model;
    const bound = (name, more) => Object.assign($(name), more);
    bound("num_inference_steps", { max: limits.max_steps, value: defaults.num_inference_steps });
    bound("guidance_scale", { max: Math.max(15, defaults.guidance_scale), value: defaults.guidance_scale });
    bound("num_outputs", { max: limits.max_outputs });
    for (const side of ["width", "height"]) bound(side, { min: limits.min_size, max: limits.max_size, step: limits.size_multiple, value: defaults[side] });
    bound("num_frames", { max: limits.max_frames, placeholder: defaults.num_frames ?? "model's own" });
    bound("fps", { placeholder: defaults.fps ?? "model's own" });
    bound("duration_s", { max: limits.max_duration_s, placeholder: defaults.duration_s ?? "model's own" });
    bound("negative_prompt", { placeholder: defaults.negative_prompt ?? "What should not be in it" });
    $("output_format").replaceChildren(...formats.map((name) => new Option(name, name)));
    if (defaults.output_format) $("output_format").value = defaults.output_format;
    $("noise_scheduler").replaceChildren(new Option("the model's own", ""), ...schedulers.map((name) => new Option(name, name)));
    $("sizes").replaceChildren(...sizesOf(this.model).map(sizeChip));
    this.loras.setModel(this.model);
    const shown = { "size-field": modality !== "audio", "num_frames-field": modality === "video", "fps-field": modality === "video", "duration_s-field": modality === "audio" || defaults.duration_s != null, "image-field": takesImage, "mask-field": this.model.mask_input, "noise_scheduler-field": schedulers.length > 0, "preview_every-field": modality === "image" };
    for (const [id, isShown] of Object.entries(shown)) $(id).hidden = !isShown;
    $("motion-fields").hidden = modality === "image";
    $("strength").value = defaults.strength;
    this.#matchSize();
    this.errors.clearAll();
    this.#changed();
  }

  #pickSize() {
    const value = this.form.elements.size?.value || "custom";
    $("custom-size").hidden = value !== "custom";
    if (value !== "custom") [$("width").value, $("height").value] = value.split("x");
  }

  /** Check the chip of the width and height that are set. */
  #matchSize() {
    const size = `${$("width").value}x${$("height").value}`;
    const chips = [...this.form.querySelectorAll("input[name=size]")];
    (chips.find((chip) => chip.value === size) ?? chips.at(-1)).checked = true;
    $("custom-size").hidden = this.form.elements.size.value !== "custom";
  }

  #get(name) {
    const control = $(name);
    return control.type === "checkbox" ? control.checked : control.value;
  }

  #set(name, value) {
    const control = $(name);
    if (control.type === "checkbox") control.checked = value === true;
    else control.value = value ?? "";
  }

  #changed() {
    $("steps-value").value = $("num_inference_steps").value;
    $("guidance-value").value = Number($("guidance_scale").value).toFixed(1);
    $("strength-value").value = Number($("strength").value).toFixed(2);
    const hasImage = this.image.uri !== "" && !$("image-field").hidden;
    $("with-image").hidden = !hasImage;
    $("image-set").textContent = hasImage ? (this.mask.uri ? "picture and mask set" : "set") : "";
    $("paint-mask").hidden = !this.image.uri.startsWith("data:");
    const numSet = Object.entries(MORE).filter(([name, usual]) => this.#get(name) !== usual).length + SWITCHES.filter((name) => $(name).checked).length + this.loras.value.length;
    $("num-more").textContent = numSet ? `${numSet} set` : "";
    const values = Object.fromEntries(FIELDS.map((name) => [name, this.#get(name)]));
    draft.save({ model: $("model").value, ...values, loras: this.loras.value, image: this.image.state, mask_image: this.mask.state });
  }

  /** The request that the form says, without what is empty; null, with the errors shown, if it says none. */
  read() {
    this.errors.clearAll();
    const isShown = (name) => !$(name).closest(".field[hidden], #motion-fields[hidden]");
    const request = { model: $("model").value || undefined, prompt: $("prompt").value };
    for (const name of [...NUMBERS, ...TEXTS]) {
      const text = $(name).value.trim();
      if (text !== "" && isShown(name)) request[name] = NUMBERS.includes(name) ? Number(text) : text;
    }
    for (const name of SWITCHES) if ($(name).checked) request[name] = true;
    if (request.priority === 5) delete request.priority;
    if (this.model?.modality === "image") request.preview_every ??= usualPreviews(request);
    if (this.loras.value.length) request.loras = this.loras.value;
    this.#addImages(request);
    return this.#addMetadata(request) && this.#fits(request) ? request : null;
  }

  #addImages(request) {
    if (!this.image.uri || !this.model?.image_input) return;
    request.image = this.image.uri;
    request.strength = Number($("strength").value);
    if (this.mask.uri && this.model.mask_input) request.mask_image = this.mask.uri;
  }

  #addMetadata(request) {
    const text = $("metadata").value.trim();
    if (!text) return true;
    try {
      request.metadata = JSON.parse(text);
    } catch (error) {
      this.errors.at("metadata", `is not JSON: ${error.message}`).focus();
      return false;
    }
    return true;
  }

  #fits(request) {
    if (!request.prompt.trim()) {
      this.errors.at("prompt", "say what to make.").focus();
      return false;
    }
    if (toJson(request).length <= this.#maxBytes) return true;
    this.errors.at("image", "the pictures are too large for one request; put them into the bucket and give an s3:// address.").focus();
    return false;
  }

  /** Take over the settings of a job; `keep` overwrites some. */
  fill(request) {
    if (this.#models.has(request.model)) $("model").value = request.model;
    this.#useModel();
    for (const name of FIELDS) if (name !== "metadata" && !(name === "strength" && request.strength == null)) this.#set(name, request[name]);
    if (request.preview_every === usualPreviews(request)) this.#set("preview_every", "");
    $("metadata").value = Object.keys(request.metadata ?? {}).length ? toJson(request.metadata, 2) : "";
    this.loras.value = request.loras ?? [];
    for (const [input, uri] of [[this.image, request.image], [this.mask, request.mask_image]]) {
      if (uri) input.set(uri);
      else input.clear();
    }
    this.#matchSize();
    this.#changed();
    $("prompt").focus();
  }

  reset() {
    for (const name of FIELDS) if (name !== "prompt") this.#set(name, MORE[name] ?? "");
    $("num_outputs").value = 1;
    this.loras.value = [];
    this.image.clear();
    this.mask.clear();
    this.#useModel();
    $("prompt").focus();
  }

  set busy(value) {
    $("submit").disabled = value;
    $("submit").textContent = value ? "Sending…" : "Generate";
  }
}
