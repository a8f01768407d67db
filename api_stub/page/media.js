// Results as pictures, players and links. A presigned address runs out: it is kept for a while and then asked for anew.

import { api } from "./api.js";
import { el } from "./dom.js";

const KEEP_MS = 45 * 60_000;
const kept = new Map();

/** The outputs of an ended job with `url` and `download_url`; [] if they cannot be had. */
export async function links(job, { anew = false } = {}) {
  const known = kept.get(job.id);
  if (known && !anew && known.until > Date.now()) return known.outputs;
  const outputs = api.outputs(job.id).then((answer) => answer.outputs).catch(() => []);
  kept.set(job.id, { outputs, until: Date.now() + KEEP_MS });
  if ((await outputs).length === 0) kept.delete(job.id);
  return outputs;
}

export const kindOf = (output) => output.content_type.split("/")[0];

/** An img, video or audio element of the output; `onBroken` is called once if it cannot be loaded. */
export function player(output, alt, onBroken) {
  const kind = kindOf(output);
  const isMoving = kind !== "image";
  const media = el(isMoving ? kind : "img", {
    src: output.url,
    ...(isMoving ? { controls: true, preload: "metadata", loop: kind === "video", "aria-label": alt } : { alt, decoding: "async" }),
    ...(output.width ? { width: output.width, height: output.height } : {}),
  });
  if (onBroken) media.addEventListener("error", onBroken, { once: true });
  return media;
}
