// One job as a print: in the tray while it develops, on the sheet when it is done.

import { api, toJson } from "./api.js";
import { drawLatent } from "./latent.js";

const TERMINAL = new Set(["succeeded", "failed", "aborted"]);
const STAGES = {
  loading: "Loading the model",
  encoding: "Reading the prompt",
  denoising: "Developing",
  decoding: "Decoding",
  uploading: "Storing",
};
const FAULTS = {
  invalid_request: "The request does not fit the model.",
  invalid_image: "The input image cannot be used.",
  model_error: "The model failed on this request.",
  out_of_memory: "The device ran out of memory; a smaller size or fewer outputs may fit.",
  upload_failed: "The picture was made but could not be stored.",
  deadline_exceeded: "It was not done before its deadline.",
  worker_lost: "Its workers were lost, again and again.",
  internal: "Something broke on our side.",
};
const DEFAULTS = { num_outputs: 1, priority: 5, exact: false, supersede: false, preview_every: 0, output_prefix: "" };

export const isLive = (job) => !TERMINAL.has(job.status);
const seconds = (value) => (value < 10 ? `${Math.max(0.1, value).toFixed(1)} s` : value < 90 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);

export class Card {
  #triedAgain = false;

  constructor(job, on) {
    this.element = document.getElementById("card").content.firstElementChild.cloneNode(true);
    this.on = on;
    const find = (selector) => this.element.querySelector(selector);
    this.parts = Object.fromEntries(
      ["tray", "paper", "latent", "preview", "results", "note", "bar", "stage", "eta", "words", "plate", "fault", "warnings", "facts", "menu"].map(
        (name) => [name, find(`.${name}`)],
      ),
    );
    this.buttons = Object.fromEntries([...this.element.querySelectorAll("[data-do]")].map((button) => [button.dataset.do, button]));
    for (const [name, button] of Object.entries(this.buttons)) if (name !== "open") button.addEventListener("click", () => this.#act(name, button));
    const { width, height, prompt } = job.request;
    this.parts.tray.style.setProperty("--ratio", width / height);
    this.parts.words.textContent = prompt;
    this.parts.words.title = prompt;
    this.element.firstElementChild.setAttribute("aria-label", `Print: ${prompt.slice(0, 120)}`);
    drawLatent(this.parts.latent, `${job.request.seed}${prompt}`);
    this.update(job);
  }

  update(job) {
    const ended = this.job && isLive(this.job) && !isLive(job);
    this.job = job;
    this.element.dataset.status = job.status;
    this.element.dataset.stage = job.progress.stage;
    this.progress(job.progress);
    this.#plate();
    this.#fault();
    const hadFocus = document.activeElement === this.buttons.abort;
    this.buttons.abort.hidden = !isLive(job);
    this.buttons.replay.hidden = isLive(job);
    if (hadFocus && !isLive(job)) this.buttons.replay.focus();
    this.parts.warnings.hidden = job.warnings.length === 0;
    this.parts.warnings.replaceChildren(...job.warnings.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
    if (!this.parts.menu.hidden) this.#facts();
    if (job.status === "succeeded" && this.parts.results.hidden) this.#showResults(ended);
  }

  progress(progress) {
    const { job, parts } = this;
    const fraction = job.status === "succeeded" ? 1 : progress.fraction;
    parts.tray.style.setProperty("--f", fraction);
    parts.bar.style.setProperty("--f", fraction);
    parts.bar.style.setProperty("--steps", progress.num_steps || job.request.num_inference_steps);
    parts.bar.setAttribute("aria-valuenow", Math.round(fraction * 100));
    this.element.dataset.stage = progress.stage;
    const words = this.#words(progress);
    parts.stage.textContent = words;
    parts.bar.setAttribute("aria-valuetext", words);
    const eta = isLive(job) && progress.eta_s != null ? `${seconds(progress.eta_s)} left` : "";
    parts.eta.textContent = eta;
    parts.note.textContent = job.status === "queued" ? "unexposed" : "";
  }

  #words({ stage, step, num_steps: numSteps, queue_position: position }) {
    const { status, metrics, created_at: created, finished_at: finished } = this.job;
    if (status === "queued") return position == null ? "Waiting" : position === 0 ? "Next in line" : `Waiting behind ${position}`;
    if (status === "running") return stage === "denoising" && numSteps ? `Developing ${step} of ${numSteps}` : (STAGES[stage] ?? "Starting");
    if (status === "failed") return "Failed";
    if (status === "aborted") return "Aborted";
    const took = metrics.total_ms ?? new Date(finished) - new Date(created);
    return `Done in ${seconds(took / 1000)}`;
  }

  showPreview(data) {
    const source = [data.image, data.url, data.uri, data.data].find((value) => typeof value === "string" && /^(data:image\/|https?:)/.test(value));
    if (!source) return;
    this.parts.preview.src = source;
    this.parts.preview.hidden = false;
    this.parts.latent.hidden = true;
  }

  async #showResults(justNow) {
    const { outputs } = await api.outputs(this.job.id).catch(() => ({ outputs: [] }));
    if (outputs.length === 0) return;
    const { results, tray } = this.parts;
    tray.style.setProperty("--columns", Math.ceil(Math.sqrt(outputs.length)));
    results.replaceChildren(...outputs.map((output, index) => this.#result(output, index, outputs.length)));
    results.hidden = false;
    if (justNow) this.element.classList.add("just-now");
    this.element.dataset.lights = "on";
    this.buttons.open.href = outputs[0].download_url;
    this.buttons.open.hidden = outputs.length > 1;
  }

  #result(output, index, count) {
    const kind = output.content_type.split("/")[0];
    const media = document.createElement(kind === "image" ? "img" : kind);
    media.src = output.url;
    if (kind !== "image") media.controls = true;
    media.addEventListener("error", () => this.#again(), { once: true });
    if (kind !== "image") return media;
    media.alt = count > 1 ? `${this.job.request.prompt} (${index + 1} of ${count})` : this.job.request.prompt;
    const link = Object.assign(document.createElement("a"), { href: output.url, target: "_blank", rel: "noopener", title: `seed ${output.seed}` });
    link.append(media);
    return link;
  }

  /** A presigned address may have run out: ask for new ones, once. */
  #again() {
    if (this.#triedAgain) return;
    this.#triedAgain = true;
    this.#showResults(false);
  }

  #plate() {
    const { request } = this.job;
    const parts = [`${request.width} × ${request.height}`, `${request.num_inference_steps} steps`, `guidance ${request.guidance_scale}`];
    this.parts.plate.textContent = `${parts.join(" · ")} · seed ${request.seed}`;
  }

  #fault() {
    const { error, status } = this.job;
    this.parts.fault.hidden = status !== "failed" || !error;
    if (error) this.parts.fault.textContent = `${FAULTS[error.type] ?? "It failed."} ${error.message}`;
  }

  #facts() {
    const { job } = this;
    const facts = { job: job.id, model: job.request.model, attempt: job.attempt || null, worker: job.worker };
    if (job.request.negative_prompt) facts.without = job.request.negative_prompt;
    if (job.outputs.length > 1) facts.seeds = job.outputs.map((output) => output.seed).join(", ");
    const { metrics } = job;
    for (const name of ["queue", "denoise", "decode", "upload"]) {
      if (metrics[`${name}_ms`] != null) facts[name] = seconds(metrics[`${name}_ms`] / 1000);
    }
    if (metrics.batch_size_mean != null) facts["batch size"] = metrics.batch_size_mean.toFixed(1);
    const rows = Object.entries(facts).filter(([, value]) => value != null);
    this.parts.facts.replaceChildren(
      ...rows.flatMap(([name, value]) => [
        Object.assign(document.createElement("dt"), { textContent: name }),
        Object.assign(document.createElement("dd"), { textContent: value }),
      ]),
    );
  }

  /** Open or close the details; true: they are open now. */
  toggle(open = this.parts.menu.hidden) {
    this.parts.menu.hidden = !open;
    this.buttons.more.setAttribute("aria-expanded", open);
    this.buttons.more.textContent = open ? "Less" : "More";
    if (open) this.#facts();
  }

  async #act(name, button) {
    if (name === "more") return this.toggle();
    if (name === "curl" || name === "python") {
      const done = await copy(name === "curl" ? asCurl(this.job.request) : asPython(this.job.request));
      this.on.say(done ? `Copied as ${name}.` : "The browser did not allow copying.");
      const text = button.textContent;
      button.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => (button.textContent = text), 1600);
      return;
    }
    button.disabled = true;
    try {
      await this.on[name](this);
    } finally {
      button.disabled = false;
    }
  }
}

/** What the producer would send for this job: no nulls, no defaults. */
function essential(request) {
  const kept = Object.entries(request).filter(
    ([name, value]) => value !== null && DEFAULTS[name] !== value && !(typeof value === "object" && Object.keys(value).length === 0),
  );
  return Object.fromEntries(kept);
}

export function asCurl(request) {
  const body = toJson(essential(request)).replaceAll("'", "'\\''");
  const auth = sessionStorage.getItem("safelight-key") ? ` \\\n  -H "Authorization: Bearer $SAFELIGHT_API_KEY"` : "";
  return `curl ${new URL("v1/jobs", document.baseURI)} \\\n  -H 'Content-Type: application/json'${auth} \\\n  -d '${body}'`;
}

export function asPython(request) {
  // A JSON string is a Python string too; true, false and null are not.
  const words = { true: "True", false: "False", null: "None" };
  const body = toJson(essential(request), 4).replace(/"(?:[^"\\]|\\.)*"|\b(true|false|null)\b/g, (text, word) => (word ? words[word] : text));
  return `from tasks import Client\n\nclient = Client()\njob = client.submit(${body})\njob = client.wait(job.id, timeout_s=600)\nprint(job.status, client.result_urls(job.id))\n`;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS the clipboard API is away; the old way still works.
    const area = Object.assign(document.createElement("textarea"), { value: text, readOnly: true, className: "sr" });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
