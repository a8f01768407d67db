// Pictures side by side, with what differs between their requests marked.

import { $, el } from "./dom.js";
import { seedPlus } from "./json.js";
import { links, player } from "./media.js";
import { field, seconds, shorten } from "./words.js";

export const MAX_COMPARED = 4;
const LEFT_OUT = new Set(["metadata", "webhook_url", "group", "supersede", "preview_every", "priority", "deadline_s", "output_prefix", "exact", "num_outputs"]);

/** What makes two requests the same but for their seed. */
export function sameButSeed(request) {
  const { seed, ...rest } = request;
  return JSON.stringify(Object.entries(rest).filter(([name]) => !LEFT_OUT.has(name)));
}

export class Compare {
  #turn = 0;

  constructor(onDetails) {
    this.onDetails = onDetails;
    this.dialog = $("compare-dialog");
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  /** The first picture of each of these jobs, or the outputs of the only one; `MAX_COMPARED` at most. */
  async open(jobs) {
    const turn = ++this.#turn;
    const found = await Promise.all(jobs.map(async (job) => (await links(job)).map((output, k) => ({ job, output, k }))));
    if (turn !== this.#turn) return;
    const items = (found.length > 1 ? found.map((outputs) => outputs.slice(0, 1)) : found).flat().slice(0, MAX_COMPARED);
    const rows = parameters(items);
    const only = el("input", { type: "checkbox", onchange: () => table.classList.toggle("only-different", only.checked) });
    const table = el("div", { class: "compared", role: "table", "aria-label": "Compared pictures" }, this.#pictures(items), rows.map(row));
    table.style.setProperty("--count", items.length);
    this.dialog.replaceChildren(
      el("div", { class: "head" }, el("h2", { id: "compare-title" }, "Compare"), el("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => this.dialog.close() }, "×")),
      el("label", { class: "check" }, only, "Show only what differs"),
      el("div", { class: "scroll", tabIndex: 0, role: "group", "aria-labelledby": "compare-title" }, table),
    );
    if (!this.dialog.open) this.dialog.showModal();
  }

  #pictures(items) {
    const cells = items.map(({ job, output }) =>
      el(
        "div",
        { role: "cell", class: "picture" },
        player(output, shorten(job.request.prompt, 120)),
        el("button", { type: "button", class: "quiet", onclick: () => this.#leaveFor(job) }, "Details"),
      ),
    );
    return el("div", { role: "row" }, el("span", { role: "cell", class: "corner" }), cells);
  }

  #leaveFor(job) {
    this.dialog.close();
    this.onDetails(job);
  }
}

function parameters(items) {
  const names = [...new Set(items.flatMap(({ job }) => Object.keys(job.request)))].filter((name) => !LEFT_OUT.has(name));
  const rows = names.map((name) => [field(name), items.map(({ job, k }) => (name === "seed" ? seedPlus(job.request.seed, k) : words(job.request[name])))]);
  rows.push(["Took", items.map(({ job }) => (job.metrics.total_ms == null ? "" : seconds(job.metrics.total_ms / 1000)))]);
  return rows.filter(([, values]) => values.some((value) => value !== "")).map(([name, values]) => ({ name, values, differs: name !== "Took" && new Set(values).size > 1 }));
}

function row({ name, values, differs }) {
  const head = el("span", { role: "rowheader" }, name, differs ? el("em", {}, "differs") : null);
  return el("div", { role: "row", class: differs ? "differs" : "" }, head, values.map((value) => el("span", { role: "cell" }, value)));
}

function words(value) {
  if (value == null || value === "") return "";
  if (Array.isArray(value)) return value.map(({ name, scale }) => `${name} × ${scale}`).join(", ");
  return shorten(String(value), 400);
}
