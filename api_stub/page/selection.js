// Which cards are picked for comparison, and the bar that says so.

import { MAX_COMPARED } from "./compare.js";
import { $, setText } from "./dom.js";
import { plural } from "./words.js";

export class Selection {
  #picked = new Set();

  constructor(onCompare, uncheck) {
    this.uncheck = uncheck;
    $("compare").addEventListener("click", () => onCompare([...this.#picked]));
    $("clear-selection").addEventListener("click", () => {
      for (const id of this.#picked) this.uncheck(id);
      this.#picked.clear();
      this.#draw();
      $("results").focus();
    });
  }

  has(id) {
    return this.#picked.has(id);
  }

  pick(id, isPicked) {
    if (isPicked) this.#picked.add(id);
    else this.#picked.delete(id);
    if (this.#picked.size > MAX_COMPARED) {
      const [first] = this.#picked;
      this.#picked.delete(first);
      this.uncheck(first);
    }
    this.#draw();
  }

  #draw() {
    const count = this.#picked.size;
    $("selection").hidden = count === 0;
    document.body.classList.toggle("picking", count > 0);
    setText($("selection-count"), `${plural(count, "job")} selected`);
  }
}
