// Everything about one job: its result at full size, what was asked, how it went, and what can be done with it.

import { explanation, sideOf } from "./detail_side.js";
import { $, el, setText } from "./dom.js";
import { isLive } from "./jobs.js";
import { kindOf, links, player } from "./media.js";
import { bytes, doing, seconds, shorten } from "./words.js";

export class Detail {
  #id = null;
  #chosen = 0;
  #drawn = "";

  /** `on` is what the buttons call: see `detail_side.js`; and explain, useAsInput, closed. */
  constructor(on) {
    this.on = on;
    this.dialog = $("detail-dialog");
    this.dialog.addEventListener("close", () => {
      this.#id = null;
      this.dialog.replaceChildren();
      on.closed();
    });
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  get id() {
    return this.#id;
  }

  open(job) {
    this.#id = job.id;
    this.#chosen = 0;
    this.#drawn = "";
    this.#build(job);
    this.update(job);
    if (!this.dialog.open) this.dialog.showModal();
  }

  close() {
    if (this.dialog.open) this.dialog.close();
  }

  #build(job) {
    this.title = el("h2", { id: "detail-title" }, shorten(job.request.prompt, 300));
    this.state = el("p", { class: "detail-state" });
    this.bar = el("div", { class: "bar", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, el("span"));
    this.stage = el("div", { class: "stage-area" });
    this.side = el("div", { class: "detail-side" });
    this.why = el("div", { class: "why", "aria-live": "polite" });
    this.asked = "";
    const close = el("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => this.close() }, "×");
    this.dialog.replaceChildren(
      el("div", { class: "head" }, this.title, close),
      el("div", { class: "detail" }, el("div", { class: "detail-main" }, this.stage, this.bar, this.state, this.why), this.side),
    );
  }

  /** Redraws only what changed: the side has buttons that may hold the focus. */
  update(job) {
    if (job.id !== this.#id) return;
    this.dialog.dataset.status = job.status;
    const eta = isLive(job) && !job.abort_requested && job.progress.eta_s != null ? `, about ${seconds(job.progress.eta_s)} left` : "";
    setText(this.state, `${doing(job)}${eta}`);
    this.bar.hidden = !isLive(job);
    this.bar.style.setProperty("--f", job.progress.fraction);
    this.bar.style.setProperty("--steps", Math.min(60, job.progress.num_steps || 1));
    this.bar.setAttribute("aria-valuenow", Math.round(job.progress.fraction * 100));
    if (isLive(job)) this.#showPreview(job);
    this.#explain(job);
    const shape = JSON.stringify([job.status, job.attempt, job.errors.length, job.worker, job.abort_requested]);
    if (shape === this.#drawn) return;
    this.#drawn = shape;
    this.side.replaceChildren(...sideOf(job, this.on));
    if (job.status === "succeeded") this.#showOutputs(job);
    else if (!isLive(job)) this.stage.replaceChildren(el("p", { class: "nothing" }, job.status === "aborted" ? "Aborted: there is no result." : "There is no result."));
  }

  #showPreview(job) {
    const image = this.stage.querySelector("img");
    if (!job.preview) {
      if (!this.stage.hasChildNodes()) this.stage.append(el("p", { class: "nothing" }, job.status === "queued" ? "It waits for a worker." : "The first preview will show here."));
      return;
    }
    if (image) image.src = job.preview;
    else this.stage.replaceChildren(el("img", { src: job.preview, alt: "Preview" }));
  }

  async #showOutputs(job, anew = false) {
    const outputs = await links(job, { anew });
    if (this.#id !== job.id) return;
    if (outputs.length === 0) return this.stage.replaceChildren(el("p", { class: "nothing" }, "The files of this job cannot be reached; they may have been removed from the bucket."));
    const place = el("div", { class: "full" });
    const show = (k) => {
      this.#chosen = k;
      place.replaceChildren(player(outputs[k], shorten(job.request.prompt, 200), anew ? null : () => this.#showOutputs(job, true)));
      for (const [index, button] of [...thumbs.children].entries()) button.setAttribute("aria-pressed", index === k);
      const { seed, width, height, size_bytes: size } = outputs[k];
      const actions = [el("a", { class: "quiet", href: outputs[k].download_url, target: "_blank", rel: "noopener" }, "Save"), el("a", { class: "quiet", href: outputs[k].url, target: "_blank", rel: "noopener" }, "Open in a new tab")];
      if (kindOf(outputs[k]) === "image") actions.push(el("button", { type: "button", class: "quiet", onclick: () => this.on.useAsInput(job, outputs[k]) }, "Use as input"));
      about.replaceChildren(el("span", {}, [width ? `${width}×${height}` : null, `seed ${seed}`, bytes(size)].filter(Boolean).join(" · ")), el("span", { class: "row" }, actions));
    };
    const thumbs = el("div", { class: "thumbs", role: "group", "aria-label": "Outputs", hidden: outputs.length < 2 }, outputs.map((output, k) => thumb(output, k, () => show(k))));
    const about = el("div", { class: "about-output" });
    this.stage.replaceChildren(place, thumbs, about);
    show(Math.min(this.#chosen, outputs.length - 1));
  }

  /** Asked anew when the job has moved; a job that denoises waits for nothing. */
  async #explain(job) {
    const { stage, queue_position: position } = job.progress;
    const waits = isLive(job) && ["queued", "loading", "encoding"].includes(stage);
    const asked = waits ? `${job.status} ${stage} ${position}` : "";
    if (asked === this.asked) return;
    this.asked = asked;
    const answer = waits ? await this.on.explain(job) : null;
    if (asked === this.asked && this.#id === job.id) this.why.replaceChildren(...(answer?.reasons.length ? [explanation(answer)] : []));
  }
}

function thumb(output, k, onclick) {
  const face = kindOf(output) === "image" ? el("img", { src: output.url, alt: "", loading: "lazy" }) : String(k + 1);
  return el("button", { type: "button", class: "thumb", onclick, "aria-label": `Output ${k + 1}, seed ${output.seed}` }, face);
}
