// The form, built from what /v1/models says: ranges, defaults and formats are never repeated here.

const FORMATS = { image: ["png", "jpeg", "webp"], video: ["mp4", "webp", "gif"], audio: ["wav", "flac"] };
const SHAPES = [["Square", 1], ["Portrait", 3 / 4], ["Landscape", 4 / 3], ["Tall", 9 / 16], ["Wide", 16 / 9]];
const $ = (id) => document.getElementById(id);

export class RequestForm {
  #models = new Map();

  constructor(form, onSubmit) {
    this.form = form;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      onSubmit(this.read());
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    form.addEventListener("input", (event) => this.clearError(event.target.name));
    $("model").addEventListener("change", () => this.#useModel());
    $("num_inference_steps").addEventListener("input", () => this.#echo());
    $("guidance_scale").addEventListener("input", () => this.#echo());
    $("sizes").addEventListener("change", () => this.#pickSize());
    if (/Mac|iPhone|iPad/.test(navigator.platform)) form.querySelector("kbd").textContent = "⌘";
  }

  setModels({ models, default: first }) {
    this.#models = new Map(models.map((model) => [model.name, model]));
    const chosen = $("model").value;
    $("model").replaceChildren(...models.map((model) => new Option(model.name, model.name)));
    $("model").value = this.#models.has(chosen) ? chosen : first;
    $("model-field").hidden = models.length < 2;
    if (chosen !== $("model").value) this.#useModel();
  }

  get model() {
    return this.#models.get($("model").value);
  }

  #useModel() {
    const { defaults, limits, modality } = this.model;
    const steps = $("num_inference_steps");
    steps.max = limits.max_steps;
    steps.value = defaults.num_inference_steps;
    const guidance = $("guidance_scale");
    guidance.max = Math.max(15, defaults.guidance_scale);
    guidance.value = defaults.guidance_scale;
    $("num_outputs").max = limits.max_outputs;
    for (const side of ["width", "height"]) {
      Object.assign($(side), { min: limits.min_size, max: limits.max_size, step: limits.size_multiple, value: defaults[side] });
    }
    $("output_format").replaceChildren(...FORMATS[modality].map((name) => new Option(name, name)));
    if (defaults.output_format) $("output_format").value = defaults.output_format;
    $("sizes").replaceChildren(...this.#sizes().map(sizeChip));
    this.#pickSize();
    this.#echo();
  }

  /** The sizes that the model was trained for, or else shapes of about its default's area; and "custom". */
  #sizes() {
    const { defaults, limits, sizes: trained } = this.model;
    if (trained.length) return [...trained.map(([width, height]) => ({ name: shapeName(width / height), width, height })), { name: "Custom" }];
    const area = defaults.width * defaults.height;
    const fit = (size) => {
      const [low, high] = [limits.min_size, limits.max_size].map((bound) => bound / limits.size_multiple);
      return Math.min(Math.floor(high), Math.max(Math.ceil(low), Math.round(size / limits.size_multiple))) * limits.size_multiple;
    };
    const sizes = SHAPES.map(([name, ratio]) => ({ name, width: fit(Math.sqrt(area * ratio)), height: fit(Math.sqrt(area / ratio)) }));
    if (defaults.width !== defaults.height) sizes.unshift({ name: "Default", width: defaults.width, height: defaults.height });
    const seen = new Set();
    const distinct = sizes.filter(({ width, height }) => !seen.has(`${width}x${height}`) && seen.add(`${width}x${height}`));
    return [...distinct, { name: "Custom" }];
  }

  #pickSize() {
    const value = this.form.elements.size?.value || "custom";
    $("custom-size").hidden = value !== "custom";
    if (value !== "custom") [$("width").value, $("height").value] = value.split("x");
  }

  #echo() {
    $("steps-value").value = $("num_inference_steps").value;
    $("guidance-value").value = Number($("guidance_scale").value).toFixed(1);
  }

  read() {
    const fields = this.form.elements;
    const number = (name) => (fields[name].value.trim() === "" ? undefined : Number(fields[name].value));
    const request = {
      model: $("model").value || undefined,
      prompt: fields.prompt.value,
      negative_prompt: fields.negative_prompt.value.trim() || undefined,
      width: number("width"),
      height: number("height"),
      num_inference_steps: number("num_inference_steps"),
      guidance_scale: number("guidance_scale"),
      seed: fields.seed.value.trim() || undefined,
      num_outputs: number("num_outputs"),
      output_format: fields.output_format.value || undefined,
    };
    request.preview_every = Math.max(1, Math.ceil(request.num_inference_steps / 8));
    return Object.fromEntries(Object.entries(request).filter(([, value]) => value !== undefined));
  }

  /** Take over the settings of a job. */
  fill(request) {
    if (this.#models.has(request.model)) {
      $("model").value = request.model;
      this.#useModel();
    }
    for (const name of ["prompt", "negative_prompt", "num_inference_steps", "guidance_scale", "seed", "num_outputs", "output_format"]) {
      this.form.elements[name].value = request[name] ?? "";
    }
    const size = `${request.width}x${request.height}`;
    const chips = [...this.form.querySelectorAll("input[name=size]")];
    (chips.find((chip) => chip.value === size) ?? chips.at(-1)).checked = true;
    this.#pickSize();
    [$("width").value, $("height").value] = [request.width, request.height];
    this.#echo();
    this.clearErrors();
    $("prompt").focus();
  }

  showProblem(problem) {
    this.clearErrors();
    let first = null;
    for (const [field, message] of problem.fields) {
      const place = $(`${field}-error`);
      if (!place) continue;
      if (field === "width" || field === "height") $("custom-size").hidden = false;
      place.textContent = `${label(field)} ${message}`;
      place.hidden = false;
      this.form.elements[field].setAttribute("aria-invalid", "true");
      first ??= this.form.elements[field];
    }
    if (first) {
      first.focus();
      return;
    }
    $("form-error").textContent = problem.retryAfter ? `${problem.message} Try again in ${problem.retryAfter} s.` : problem.message;
    $("form-error").hidden = false;
  }

  clearErrors() {
    for (const place of this.form.querySelectorAll(".error")) place.hidden = true;
    for (const input of this.form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  }

  clearError(name) {
    const place = $(`${name}-error`);
    if (!place) return;
    place.hidden = true;
    this.form.elements[name].removeAttribute("aria-invalid");
    $("form-error").hidden = true;
  }

  set busy(value) {
    $("submit").disabled = value;
    $("submit").textContent = value ? "Sending…" : "Expose";
  }
}

const label = (field) => `${field.replaceAll("_", " ").replace(/^num inference /, "").replace(/^./, (c) => c.toUpperCase())}:`;

function shapeName(ratio) {
  return SHAPES.reduce((best, shape) => (Math.abs(Math.log(shape[1] / ratio)) < Math.abs(Math.log(best[1] / ratio)) ? shape : best))[0];
}

function sizeChip({ name, width, height }, index) {
  const chip = document.createElement("label");
  chip.className = "chip";
  const input = Object.assign(document.createElement("input"), { type: "radio", name: "size", checked: index === 0 });
  input.value = width ? `${width}x${height}` : "custom";
  const shape = document.createElement("span");
  shape.className = "shape";
  if (width) {
    const scale = 15 / Math.max(width, height);
    shape.style.setProperty("--w", `${Math.round(width * scale)}px`);
    shape.style.setProperty("--h", `${Math.round(height * scale)}px`);
  } else shape.classList.add("free");
  const text = document.createElement("span");
  text.textContent = name;
  const size = document.createElement("small");
  size.textContent = width ? `${width}×${height}` : "W×H";
  chip.append(input, shape, text, size);
  return chip;
}
