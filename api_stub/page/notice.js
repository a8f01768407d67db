// What the page says to its user: a quiet banner while something is wrong, a short toast for what has just been done.

import { $, setText } from "./dom.js";

const TOAST_MS = 4000;
const reasons = new Map();
const place = $("toast"); // it moves into whatever dialog is open
let fading = null;

/** Show `text` for as long as this reason holds; "" ends it. */
export function notice(reason, text) {
  if (text) reasons.set(reason, text);
  else reasons.delete(reason);
  setText($("notice"), [...reasons.values()].join(" "));
  $("notice").hidden = reasons.size === 0;
}

/** For screen readers alone. */
export function announce(text) {
  const home = document.querySelector("dialog[open]") ?? document.body;
  if (place.parentElement !== home) home.append(place);
  place.textContent = text;
}

export function toast(text) {
  announce(text);
  place.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => place.classList.remove("shown"), TOAST_MS);
}
