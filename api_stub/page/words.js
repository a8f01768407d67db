// The words of states, stages, faults and figures. One place, so that the page says the same thing everywhere.

export const STATUS = { queued: "Waiting", running: "Running", succeeded: "Done", failed: "Failed", aborted: "Aborted" };

const STAGES = {
  queued: "Starting",
  loading: "Starting",
  encoding: "Reading the prompt",
  denoising: "Denoising",
  decoding: "Decoding",
  uploading: "Uploading",
};

export const FAULTS = {
  invalid_request: "The request does not fit the model.",
  invalid_image: "The input image cannot be used.",
  model_error: "The model failed on this request.",
  out_of_memory: "The device ran out of memory. A smaller size or fewer outputs may fit.",
  upload_failed: "The result was made but could not be stored.",
  deadline_exceeded: "It was not done before its deadline.",
  worker_lost: "Its worker was lost, again and again.",
  internal: "Something broke on the server's side.",
};

export const seconds = (value) => {
  if (value < 10) return `${Math.max(0.1, value).toFixed(1)} s`;
  if (value < 90) return `${Math.round(value)} s`;
  return value < 5400 ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`;
};
export const ms = (value) => (value == null ? null : value < 1000 ? `${Math.round(value)} ms` : seconds(value / 1000));
export const bytes = (value) => {
  if (value == null) return null;
  if (value < 1024) return `${value} B`;
  return value < 2 ** 20 ? `${(value / 1024).toFixed(1)} KiB` : value < 2 ** 30 ? `${(value / 2 ** 20).toFixed(1)} MiB` : `${(value / 2 ** 30).toFixed(1)} GiB`;
};
export const moment = (text) => (text ? new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" }) : null);
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
export const field = (name) => (name === "fps" ? "FPS" : name).replaceAll("_", " ").replace(/^num inference steps$/, "steps").replace(/^num /, "").replace(/^./, (c) => c.toUpperCase());

/** What a job is doing, in a few words. */
export function doing(job) {
  const { status, progress, abort_requested: aborting } = job;
  if (aborting && (status === "queued" || status === "running")) return "Aborting";
  if (status === "queued") return queuePlace(progress.queue_position);
  if (status !== "running") return status === "succeeded" ? `Done in ${took(job)}` : STATUS[status];
  if (progress.stage === "denoising" && progress.num_steps) return `Step ${progress.step} of ${progress.num_steps}`;
  if (progress.detail) return progress.detail.replace(/^./, (c) => c.toUpperCase());
  return STAGES[progress.stage] ?? "Starting";
}

export const queuePlace = (position) => (position == null ? "Waiting" : position === 0 ? "Next in line" : `${plural(position, "job")} ahead`);

function took({ metrics, created_at: created, finished_at: finished }) {
  return seconds((metrics.total_ms ?? new Date(finished) - new Date(created)) / 1000);
}
