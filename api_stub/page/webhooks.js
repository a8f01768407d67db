// Webhook deliveries that were given up, for an operator: why, once more or away. Nothing is shown while there are none.

import { Problem, api } from "./api.js";
import { $, el, setText, twoStep } from "./dom.js";
import { moment, shorten } from "./words.js";

export class Webhooks {
  #rows = new Map();

  /** `on`: details(id), say(text), report(error). */
  constructor(on) {
    this.on = on;
  }

  async refresh() {
    const answer = await api.webhooks();
    const letters = answer?.letters ?? [];
    const ids = new Set(letters.map((letter) => letter.id));
    for (const id of this.#rows.keys()) if (!ids.has(id)) this.#remove(id);
    letters.forEach((letter, index) => {
      const row = this.#rows.get(letter.id) ?? this.#row(letter);
      this.#rows.set(letter.id, row);
      if ($("undelivered").children[index] !== row) $("undelivered").insertBefore(row, $("undelivered").children[index] ?? null);
    });
    this.#count();
  }

  #remove(id) {
    this.#rows.get(id)?.remove();
    this.#rows.delete(id);
    this.#count();
  }

  #count() {
    $("webhooks-section").hidden = this.#rows.size === 0;
    setText($("webhooks-count"), this.#rows.size === 1 ? "1 delivery" : `${this.#rows.size} deliveries`);
  }

  #row({ id, receiver, error, tries, died_at: diedAt }) {
    return el(
      "li",
      { class: "letter", dataset: { id } },
      el("h3", {}, receiver ?? "Its job is gone"),
      el("p", { class: "fault" }, shorten(error || "It was not delivered.", 600)),
      el("p", { class: "plate" }, [`after ${tries === 1 ? "1 try" : `${tries} tries`}`, moment(diedAt), id].join(" · ")),
      el(
        "div",
        { class: "row" },
        el("button", { type: "button", class: "quiet", onclick: (event) => this.#act(event.target, id, api.retryWebhook, "It is delivered again, with all tries.") }, "Deliver again"),
        el("button", { type: "button", class: "quiet", onclick: () => this.on.details(id) }, "Job"),
        twoStep("Purge", "Click again to purge it", (button) => this.#act(button, id, api.purgeWebhook, "Purged.")),
      ),
    );
  }

  async #act(button, id, work, words) {
    button.disabled = true;
    try {
      await work(id);
      this.#remove(id);
      this.on.say(words);
    } catch (error) {
      button.disabled = false;
      if (!(error instanceof Problem)) throw error;
      this.on.report(error);
    }
  }
}
