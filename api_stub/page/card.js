// One job that runs or has ended: a sheet in the tray while it forms, the picture itself when it is done.

import { $, setText, whenNear } from "./dom.js";
import { isLive } from "./jobs.js";
import { drawLatent } from "./latent.js";
import { kindOf, links, player } from "./media.js";
import { warningsOf } from "./previews.js";
import { FAULTS, doing, plural, seconds, shorten } from "./words.js";

const PARTS = ["tray", "latent", "preview", "outputs", "bar", "stage", "eta", "words", "plate", "fault", "warned", "pick-one"];

export class Card {
  #triedAgain = false;
  #asked = false;

  /** `on` has abort, again, edit, details and pick; each takes the job. */
  constructor(job, on) {
    this.element = $("card").content.firstElementChild.cloneNode(true);
    this.parts = Object.fromEntries(PARTS.map((name) => [name, this.element.querySelector(`.${name}`)]));
    this.buttons = Object.fromEntries([...this.element.querySelectorAll("[data-do]")].map((button) => [button.dataset.do, button]));
    for (const name of ["abort", "again", "edit", "details"]) this.buttons[name].addEventListener("click", () => this.#act(on[name], name));
    this.buttons.open.addEventListener("click", () => on.details(this.job));
    this.checkbox.addEventListener("change", () => on.pick(this.job, this.checkbox.checked));
    const { width, height, prompt, num_outputs: count } = job.request;
    this.parts.tray.style.setProperty("--ratio", count > 1 ? 1 : width / height);
    setText(this.parts.words, prompt);
    this.parts.words.title = shorten(prompt, 600);
    this.element.firstElementChild.setAttribute("aria-label", shorten(prompt, 120));
    this.buttons.open.setAttribute("aria-label", `Open: ${shorten(prompt, 80)}`);
    drawLatent(this.parts.latent, `${job.request.seed}${prompt}`);
    this.update(job);
  }

  get checkbox() {
    return this.parts["pick-one"].querySelector("input");
  }

  update(job) {
    const ended = this.job && isLive(this.job) && !isLive(job);
    this.job = job;
    const { parts, buttons } = this;
    this.element.dataset.status = job.status;
    this.#progress();
    this.#preview();
    setText(parts.plate, plate(job.request));
    this.#fault();
    const warnings = warningsOf(job);
    parts.warned.hidden = warnings.length === 0;
    setText(parts.warned, `${plural(warnings.length, "warning")}: ${warnings[0] ?? ""}`);
    const hadFocus = document.activeElement === buttons.abort;
    buttons.abort.hidden = !isLive(job);
    buttons.abort.disabled = Boolean(job.abort_requested);
    buttons.again.hidden = isLive(job);
    if (hadFocus && !isLive(job)) buttons.again.focus();
    if (job.status === "succeeded" && !this.#asked) {
      this.#asked = true;
      this.element.classList.toggle("unseen", !ended);
      if (ended) this.#showOutputs(true);
      else whenNear(this.element, () => this.#showOutputs(false));
    }
  }

  #progress() {
    const { job, parts } = this;
    const fraction = job.status === "succeeded" ? 1 : job.progress.fraction;
    parts.tray.style.setProperty("--f", fraction);
    parts.bar.style.setProperty("--f", fraction);
    parts.bar.style.setProperty("--steps", Math.min(60, job.progress.num_steps || job.request.num_inference_steps));
    parts.bar.setAttribute("aria-valuenow", Math.round(fraction * 100));
    const words = doing(job);
    setText(parts.stage, words);
    parts.bar.setAttribute("aria-valuetext", words);
    setText(parts.eta, isLive(job) && !job.abort_requested && job.progress.eta_s != null ? `about ${seconds(job.progress.eta_s)} left` : "");
  }

  #preview() {
    const { preview, latent } = this.parts;
    const source = this.job.preview;
    if (!source || preview.src === source || !/^data:image\//.test(source)) return;
    preview.src = source;
    preview.hidden = false;
    latent.hidden = true;
  }

  #fault() {
    const { error, status } = this.job;
    this.parts.fault.hidden = status !== "failed" || !error;
    if (error) setText(this.parts.fault, `${FAULTS[error.type] ?? "It failed."} ${shorten(error.message, 400)}`);
  }

  async #showOutputs(justNow, anew = false) {
    const outputs = await links(this.job, { anew });
    if (outputs.length === 0) {
      setText(this.parts.stage, "Done; its files cannot be reached");
      return;
    }
    const { outputs: place, tray } = this.parts;
    tray.style.setProperty("--columns", Math.ceil(Math.sqrt(outputs.length)));
    if (outputs.length === 1 && outputs[0].width) tray.style.setProperty("--ratio", outputs[0].width / outputs[0].height);
    const prompt = shorten(this.job.request.prompt, 120);
    place.replaceChildren(
      ...outputs.map((output, k) => player(output, outputs.length > 1 ? `${prompt} (${k + 1} of ${outputs.length})` : prompt, () => this.#again())),
    );
    place.hidden = false;
    this.element.classList.remove("unseen");
    if (justNow) this.element.classList.add("just-now");
    this.element.dataset.shown = kindOf(outputs[0]);
    this.#offerSaves(outputs);
    this.parts["pick-one"].hidden = kindOf(outputs[0]) !== "image";
  }

  /** One link for each file: a page cannot save several at a click without asking. */
  #offerSaves(outputs) {
    const { save } = this.buttons;
    for (const more of this.element.querySelectorAll(".save-more")) more.remove();
    const links = outputs.slice(1).map((output, k) => {
      const link = save.cloneNode(true);
      link.classList.add("save-more");
      return name(link, output, `${k + 2}`, `Save output ${k + 2}`);
    });
    name(save, outputs[0], outputs.length > 1 ? "Save 1" : "Save", outputs.length > 1 ? "Save output 1" : null);
    save.after(...links);
  }

  /** An address may have run out: ask for new ones, once. */
  #again() {
    if (this.#triedAgain) return;
    this.#triedAgain = true;
    this.#showOutputs(false, true);
  }

  async #act(action, name) {
    const button = this.buttons[name];
    button.disabled = true;
    try {
      await action(this.job);
    } finally {
      button.disabled = name === "abort" && Boolean(this.job.abort_requested);
    }
  }
}

function name(link, { download_url: url }, text, label) {
  link.href = url;
  link.hidden = false;
  link.textContent = text;
  if (label) link.setAttribute("aria-label", label);
  return link;
}

export function plate(request) {
  const { width, height, num_inference_steps: steps, guidance_scale: guidance, seed, num_outputs: count } = request;
  return [`${width}×${height}`, `${steps} steps`, `guidance ${guidance}`, count > 1 ? `${count} outputs` : null, `seed ${seed}`].filter(Boolean).join(" · ");
}
