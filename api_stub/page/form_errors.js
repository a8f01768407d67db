// Shows each error at the field that it names, opens what hides that field, and moves the focus to the first.

import { $ } from "./dom.js";
import { field as words } from "./words.js";

export class FormErrors {
  constructor(form) {
    this.form = form;
    form.addEventListener("input", (event) => this.clear(event.target.name || event.target.closest("[data-field]")?.dataset.field));
  }

  show(problem) {
    this.clearAll();
    const rest = [];
    let first = null;
    for (const [field, message] of problem.fields) {
      const control = this.at(field, message);
      if (control) first ??= control;
      else rest.push(field ? `${field}: ${message}` : message);
    }
    if (first) first.focus();
    if (first && rest.length === 0) return;
    this.whole(rest.join(" ") || (problem.retryAfter ? `${problem.message} Try again in ${problem.retryAfter} s.` : problem.message));
  }

  /** Null: the form has no such field. `loras.0.name` belongs to `loras`. */
  at(field, message) {
    const [name] = field.split(".");
    const place = $(`${name}-error`);
    if (!place) return null;
    place.textContent = `${words(name)}: ${message}`;
    place.hidden = false;
    const control = this.form.elements[name] ?? place.closest("[data-field]")?.querySelector("input, select, button");
    control?.setAttribute("aria-invalid", "true");
    for (let around = place.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
    const hidden = place.closest("[hidden]");
    if (hidden && hidden !== place) hidden.hidden = false;
    if (name === "width" || name === "height") $("custom-size").hidden = false;
    return control ?? place;
  }

  whole(message) {
    $("form-error").textContent = message;
    $("form-error").hidden = false;
  }

  clear(name) {
    const place = name && $(`${name}-error`);
    $("form-error").hidden = true;
    if (!place) return;
    place.hidden = true;
    const around = place.closest(".field")?.querySelectorAll("[aria-invalid]") ?? [];
    for (const control of [this.form.elements[name], ...around]) control?.removeAttribute?.("aria-invalid");
  }

  clearAll() {
    for (const place of this.form.querySelectorAll(".error")) place.hidden = true;
    for (const control of this.form.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  }
}
