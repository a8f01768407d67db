// An input picture: chosen, dropped, pasted, taken from a result or given by address. Its value is a URI for the request.

import { $ } from "./dom.js";
import { bytes } from "./words.js";

const MAX_ADDRESS = 2048;

export class ImageInput {
  #uri = "";
  #shown = "";
  #describe = "";
  #maxBytes = Infinity;

  /** `name` is the request's field; the elements are `NAME-drop`, `-file`, `-preview`, `-about`, `-remove`, `-address`. */
  constructor(name, onChange, onError) {
    this.name = name;
    this.onChange = onChange;
    this.onError = onError;
    this.parts = Object.fromEntries(["drop", "file", "preview", "about", "remove", "address"].map((part) => [part, $(`${name}-${part}`)]));
    const { drop, file, remove, address } = this.parts;
    file.addEventListener("change", () => this.#read(file.files[0]));
    remove.addEventListener("click", () => {
      this.clear();
      onChange();
      file.focus();
    });
    address.addEventListener("change", () => {
      const text = address.value.trim();
      if (text) this.set(text, "", text);
      else this.clear();
      onChange();
    });
    for (const type of ["dragenter", "dragover"]) drop.addEventListener(type, (event) => this.#over(event, true));
    drop.addEventListener("dragleave", (event) => this.#over(event, false));
    drop.addEventListener("drop", (event) => {
      this.#over(event, false);
      this.#read(event.dataTransfer.files[0]);
    });
  }

  get uri() {
    return this.#uri;
  }

  /** What a draft keeps. */
  get state() {
    return { uri: this.#uri, about: this.#describe, shown: this.#shown === this.#uri ? "" : this.#shown };
  }

  set maxBytes(value) {
    this.#maxBytes = value;
  }

  /** `shown` is where the browser can see it: an s3:// URI it cannot. */
  set(uri, shown = "", about = "") {
    this.#uri = uri;
    this.#shown = shown || (uri.startsWith("data:") ? uri : "");
    this.#describe = about || (uri.startsWith("data:") ? "A picture sent with the request" : uri);
    this.#draw();
  }

  clear() {
    this.#uri = this.#shown = this.#describe = "";
    this.parts.file.value = "";
    this.#draw();
  }

  /** The first picture of a paste or drop; true: there was one. */
  takeFrom(transfer) {
    const file = [...(transfer?.files ?? [])].find((each) => each.type.startsWith("image/"));
    if (file) this.#read(file);
    return Boolean(file);
  }

  async #read(file) {
    if (!file) return;
    if (!file.type.startsWith("image/")) return this.onError(this.name, `${file.name} is not a picture.`);
    const room = Math.floor((this.#maxBytes - 64 * 1024) * 0.75);
    if (file.size > room) {
      return this.onError(this.name, `${file.name} has ${bytes(file.size)}; at most ${bytes(room)} fit into a request. Put it into the bucket and give its s3:// address.`);
    }
    this.set(await asDataUri(file), "", `${file.name || "Pasted picture"}, ${bytes(file.size)}`);
    this.onChange();
  }

  #over(event, isOver) {
    event.preventDefault();
    this.parts.drop.classList.toggle("over", isOver);
  }

  #draw() {
    const { drop, preview, about, remove, address } = this.parts;
    drop.classList.toggle("full", this.#uri !== "");
    preview.hidden = !this.#shown;
    if (this.#shown) preview.src = this.#shown;
    else preview.removeAttribute("src");
    about.textContent = this.#describe.slice(0, 200);
    remove.hidden = this.#uri === "";
    address.value = this.#uri.startsWith("data:") ? "" : this.#uri.slice(0, MAX_ADDRESS);
  }
}

function asDataUri(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
