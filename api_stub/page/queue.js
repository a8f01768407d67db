// The jobs that wait, in the order in which they will be taken, with place and time.

import { $, el, setText } from "./dom.js";
import { plural, queuePlace, seconds, shorten } from "./words.js";

const FEW = 5;

export class Queue {
  #rows = new Map();
  #all = false;

  constructor(on) {
    this.on = on;
    $("all-waiting").addEventListener("click", () => {
      this.#all = !this.#all;
      this.draw(this.jobs, this.total);
    });
  }

  /** `total` waits in the whole system; `jobs` are those that are known and pass the filter. */
  draw(jobs, total) {
    this.jobs = jobs;
    this.total = total;
    const place = (job) => job.progress.queue_position ?? Infinity;
    const sorted = [...jobs].sort((a, b) => place(a) - place(b) || a.created_at.localeCompare(b.created_at));
    const shown = this.#all ? sorted : sorted.slice(0, FEW);
    $("waiting").hidden = jobs.length === 0;
    setText($("waiting-count"), total > jobs.length ? `${jobs.length} shown, ${total} in all` : plural(jobs.length, "job"));
    $("all-waiting").hidden = sorted.length <= FEW;
    setText($("all-waiting"), this.#all ? "Show fewer" : `Show all ${sorted.length}`);
    this.#place(shown);
  }

  /** Keep the rows that stay where they are: a click must not miss its button. */
  #place(shown) {
    const list = $("queue");
    const ids = new Set(shown.map((job) => job.id));
    for (const [id, row] of this.#rows) {
      if (ids.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
    shown.forEach((job, index) => {
      if (!this.#rows.has(job.id)) this.#rows.set(job.id, this.#row(job));
      const row = this.#rows.get(job.id);
      this.#update(row, job);
      if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
    });
  }

  #row(job) {
    const title = el("button", { type: "button", class: "quiet title", onclick: () => this.on.details(job) }, shorten(job.request.prompt, 160));
    const abort = el("button", { type: "button", class: "quiet", onclick: () => this.on.abort(job), "aria-label": `Abort: ${shorten(job.request.prompt, 60)}` }, "Abort");
    return el("li", {}, title, el("span", { class: "where" }), el("span", { class: "plate" }), abort);
  }

  #update(row, job) {
    const { request, progress, abort_requested: aborting } = job;
    const eta = progress.eta_s == null ? "" : `, result in about ${seconds(progress.eta_s)}`;
    setText(row.querySelector(".where"), aborting ? "Aborting" : `${queuePlace(progress.queue_position)}${eta}`);
    const about = [request.model, `${request.width}×${request.height}`, `${request.num_inference_steps} steps`];
    if (request.priority !== 5) about.push(`priority ${request.priority}`);
    if (request.group) about.push(`group ${request.group}`);
    if (job.attempt) about.push(`attempt ${job.attempt} was given back or lost`);
    setText(row.querySelector(".plate"), about.join(" · "));
  }
}
