// The adapters of a request: a row for each, of those that the model knows.

import { $, el } from "./dom.js";

export class LoraRows {
  #known = [];
  #max = 0;

  constructor(onChange) {
    this.onChange = onChange;
    this.list = $("loras");
    $("add-lora").addEventListener("click", () => {
      this.#add({ name: this.#unused()[0], scale: 1 });
      this.list.lastElementChild.querySelector("select").focus();
      onChange();
    });
  }

  setModel({ loras, max_loras: max }) {
    const kept = this.value.filter((lora) => loras.includes(lora.name));
    this.#known = loras;
    this.#max = Math.min(max, 16);
    $("loras-field").hidden = loras.length === 0;
    this.value = kept;
  }

  get value() {
    return [...this.list.children].map((row) => {
      const scale = row.querySelector("input").value;
      return { name: row.querySelector("select").value, scale: scale === "" ? 1 : Number(scale) };
    });
  }

  set value(loras) {
    this.list.replaceChildren();
    for (const lora of loras) this.#add(lora);
    this.#limit();
  }

  #unused() {
    const used = new Set(this.value.map((lora) => lora.name));
    return this.#known.filter((name) => !used.has(name));
  }

  #add({ name, scale }) {
    const select = el("select", { "aria-label": "LoRA" }, this.#known.map((each) => new Option(each, each)));
    select.value = name;
    const row = el(
      "li",
      {},
      select,
      el("input", { type: "number", min: -4, max: 4, step: "any", value: scale, "aria-label": "Scale" }),
      el("button", { type: "button", class: "quiet", "aria-label": "Remove this LoRA", onclick: () => this.#remove(row) }, "Remove"),
    );
    this.list.append(row);
    this.#limit();
  }

  #remove(row) {
    row.remove();
    this.#limit();
    $("add-lora").focus();
    this.onChange();
  }

  #limit() {
    $("add-lora").disabled = this.list.children.length >= Math.min(this.#max, this.#known.length);
  }
}
