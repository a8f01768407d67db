// One event stream for all live jobs. A browser opens six connections to a host, for all its tabs together, so a hidden
// tab keeps none; when it is shown again, the list brings it up to date.

import { Problem, events } from "./api.js";
import { isLive } from "./jobs.js";

const MAX_JOBS = 100;
const SETTLE_MS = 120;
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 10_000;

export class Watcher {
  #jobs;
  #seen = new Map();
  #following = new Set();
  #stop = null;
  #soon = null;

  constructor(jobs) {
    this.#jobs = jobs;
    jobs.subscribe((job, before) => {
      const hasEnded = !job || !isLive(job);
      if (hasEnded) this.#forget((job ?? before).id);
      // With more jobs than one stream takes, the next ones come in when half of it is free.
      if (hasEnded ? this.#following.size < MAX_JOBS / 2 : !this.#following.has(job.id)) this.#soon ??= setTimeout(() => this.#sync(), SETTLE_MS);
    });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#end() : this.#sync()));
  }

  #forget(id) {
    this.#seen.delete(id);
    this.#following.delete(id);
  }

  #end() {
    this.#stop?.abort();
    this.#stop = null;
    this.#following.clear();
  }

  /** Those that run first, then those that wait, the oldest first. */
  #wanted() {
    const live = this.#jobs.all.filter(isLive);
    live.sort((a, b) => (b.status === "running") - (a.status === "running") || a.created_at.localeCompare(b.created_at));
    return live.slice(0, MAX_JOBS).map((job) => job.id);
  }

  #sync() {
    clearTimeout(this.#soon);
    this.#soon = null;
    const wanted = this.#wanted();
    if (document.hidden || wanted.every((id) => this.#following.has(id))) return;
    this.#end();
    this.#stop = new AbortController();
    this.#following = new Set(wanted);
    this.#run(this.#stop.signal, FIRST_PAUSE_MS);
  }

  async #run(signal, pause) {
    const after = Object.fromEntries([...this.#following].map((id) => [id, this.#seen.get(id)]));
    try {
      for await (const event of events(after, signal)) {
        pause = FIRST_PAUSE_MS;
        if (event.id) this.#seen.set(event.data.id, event.id);
        this.#jobs.hear(event);
      }
    } catch (error) {
      if (signal.aborted || !(error instanceof Problem || error instanceof TypeError)) return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (signal.aborted) return;
    this.#following = new Set(this.#wanted());
    if (this.#following.size) this.#run(signal, Math.min(2 * pause, LONGEST_PAUSE_MS));
  }
}
