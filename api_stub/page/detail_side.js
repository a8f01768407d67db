// The text half of a job's details: what can be done, what went wrong, what was asked, how long it took.

import { el, facts, twoStep } from "./dom.js";
import { isLive } from "./jobs.js";
import { toJson } from "./json.js";
import { warningsOf } from "./previews.js";
import { asCurl, asJson, asPython } from "./snippets.js";
import { FAULTS, bytes, field, moment, ms, plural } from "./words.js";

const ELSEWHERE = new Set(["prompt", "metadata", "loras", "image", "mask_image", "width", "height"]);
const UNTOUCHED = { num_outputs: 1, priority: 5, exact: false, supersede: false, preview_every: 0, output_prefix: "", negative_prompt: "" };

/** `on`: abort, abortGroup, replay, again, edit, compareSeeds, copy; each takes the job. */
export function sideOf(job, on) {
  return [
    actions(job, on),
    troubles(job),
    section("Prompt", el("p", { class: "whole-prompt" }, job.request.prompt)),
    section("Request", el("dl", { class: "facts" }, requestFacts(job.request))),
    section("Run", el("dl", { class: "facts" }, runFacts(job))),
    files(job),
    Object.keys(job.request.metadata ?? {}).length ? section("Metadata", el("pre", { tabIndex: 0 }, toJson(job.request.metadata, 2))) : null,
  ].filter(Boolean);
}

/** The answer of `GET /v1/jobs/{id}/explain`, of a live job: why it is not done, and what runs meanwhile. */
export function explanation({ status, reasons, running }) {
  const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
  const others = running.map(({ worker, rows, differs_in: apart }) => `${plural(rows, "row")} of this model on ${worker}${apart.length ? `, which differ in ${apart.map(field).join(", ").toLowerCase()}` : ""}.`);
  return section(
    status === "queued" ? "Why does it wait?" : "What is it waiting for?",
    el("ul", { class: "reasons" }, reasons.map(({ message }) => el("li", {}, sentence(message)))),
    others.length ? [el("p", { class: "hint" }, "Under way meanwhile:"), el("ul", { class: "reasons" }, others.map((text) => el("li", {}, text)))] : null,
  );
}

const section = (title, ...children) => el("section", {}, el("h3", {}, title), ...children);
const button = (text, onclick) => el("button", { type: "button", class: "quiet", onclick }, text);

function actions(job, on) {
  const { request } = job;
  const live = isLive(job);
  const first = [
    live ? el("button", { type: "button", class: "quiet", disabled: Boolean(job.abort_requested), onclick: () => on.abort(job) }, "Abort") : button("Replay", () => on.replay(job)),
    button("New seed", () => on.again(job)),
    button("Edit", () => on.edit(job)),
    job.status === "succeeded" ? button("Compare seeds", () => on.compareSeeds(job)) : null,
  ];
  if (request.group) first.push(twoStep(`Abort all of group ${request.group}`, "Click again to abort them all", () => on.abortGroup(request.group)));
  const copies = [["curl", () => asCurl(request)], ["Python", () => asPython(request)], ["JSON", () => asJson(job)], ["ID", () => job.id]];
  return el(
    "div",
    { class: "detail-actions" },
    el("div", { class: "row" }, first.filter(Boolean)),
    el("div", { class: "row" }, el("span", { class: "hint" }, "Copy as"), copies.map(([name, text]) => button(name, () => on.copy(name, text())))),
  );
}

function troubles(job) {
  const last = job.status === "failed" && job.error ? [el("p", { class: "fault" }, `${FAULTS[job.error.type] ?? "It failed."} ${job.error.message}`)] : [];
  const attempts = job.errors.map((error) => el("li", {}, `Attempt ${error.attempt}, ${error.type}: ${error.message}`));
  const warnings = warningsOf(job).map((text) => el("li", {}, text));
  const parts = [
    ...last,
    attempts.length ? section(`Failed attempts`, el("ol", { class: "attempts" }, attempts)) : null,
    warnings.length ? section("Warnings", el("ul", { class: "warnings" }, warnings)) : null,
  ].filter(Boolean);
  return parts.length ? el("div", { class: "troubles" }, parts) : null;
}

export function requestFacts(request) {
  const plain = Object.entries(request).filter(([name, value]) => !ELSEWHERE.has(name) && value !== null && UNTOUCHED[name] !== value && value !== "");
  return facts([
    ["Size", `${request.width} × ${request.height}`],
    ...plain.map(([name, value]) => [field(name), value === true ? "yes" : value]),
    ["LoRAs", (request.loras ?? []).map(({ name, scale }) => `${name} × ${scale}`).join(", ")],
    ["Image", source(request.image)],
    ["Mask", source(request.mask_image)],
  ]);
}

const source = (uri) => (uri?.startsWith("data:") ? "sent with the request" : uri);

function runFacts(job) {
  const { metrics } = job;
  return facts([
    ["Job", job.id],
    ["Retry of", job.retry_of],
    ["Attempt", job.attempt || null],
    ["Worker", job.worker],
    ["Created", moment(job.created_at)],
    ["Started", moment(job.started_at)],
    ["Ended", moment(job.finished_at)],
    ["Waited", ms(metrics.queue_ms)],
    ["Preparing", ms(metrics.preprocess_ms)],
    ["Denoising", ms(metrics.denoise_ms)],
    ["Decoding", ms(metrics.decode_ms)],
    ["Uploading", ms(metrics.upload_ms)],
    ["In all", ms(metrics.total_ms)],
    ["Mean batch", metrics.batch_size_mean == null ? null : `${metrics.batch_size_mean.toFixed(1)} rows`],
    ["Device time", metrics.device_seconds == null ? null : ms(1000 * metrics.device_seconds)],
  ]);
}

function files(job) {
  if (job.outputs.length === 0) return null;
  const items = job.outputs.map((output) => {
    const about = [output.width ? `${output.width}×${output.height}` : null, output.num_frames ? `${output.num_frames} frames` : null, output.duration_s ? `${output.duration_s} s` : null, bytes(output.size_bytes), `seed ${output.seed}`];
    return el("li", {}, el("code", {}, output.uri), el("span", {}, about.filter(Boolean).join(" · ")), el("code", { class: "sha" }, `sha256 ${output.sha256}`));
  });
  return section("Files", el("ul", { class: "files" }, items));
}
