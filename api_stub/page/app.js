// Puts the page together: who hears of which job, what each button does, and how the page keeps up with the server.

import { Problem, api, key } from "./api.js";
import { copy } from "./clipboard.js";
import { Compare, MAX_COMPARED, sameButSeed } from "./compare.js";
import { DeadLetters } from "./dead_letters.js";
import { Detail } from "./detail.js";
import { $, el, setText } from "./dom.js";
import { Filters } from "./filters.js";
import { RequestForm } from "./form.js";
import { Gallery } from "./gallery.js";
import { Jobs, isLive } from "./jobs.js";
import { KeyDialog } from "./key_dialog.js";
import { announce, notice, toast } from "./notice.js";
import { Queue } from "./queue.js";
import { Selection } from "./selection.js";
import { System } from "./system.js";
import { Watcher } from "./watcher.js";
import { Webhooks } from "./webhooks.js";
import { STATUS, shorten } from "./words.js";

const POLL_MS = 2500;
const MAX_LIVE = 200;

const jobs = new Jobs();
const form = new RequestForm($("form"), submit);
const keyDialog = new KeyDialog(() => refresh());
const actions = { abort, abortGroup, replay, again, edit, useAsInput, compareSeeds, details, copy: copyAs, explain: (job) => api.explain(job.id).catch(() => null), closed: leaveDetail };
const selection = new Selection((ids) => compare.open(ids.map((id) => jobs.get(id)).filter(Boolean)), (id) => uncheck(id));
const gallery = new Gallery(jobs, { ...actions, report, pick: (job, isPicked) => selection.pick(job.id, isPicked), isPicked: (job) => selection.has(job.id) });
const queue = new Queue(actions);
const detail = new Detail(actions);
const compare = new Compare(details);
const system = new System(drain);
const dead = new DeadLetters({ retried: (job) => jobs.take(job), details: (id) => openById(id), say: toast, report });
const webhooks = new Webhooks({ details: (id) => openById(id), say: toast, report });
const filters = new Filters(refilter, abortGroup);
let numWaiting = 0;
let isDrawing = false;

jobs.subscribe((job, before) => {
  gallery.show(job, before);
  if (job) detail.update(job);
  else if (detail.id === before.id) detail.close();
  if (job && before && isLive(before) && !isLive(job)) announce(`${STATUS[job.status]}: ${shorten(job.request.prompt, 80)}`);
  if (!isDrawing) isDrawing = Boolean(requestAnimationFrame(drawRest));
});
new Watcher(jobs);

/** What depends on all jobs together: once a frame, however many changed. */
function drawRest() {
  isDrawing = false;
  const waiting = jobs.all.filter((job) => job.status === "queued" && gallery.passes(job));
  queue.draw(waiting, filters.isOn ? waiting.length : Math.max(numWaiting, waiting.length));
  drawEmpty(waiting.length);
}

function drawEmpty(numQueued) {
  const isEmpty = gallery.cursor !== undefined && gallery.numShown + numQueued === 0;
  $("empty").hidden = !isEmpty;
  if (!isEmpty) return;
  for (const skeleton of $("sheet").querySelectorAll(".skeleton")) skeleton.remove();
  const clear = el("button", { type: "button", class: "quiet", onclick: () => filters.clear() }, "Show all jobs");
  const invite = el("button", { type: "button", class: "quiet", onclick: () => $("prompt").focus() }, "Write a prompt");
  const more = gallery.cursor ? " Older ones may: load them below." : "";
  if (filters.isOn) $("empty").replaceChildren(el("p", {}, `No job here matches.${more}`), clear);
  else $("empty").replaceChildren(el("p", {}, "No jobs yet. Write a prompt and press Generate: progress, previews and results show here."), invite);
}

function refilter(filter) {
  gallery.filter = filter;
  gallery.refilter();
  drawRest();
  if (gallery.cursor === undefined) guarded(() => gallery.first().then(drawRest));
}

// -- what the buttons do ---------------------------------------------------------------------------------------------

function report(error) {
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401) keyDialog.ask(error);
  else if (error.status === 0) notice("offline", "The API does not answer. Trying again…");
  else toast(error.message);
}

async function guarded(work) {
  try {
    return await work();
  } catch (error) {
    report(error);
    return null;
  }
}

async function submit(request) {
  form.busy = true;
  try {
    jobs.take(await api.submit(request, crypto.getRandomValues(new Uint32Array(4)).join("-")));
    form.errors.clearAll();
    toast("Accepted.");
    if ($("results").getBoundingClientRect().top > innerHeight / 2) $("results").scrollIntoView({ behavior: "smooth" });
  } catch (error) {
    if (error.status === 401) report(error);
    else if (error instanceof Problem) form.errors.show(error);
    else throw error;
  } finally {
    form.busy = false;
  }
}

async function abort(job) {
  jobs.hear({ type: "status", data: { id: job.id, status: job.status, abort_requested: true } });
  const answer = await guarded(() => api.abort(job.id));
  if (answer) jobs.take(answer);
  else jobs.hear({ type: "status", data: { id: job.id, status: job.status, abort_requested: false } }); // it was not heard
}

async function abortGroup(group) {
  const answer = await guarded(() => api.abortGroup(group));
  if (!answer) return;
  for (const id of answer.aborted) jobs.hear({ type: "status", data: { id, status: jobs.get(id)?.status, abort_requested: true } });
  toast(answer.aborted.length ? `Aborting ${answer.aborted.length} of group ${group}.` : `Group ${group} has no live job.`);
}

async function replay(job) {
  const answer = await guarded(() => api.replay(job.id));
  if (!answer) return;
  jobs.take(answer);
  toast("Accepted: the same request once more.");
}

/** The whole request: the lists leave out the bytes of pictures. */
async function wholeRequest(job) {
  const isCut = [job.request.image, job.request.mask_image].some((uri) => uri?.endsWith(",..."));
  return isCut ? (await api.job(job.id)).request : job.request;
}

async function again(job) {
  const answer = await guarded(async () => {
    const { seed, ...request } = await wholeRequest(job);
    const given = Object.entries(request).filter(([, value]) => value !== null);
    return api.submit(Object.fromEntries(given), crypto.getRandomValues(new Uint32Array(4)).join("-"));
  });
  if (!answer) return;
  jobs.take(answer);
  toast("Accepted, with a new seed.");
}

async function edit(job) {
  const request = await guarded(() => wholeRequest(job));
  if (!request) return;
  detail.close();
  showView("jobs");
  form.fill(request);
  $("form").scrollIntoView({ block: "nearest" });
}

function useAsInput(job, output) {
  if (!form.model?.image_input) return toast(`Model ${form.model?.name} takes no picture.`);
  form.image.set(output.uri, output.url, `Output of job ${job.id}`);
  form.image.onChange();
  detail.close();
  showView("jobs");
  $("prompt").focus();
  toast("Set as the picture to start from.");
}

function compareSeeds(job) {
  const alike = jobs.all.filter((each) => each.status === "succeeded" && each.id !== job.id && sameButSeed(each.request) === sameButSeed(job.request));
  const chosen = [job, ...alike].filter((each) => each.status === "succeeded").slice(0, MAX_COMPARED);
  if (chosen.length === 0 || (chosen.length === 1 && job.outputs.length < 2)) return toast("No other result of this request here. Press New seed to make one.");
  compare.open(chosen);
}

async function copyAs(name, text) {
  toast((await copy(text)) ? `Copied as ${name}.` : "The browser did not allow copying.");
}

function uncheck(id) {
  const card = gallery.card(id);
  if (card) card.checkbox.checked = false;
}

async function drain(name) {
  try {
    await api.drain(name);
    toast("It takes no new job and stops when it has finished.");
  } catch (error) {
    if (error.status !== 404 && error.status !== 405) return report(error);
    toast("This server cannot drain a worker over HTTP. Send the process SIGTERM.");
    return false;
  }
  return true;
}

// -- views: #jobs, #system, #job/ID ----------------------------------------------------------------------------------

function showView(name) {
  for (const view of ["jobs", "system"]) {
    $(`view-${view}`).hidden = view !== name;
    if (view === name) $(`tab-${view}`).setAttribute("aria-current", "page");
    else $(`tab-${view}`).removeAttribute("aria-current");
  }
}

function details(job) {
  history.replaceState(null, "", `#job/${encodeURIComponent(job.id)}`);
  detail.open(jobs.get(job.id) ?? job);
}

async function openById(id) {
  const job = jobs.get(id) ?? (await guarded(() => api.job(id)));
  if (!job) return;
  jobs.take(job);
  details(job);
}

function leaveDetail() {
  if (location.hash.startsWith("#job/")) history.replaceState(null, "", $("view-system").hidden ? "#jobs" : "#system");
}

function route() {
  const [, view, id] = location.hash.match(/^#(\w+)(?:\/(.+))?$/) ?? [];
  if (view === "job" && id) openById(decodeURIComponent(id));
  else if (view === "jobs" || view === "system") showView(view);
}

window.addEventListener("hashchange", route);

// -- keeping up ------------------------------------------------------------------------------------------------------

async function refresh() {
  try {
    if (!form.model) await start();
    const [queues, workers] = await Promise.all([api.queues(), api.workers(), gallery.first()]);
    await catchUp(queues.queues);
    showSystem(queues.queues, workers.workers);
    notice("offline", "");
    await Promise.all([dead.refresh(), webhooks.refresh()]);
  } catch (error) {
    report(error);
  }
}

async function start() {
  const models = await api.models();
  form.setModels(models);
  system.setModels(models.models);
  form.busy = false;
  filters.offer(models.models.map((model) => model.name), []);
  $("change-key").hidden = !key.get();
}

/** The newest page may not reach down to what runs and waits, and only the records know the place in the queue. */
async function catchUp(queues) {
  const sum = (name) => queues.reduce((total, queue) => total + queue[name], 0);
  numWaiting = sum("queued");
  for (const [status, count] of [["running", sum("running")], ["queued", numWaiting]]) {
    const known = jobs.all.filter((job) => job.status === status);
    if (count === 0 && known.length === 0) continue;
    const page = await api.jobs({ status, limit: MAX_LIVE });
    for (const job of page.jobs) jobs.take(job);
    if (page.cursor === null) await settle(known, page.jobs);
  }
  drawRest();
}

/** Those that the page holds for live and the complete list does not: look at each, an event of theirs was missed. */
async function settle(known, found) {
  const ids = new Set(found.map((job) => job.id));
  for (const job of known.filter((each) => !ids.has(each.id) && jobs.get(each.id)?.status === each.status).slice(0, 20)) {
    try {
      jobs.take(await api.job(job.id));
    } catch (error) {
      if (error.status !== 404) throw error;
      jobs.drop(job.id);
    }
  }
}

function showSystem(queues, workers) {
  const sum = (name) => queues.reduce((total, queue) => total + queue[name], 0);
  const standing = jobs.all.filter((job) => job.status === "running" && job.progress.detail).length; // a worker has them and has not begun
  setText($("num-queued"), String(sum("queued") + standing));
  setText($("num-running"), String(Math.max(0, sum("running") - standing)));
  setText($("num-workers"), String(workers.length));
  setText($("workers-word"), workers.length === 1 ? "worker" : "workers");
  $("lamp").dataset.state = workers.length === 0 ? "off" : sum("running") > 0 ? "working" : "on";
  notice("workers", workers.length === 0 && sum("queued") > 0 ? "No worker is running: jobs wait until one starts." : "");
  system.draw(queues, workers);
  filters.offer(queues.map((queue) => queue.model), jobs.all);
}

async function poll() {
  if (!document.hidden && !keyDialog.isOpen) await refresh();
  setTimeout(poll, POLL_MS);
}

document.addEventListener("visibilitychange", () => !document.hidden && refresh());
poll();
route();
