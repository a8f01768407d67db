// The row of filters above the jobs: reads them, offers the models and groups that there are.

import { $, el, twoStep } from "./dom.js";

export class Filters {
  #models = "";
  #groups = "";

  /** `onChange(filter)`; `onAbortGroup(group)`. */
  constructor(onChange, onAbortGroup) {
    this.onAbortGroup = onAbortGroup;
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("filters").addEventListener("input", () => {
      this.#offerAbort();
      onChange(this.value);
    });
  }

  get value() {
    return { status: $("filter-status").value, model: $("filter-model").value, group: $("filter-group").value.trim(), text: $("search").value };
  }

  get isOn() {
    return Object.values(this.value).some(Boolean);
  }

  clear() {
    $("filters").reset();
    $("filters").dispatchEvent(new Event("input"));
  }

  offer(models, jobs) {
    const groups = [...new Set(jobs.map((job) => job.request.group).filter(Boolean))].sort();
    if (groups.join("\0") !== this.#groups) {
      this.#groups = groups.join("\0");
      $("groups").replaceChildren(...groups.map((group) => el("option", { value: group })));
    }
    if (models.join("\0") === this.#models) return;
    this.#models = models.join("\0");
    const chosen = $("filter-model").value;
    $("filter-model").replaceChildren(new Option("Any model", ""), ...models.map((name) => new Option(name, name)));
    $("filter-model").value = models.includes(chosen) ? chosen : "";
    $("filter-model").hidden = models.length < 2;
  }

  #offerAbort() {
    const { group } = this.value;
    $("group-bar").hidden = !group;
    $("group-bar").replaceChildren(...(group ? [twoStep(`Abort all live jobs of group ${group}`, "Click again to abort them all", () => this.onAbortGroup(group))] : []));
  }
}
