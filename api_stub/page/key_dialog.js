// Asks for the API key when the server wants one, and gives it to `api.js`.

import { key } from "./api.js";
import { $ } from "./dom.js";

export class KeyDialog {
  constructor(onKey) {
    this.dialog = $("key-dialog");
    $("change-key").addEventListener("click", () => this.ask());
    $("key-form").addEventListener("submit", () => {
      key.set($("key").value.trim());
      $("key").value = "";
      onKey();
    });
  }

  get isOpen() {
    return this.dialog.open;
  }

  ask(error) {
    $("change-key").hidden = false;
    const message = error && key.get() ? error.message : "";
    $("key-error").textContent = message;
    $("key-error").hidden = !message;
    if (!this.isOpen) this.dialog.showModal();
  }
}
