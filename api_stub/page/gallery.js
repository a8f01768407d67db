// The sheet of cards: which jobs pass the filter, in which order, and how older ones come in.

import { api } from "./api.js";
import { Card } from "./card.js";
import { $ } from "./dom.js";
import { byAge } from "./jobs.js";

const PAGE_SIZE = 24;

export class Gallery {
  #cards = new Map();
  #cursors = new Map();
  #loading = false;

  /** `on` is what the cards call, and report, isPicked. */
  constructor(jobs, on) {
    this.jobs = jobs;
    this.on = on;
    this.filter = { status: "", model: "", group: "", text: "" };
    $("older").addEventListener("click", () => this.older());
    this.nearEnd = new IntersectionObserver(([entry]) => entry.isIntersecting && !this.filter.text && !this.filter.model && this.older(), { rootMargin: "300px" });
    this.nearEnd.observe($("older"));
  }

  passes({ request, status }) {
    const { filter } = this;
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${request.prompt} ${request.negative_prompt ?? ""}`.toLowerCase();
    return (
      (!filter.status || status === filter.status) && (!filter.model || request.model === filter.model) && (!filter.group || request.group === filter.group) && words.every((word) => text.includes(word))
    );
  }

  /** After the job changed, or left. */
  show(job, before) {
    const id = (job ?? before).id;
    const card = this.#cards.get(id);
    if (!job || job.status === "queued" || !this.passes(job)) this.#remove(id, card);
    else if (card) card.update(job);
    else this.#insert(job);
    $("sheet").setAttribute("aria-busy", "false");
  }

  refilter() {
    for (const job of this.jobs.all) this.show(job, null);
    $("older").hidden = !this.cursor;
  }

  get numShown() {
    return this.#cards.size;
  }

  card(id) {
    return this.#cards.get(id);
  }

  get #key() {
    return JSON.stringify([this.filter.status, this.filter.group]);
  }

  /** Where the list goes on; undefined: nothing was loaded; null: all was. */
  get cursor() {
    return this.#cursors.get(this.#key);
  }

  /** Load the first page of this filter, which sets where `older` goes on. */
  async first() {
    const key = this.#key;
    const page = await api.jobs({ limit: PAGE_SIZE, status: this.filter.status, group: this.filter.group });
    for (const job of page.jobs) this.jobs.take(job);
    if (!this.#cursors.has(key)) this.#cursors.set(key, page.cursor);
    $("older").hidden = !this.cursor;
  }

  async older() {
    const key = this.#key;
    if (this.#loading || !this.cursor) return;
    this.#loading = true;
    try {
      const page = await api.jobs({ limit: PAGE_SIZE, status: this.filter.status, group: this.filter.group, cursor: this.cursor });
      for (const job of page.jobs) this.jobs.take(job);
      this.#cursors.set(key, page.cursor);
    } catch (error) {
      this.on.report(error);
    } finally {
      this.#loading = false;
      $("older").hidden = !this.cursor;
      this.nearEnd.unobserve($("older"));
      this.nearEnd.observe($("older")); // it tells again if the end is still near
    }
  }

  #remove(id, card) {
    if (!card) return;
    card.element.remove();
    this.#cards.delete(id);
  }

  #insert(job) {
    for (const skeleton of $("sheet").querySelectorAll(".skeleton")) skeleton.remove();
    const card = new Card(job, this.on);
    card.checkbox.checked = this.on.isPicked(job);
    const next = [...$("sheet").children].find((element) => byAge(job, this.jobs.get(element.dataset.id) ?? job) < 0);
    card.element.dataset.id = job.id;
    this.#cards.set(job.id, card);
    $("sheet").insertBefore(card.element, next ?? null);
  }
}
