// Jobs that failed for good, for an operator: why, where in the code, once more or away.

import { Problem, api } from "./api.js";
import { $, el, setText, twoStep } from "./dom.js";
import { FAULTS, moment, plural, shorten } from "./words.js";

export class DeadLetters {
  #rows = new Map();
  #isThere = true;

  /** `on`: retried(job), details(id), say(text), report(error). */
  constructor(on) {
    this.on = on;
  }

  async refresh() {
    if (!this.#isThere) return;
    const answer = await api.deadLetters();
    this.#isThere = answer !== null;
    $("dead-section").hidden = !this.#isThere;
    if (answer) this.#draw(answer.letters, answer.cursor !== null);
  }

  #draw(letters, hasMore) {
    this.hasMore = hasMore;
    const ids = new Set(letters.map((letter) => letter.id));
    for (const [id, row] of this.#rows) if (!ids.has(id)) this.#remove(id, row);
    letters.forEach((letter, index) => {
      const row = this.#rows.get(letter.id) ?? this.#row(letter);
      this.#rows.set(letter.id, row);
      if ($("dead").children[index] !== row) $("dead").insertBefore(row, $("dead").children[index] ?? null);
    });
    this.#count();
  }

  #remove(id, row) {
    row.remove();
    this.#rows.delete(id);
    this.#count();
  }

  #count() {
    const count = this.#rows.size;
    const more = this.hasMore ? ", and older ones" : "";
    setText($("dead-count"), count ? `${plural(count, "job")}${more}` : "none");
    setText($("dead-badge"), this.hasMore ? `${count}+` : String(count));
    $("dead-badge").hidden = count === 0;
    $("dead-badge").setAttribute("aria-label", plural(count, "dead letter"));
  }

  #row(letter) {
    const { request, error, id } = letter.job ?? letter;
    const trace = el("details", { class: "trace", ontoggle: () => trace.open && this.#showFaults(letter.id, trace) }, el("summary", {}, "Attempts and tracebacks"));
    const row = el(
      "li",
      { class: "letter", dataset: { id } },
      el("h3", {}, shorten(request?.prompt ?? id, 200)),
      el("p", { class: "fault" }, error ? `${FAULTS[error.type] ?? "It failed."} ${shorten(error.message, 600)}` : "It failed."),
      el("p", { class: "plate" }, [request?.model, moment(letter.died_at), id].filter(Boolean).join(" · ")),
      trace,
      el(
        "div",
        { class: "row" },
        el("button", { type: "button", class: "quiet", onclick: (event) => this.#act(event.target, row, letter.id, "retry") }, "Retry"),
        el("button", { type: "button", class: "quiet", onclick: () => this.on.details(letter.id) }, "Details"),
        twoStep("Purge", "Click again to purge it", (button) => this.#act(button, row, letter.id, "purge")),
      ),
    );
    return row;
  }

  async #showFaults(id, place) {
    if (place.querySelector(".faults")) return;
    const letter = await api.deadLetter(id).catch(() => null);
    const faults = (letter?.faults ?? []).map((fault) =>
      el("li", {}, el("p", {}, `Attempt ${fault.attempt}, ${fault.type}, ${moment(fault.failed_at)}${fault.worker ? `, ${fault.worker}` : ""}`), el("p", {}, fault.message), fault.traceback ? el("pre", { tabIndex: 0 }, fault.traceback) : null),
    );
    place.append(el("ol", { class: "faults" }, faults.length ? faults : el("li", {}, "Nothing more is known.")));
  }

  async #act(button, row, id, what) {
    button.disabled = true;
    try {
      const job = await (what === "retry" ? api.retryDeadLetter(id) : api.purgeDeadLetter(id));
      this.#remove(id, row);
      if (what === "retry" && job?.request) this.on.retried(job);
      this.on.say(what === "retry" ? "It runs once more, as a new job." : "Purged.");
    } catch (error) {
      button.disabled = false;
      if (!(error instanceof Problem)) throw error;
      this.on.report(error);
    }
  }
}
