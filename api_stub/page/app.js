// Puts the page together: form, prints, the strip above, and who is watched through an event stream.

import { Problem, api, events, key } from "./api.js";
import { Card, isLive } from "./card.js";
import { RequestForm } from "./form.js";

const PAGE_SIZE = 24;
//: A browser opens six connections to one host; two stay free for everything else.
const MAX_STREAMS = 4;
const POLL_MS = 2500;

const $ = (id) => document.getElementById(id);
const cards = new Map();
const streams = new Map();
let cursor = null;

const say = (text) => ($("live").textContent = text);
const form = new RequestForm($("form"), submit);

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function report(error) {
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401) askKey(error);
  else notice(error.message);
}

async function submit(request) {
  if (!request.prompt.trim()) {
    form.showProblem(new Problem(422, { detail: "", errors: [{ field: "prompt", message: "say what to make." }] }));
    return;
  }
  form.busy = true;
  try {
    add(await api.submit(request, crypto.getRandomValues(new Uint32Array(4)).join("-")), true);
    form.clearErrors();
    notice("");
    say("Accepted; it waits for a worker.");
    watchMore();
  } catch (error) {
    if (error.status === 401) report(error);
    else if (error instanceof Problem) form.showProblem(error);
    else throw error;
  } finally {
    form.busy = false;
  }
}

const actions = {
  say,
  async abort(card) {
    await guarded(async () => {
      update(await api.abort(card.job.id));
      say("Abort asked for.");
    });
  },
  async replay(card) {
    await guarded(async () => {
      add(await api.replay(card.job.id), true);
      watchMore();
    });
  },
  async reuse(card) {
    form.fill(card.job.request);
    $("form").scrollIntoView({ block: "nearest" });
  },
};

async function guarded(work) {
  try {
    await work();
    notice("");
  } catch (error) {
    report(error);
  }
}

function add(job, first) {
  if (cards.has(job.id)) return update(job);
  const card = new Card(job, actions);
  cards.set(job.id, card);
  if (first) $("sheet").prepend(card.element);
  else $("sheet").append(card.element);
  $("empty").hidden = true;
  return card;
}

function update(job) {
  const card = cards.get(job.id);
  if (!card || (!isLive(card.job) && isLive(job))) return card;
  const ended = isLive(card.job) && !isLive(job);
  card.update(job);
  if (ended) say(`${card.parts.stage.textContent}: ${job.request.prompt.slice(0, 80)}`);
  return card;
}

/** Newest first, merged: what is known is updated, what is new goes on top. */
function merge(jobs) {
  for (const job of [...jobs].reverse()) {
    if (cards.has(job.id)) update(job);
    else add(job, true);
  }
}

// -- streams: the running jobs first, then the oldest that wait; the rest are polled ---------------------------------

function watchMore() {
  const live = [...cards.values()].filter((card) => isLive(card.job) && !streams.has(card.job.id));
  live.sort((a, b) => (b.job.status === "running") - (a.job.status === "running") || a.job.created_at.localeCompare(b.job.created_at));
  for (const card of live.slice(0, MAX_STREAMS - streams.size)) watch(card);
}

async function watch(card) {
  const { id } = card.job;
  const stop = new AbortController();
  streams.set(id, stop);
  let lastId = card.lastEventId ?? "";
  try {
    for await (const event of events(id, { signal: stop.signal, lastId })) {
      lastId = event.id || lastId;
      handle(card, event);
    }
  } catch (error) {
    if (error instanceof Problem && error.status === 404) vanish(card);
  } finally {
    card.lastEventId = lastId;
    streams.delete(id);
    setTimeout(watchMore, isLive(card.job) ? 1500 : 0);
  }
}

function handle(card, { type, data }) {
  if (type === "done") update(data);
  else if (type === "preview") card.showPreview(data);
  else if (type === "progress" && isLive(card.job)) {
    if (card.job.status === "queued") card.job = { ...card.job, status: "running" };
    const known = card.job.progress; // the record knows a time that is left, events need not
    update({ ...card.job, progress: { ...known, ...data, eta_s: data.eta_s ?? known.eta_s } });
  } else if (type === "status" && isLive(card.job) && data.status) {
    if (!["succeeded", "failed", "aborted"].includes(data.status)) update({ ...card.job, status: data.status });
  }
}

function vanish(card) {
  card.element.remove();
  cards.delete(card.job.id);
}

// -- the list and the strip ---------------------------------------------------------------------------------------

async function refresh() {
  const [page, queues, workers] = await Promise.all([api.jobs(PAGE_SIZE), api.queues(), api.workers()]);
  merge(page.jobs);
  showStrip(queues.queues, workers.workers);
  watchMore();
  return page;
}

function showStrip(queues, workers) {
  const sum = (name) => queues.reduce((total, queue) => total + queue[name], 0);
  $("num-queued").textContent = sum("queued");
  $("num-running").textContent = sum("running");
  $("num-workers").textContent = workers.length;
  $("lamp").dataset.state = workers.length === 0 ? "off" : sum("running") > 0 ? "working" : "on";
  if (workers.length === 0 && sum("queued") > 0) notice("No worker is running: jobs wait until one starts.");
  else if ($("notice").textContent.startsWith("No worker")) notice("");
}

let lost = false;
async function poll() {
  if (!document.hidden && !$("key-dialog").open) {
    try {
      await (form.model ? refresh() : start());
      if (lost) notice("");
      lost = false;
    } catch (error) {
      lost = error.status !== 401;
      report(error);
    }
  }
  setTimeout(poll, POLL_MS);
}

$("more").addEventListener("click", () =>
  guarded(async () => {
    const page = await api.jobs(PAGE_SIZE, cursor);
    for (const job of page.jobs) add(job, false);
    ({ cursor } = page);
    $("more").hidden = cursor === null;
  }),
);

document.addEventListener("visibilitychange", () => !document.hidden && guarded(refresh));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const card = [...cards.values()].find((each) => each.element.contains(event.target));
  if (!card || card.parts.menu.hidden) return;
  card.toggle(false);
  card.buttons.more.focus();
});

// -- the key ------------------------------------------------------------------------------------------------------

function askKey(error) {
  $("change-key").hidden = false;
  const dialog = $("key-dialog");
  $("key-error").textContent = key.get() ? error?.message ?? "" : "";
  $("key-error").hidden = !$("key-error").textContent;
  if (!dialog.open) dialog.showModal();
}

$("change-key").addEventListener("click", () => askKey());
$("key-form").addEventListener("submit", () => {
  key.set($("key").value.trim());
  $("key").value = "";
  start();
});

async function start() {
  try {
    form.setModels(await api.models());
    form.busy = false;
    const page = await refresh();
    ({ cursor } = page);
    $("more").hidden = cursor === null;
    $("empty").hidden = cards.size > 0;
    if (key.get()) $("change-key").hidden = false;
    notice("");
    return true;
  } catch (error) {
    report(error);
    return false;
  }
}

start().then(() => setTimeout(poll, POLL_MS));
