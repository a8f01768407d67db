// The sizes on offer: those that the model was trained for, or else shapes of about its default's area.

import { el } from "./dom.js";

const SHAPES = [["Square", 1], ["Portrait", 3 / 4], ["Landscape", 4 / 3], ["Tall", 9 / 16], ["Wide", 16 / 9]];
const CUSTOM = { name: "Custom" };

export function sizesOf({ defaults, limits, sizes: trained }) {
  if (trained.length) return [...trained.map(([width, height]) => ({ name: shapeName(width / height), width, height })), CUSTOM];
  const area = defaults.width * defaults.height;
  const fit = (size) => {
    const [low, high] = [limits.min_size, limits.max_size].map((bound) => bound / limits.size_multiple);
    return Math.min(Math.floor(high), Math.max(Math.ceil(low), Math.round(size / limits.size_multiple))) * limits.size_multiple;
  };
  const sizes = SHAPES.map(([name, ratio]) => ({ name, width: fit(Math.sqrt(area * ratio)), height: fit(Math.sqrt(area / ratio)) }));
  if (defaults.width !== defaults.height) sizes.unshift({ name: "Default", width: defaults.width, height: defaults.height });
  const seen = new Set();
  const distinct = sizes.filter(({ width, height }) => !seen.has(`${width}x${height}`) && seen.add(`${width}x${height}`));
  return [...distinct, CUSTOM];
}

function shapeName(ratio) {
  const distance = (shape) => Math.abs(Math.log(shape[1] / ratio));
  return SHAPES.reduce((best, shape) => (distance(shape) < distance(best) ? shape : best))[0];
}

export function sizeChip({ name, width, height }) {
  const input = el("input", { type: "radio", name: "size", value: width ? `${width}x${height}` : "custom" });
  const shape = el("span", { class: width ? "shape" : "shape free" });
  if (width) {
    const scale = 15 / Math.max(width, height);
    shape.style.setProperty("--w", `${Math.round(width * scale)}px`);
    shape.style.setProperty("--h", `${Math.round(height * scale)}px`);
  }
  return el("label", { class: "chip" }, input, shape, el("span", {}, name), el("small", {}, width ? `${width}×${height}` : "W×H"));
}
