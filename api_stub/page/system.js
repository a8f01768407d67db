// Workers and queues, as they are now.

import { $, el, facts, setText, twoStep } from "./dom.js";
import { bytes, plural, seconds } from "./words.js";

export class System {
  #drawn = "";
  #cards = new Map();

  /** `drain(name)` asks a worker to stop; it answers false if the server cannot do that. */
  constructor(drain) {
    this.drain = drain;
    this.canDrain = true;
    this.maxRows = new Map();
  }

  setModels(models) {
    this.maxRows = new Map(models.map((model) => [model.name, model.max_batch_rows]));
  }

  draw(queues, workers) {
    this.#drawQueues(queues);
    const names = new Set(workers.map((worker) => worker.name));
    for (const [name, card] of this.#cards) {
      if (names.has(name)) continue;
      card.remove();
      this.#cards.delete(name);
    }
    for (const worker of [...workers].sort((a, b) => a.name.localeCompare(b.name))) this.#drawWorker(worker);
    const isEmpty = workers.length === 0;
    const nothing = $("workers").querySelector(".nothing");
    if (isEmpty && !nothing) $("workers").append(el("li", { class: "nothing" }, el("p", {}, "No worker is running. Start one for each device:"), el("pre", { tabIndex: 0 }, "safelight worker")));
    if (!isEmpty) nothing?.remove();
  }

  #drawQueues(queues) {
    const shape = JSON.stringify(queues);
    if (shape === this.#drawn) return;
    this.#drawn = shape;
    const cell = (value) => el("td", { class: "n" }, String(value));
    $("queues").replaceChildren(
      ...queues.map((queue) => el("tr", {}, el("th", { scope: "row" }, queue.model, ...priorities(queue)), cell(queue.queued), cell(queue.running), cell(queue.oldest_s == null ? "–" : seconds(queue.oldest_s)))),
    );
  }

  #drawWorker(worker) {
    let card = this.#cards.get(worker.name);
    if (!card) {
      card = this.#card(worker);
      this.#cards.set(worker.name, card);
      $("workers").append(card);
    }
    const isDraining = worker.state === "draining";
    const isSilent = worker.beat_age_s >= worker.ttl_s / 2;
    card.dataset.state = isSilent ? "silent" : worker.state;
    setText(card.querySelector(".worker-state"), isSilent ? `Silent for ${seconds(worker.beat_age_s)}` : stateOf(worker));
    setText(card.querySelector(".worker-jobs"), plural(worker.jobs ?? 0, "job"));
    card.querySelector(".drain").hidden = isDraining || !this.canDrain;
    card.querySelector(".models").replaceChildren(...Object.entries(worker.models ?? {}).map((entry) => modelRow(entry, this.maxRows)));
    const memory = memoryOf(worker);
    card.querySelector(".memory").hidden = !memory;
    setText(card.querySelector(".memory"), memory ?? "");
  }

  #card(worker) {
    const [short] = worker.name.split(":");
    const drain = twoStep("Drain", "Click again: it finishes, then stops", (button) => this.#askDrain(worker.name, button), { class: "quiet drain", title: "Takes no new job, finishes or gives back what it has, and stops" });
    return el(
      "li",
      { class: "worker" },
      el("div", { class: "worker-head" }, el("span", { class: "dot", "aria-hidden": "true" }), el("h3", { title: worker.name }, worker.host ?? short), el("span", { class: "worker-state" }), el("span", { class: "worker-jobs" }), drain),
      el("p", { class: "plate" }, worker.name),
      el("div", { class: "models" }),
      el("p", { class: "memory plate", hidden: true }),
    );
  }

  async #askDrain(name, button) {
    button.disabled = true;
    try {
      this.canDrain = (await this.drain(name)) !== false;
    } finally {
      button.disabled = false;
    }
  }
}

function stateOf({ state, jobs }) {
  return { ready: jobs ? "Working" : "Idle", draining: "Draining", starting: "Starting" }[state] ?? state;
}

function priorities({ priorities: found = [] }) {
  return found.length > 1 ? [el("span", { class: "hint" }, found.map(({ priority, queued }) => `priority ${priority}: ${queued}`).join(", "))] : [];
}

function modelRow([name, model], maxRows) {
  const begun = model.running_rows ?? 0;
  const most = maxRows.get(name) ?? Math.max(begun, 1);
  const now = Math.min(begun, most); // step mode keeps more rows under way than a forward takes
  const fill = el("span", { class: "fill", role: "meter", "aria-label": "Rows in the batch", "aria-valuemin": 0, "aria-valuemax": most, "aria-valuenow": now });
  fill.style.setProperty("--f", Math.min(1, now / most));
  const figures = [
    ["mode", model.mode],
    ["device", [model.device, model.dtype].filter(Boolean).join(", ")],
    ["a step", model.step_ms ? `${model.step_ms < 10 ? model.step_ms.toFixed(1) : Math.round(model.step_ms)} ms` : "–"],
    ["mean batch", model.mean_batch_rows ? `${model.mean_batch_rows.toFixed(1)} rows` : "–"],
    ["done", plural(model.rows_done ?? 0, "row")],
  ];
  return el(
    "div",
    { class: "model" },
    el("p", { class: "model-name" }, name),
    el("p", { class: "batch" }, el("span", {}, `${now} of ${most} rows`, begun > now ? `, ${begun - now} more begun` : "", model.waiting_rows ? `, ${model.waiting_rows} next` : ""), fill),
    el("dl", { class: "facts" }, facts(figures)),
  );
}

/** In words, if the worker beats it: the models of a worker share one device, and its memory is the whole device's. */
function memoryOf(worker) {
  const memory = Object.values(worker.models ?? {}).find((model) => model.memory)?.memory;
  return memory ? `Memory of the device: ${bytes(memory.used_bytes)} used, ${bytes(memory.free_bytes)} free` : null;
}
