// The jobs that the page knows. Answers and events come in any order: what is older never replaces what is newer.

const TERMINAL = new Set(["succeeded", "failed", "aborted"]);
export const isLive = (job) => !TERMINAL.has(job.status);

/** Newest first. */
export const byAge = (a, b) => b.created_at.localeCompare(a.created_at) || b.id.localeCompare(a.id);

export class Jobs {
  #known = new Map();
  #listeners = [];

  /** `listener(job, before)`; `before` is null for a new one, `job` for one that is gone. */
  subscribe(listener) {
    this.#listeners.push(listener);
  }

  get(id) {
    return this.#known.get(id);
  }

  get all() {
    return [...this.#known.values()];
  }

  take(job) {
    const before = this.#known.get(job.id) ?? null;
    if (before && isStale(before, job)) return;
    this.#set(before ? merged(before, job) : job, before);
  }

  drop(id) {
    const before = this.#known.get(id);
    this.#known.delete(id);
    if (before) this.#tell(null, before);
  }

  /** An event of the job's stream. */
  hear({ type, data }) {
    if (type === "gone") return this.drop(data.id);
    if (type === "done") return this.take(data);
    const job = this.#known.get(data.id);
    if (!job || !isLive(job)) return;
    if (type === "preview") this.#set({ ...job, preview: data.image }, job);
    else if (type === "progress") this.#set(progressed(job, data), job);
    else if (type === "status") this.#set(moved(job, data), job);
  }

  #set(job, before) {
    this.#known.set(job.id, job);
    this.#tell(job, before);
  }

  #tell(job, before) {
    for (const listener of this.#listeners) listener(job, before);
  }
}

function isStale(before, job) {
  return (!isLive(before) && isLive(job)) || job.attempt < before.attempt;
}

function merged(before, job) {
  const kept = isLive(job) ? { preview: before.preview, abort_requested: before.abort_requested || job.abort_requested } : {};
  const isBehind = job.status === "running" && job.attempt === before.attempt && before.progress.fraction > job.progress.fraction;
  const progress = isBehind ? { ...before.progress, eta_s: job.progress.eta_s } : job.progress;
  return { ...job, ...kept, progress };
}

function progressed(job, data) {
  const { id, attempt, eta_s: eta, ...progress } = data;
  const known = job.progress; // the record knows a time that is left, events need not
  return { ...job, status: "running", attempt: attempt ?? job.attempt, progress: { ...known, ...progress, eta_s: eta ?? known.eta_s } };
}

function moved(job, { status, attempt, worker, abort_requested = job.abort_requested }) {
  if (TERMINAL.has(status)) return { ...job, abort_requested: job.abort_requested || status === "aborted" }; // `done` brings the record
  const progress = status === job.status ? job.progress : { ...job.progress, stage: status === "queued" ? "queued" : "loading", step: 0, fraction: 0 };
  return { ...job, status, attempt: attempt ?? job.attempt, worker: worker ?? job.worker, abort_requested, progress };
}
