// Paints a mask over the input picture: white is made anew, black is kept.

import { $ } from "./dom.js";

const MAX_SIDE = 1024;

export class MaskBrush {
  #last = null;

  constructor(onDone) {
    this.dialog = $("mask-dialog");
    this.canvas = $("mask-canvas");
    this.pen = this.canvas.getContext("2d");
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.#stroke(event);
    });
    canvas.addEventListener("pointermove", (event) => event.buttons && this.#stroke(event));
    canvas.addEventListener("pointerup", () => (this.#last = null));
    $("mask-clear").addEventListener("click", () => this.#clear());
    $("mask-invert").addEventListener("click", () => this.#invert());
    $("mask-use").addEventListener("click", () => {
      onDone(canvas.toDataURL("image/png"));
      this.dialog.close();
    });
  }

  /** `source` is a data: URI; one from another host would taint the canvas. */
  async open(source) {
    const picture = $("mask-picture");
    picture.src = source;
    await picture.decode();
    const scale = Math.min(1, MAX_SIDE / Math.max(picture.naturalWidth, picture.naturalHeight));
    this.canvas.width = Math.round(picture.naturalWidth * scale);
    this.canvas.height = Math.round(picture.naturalHeight * scale);
    this.#clear();
    this.dialog.showModal();
  }

  #clear() {
    this.pen.globalCompositeOperation = "source-over";
    this.pen.fillStyle = "#000";
    this.pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  #invert() {
    this.pen.globalCompositeOperation = "difference";
    this.pen.fillStyle = "#fff";
    this.pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  #stroke(event) {
    const { canvas, pen } = this;
    const box = canvas.getBoundingClientRect();
    const at = [((event.clientX - box.left) * canvas.width) / box.width, ((event.clientY - box.top) * canvas.height) / box.height];
    pen.globalCompositeOperation = "source-over";
    pen.strokeStyle = "#fff";
    pen.lineCap = pen.lineJoin = "round";
    pen.lineWidth = (Number($("mask-size").value) / 100) * Math.max(canvas.width, canvas.height);
    pen.beginPath();
    pen.moveTo(...(this.#last ?? at));
    pen.lineTo(...at);
    pen.stroke();
    this.#last = at;
  }
}
