// Talks to the HTTP API: bearer token, problem JSON, server-sent events. Knows nothing of the page.

import { parse, toJson } from "./json.js";

const KEY = "safelight-key";
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** An answer that is not a success, in words; `fields` maps wrong fields to messages. Status 0: no answer. */
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail ?? body.title ?? `The API answered ${status}.`);
    this.status = status;
    this.retryAfter = retryAfter;
    this.fields = new Map((body.errors ?? []).map((error) => [error.field, error.message]));
  }
}

const headers = (extra) => (key.get() ? { Authorization: `Bearer ${key.get()}`, ...extra } : { ...extra });

async function call(path, { method = "GET", body, signal, accept = "application/json", more } = {}) {
  const sent = headers({ Accept: accept, ...more, ...(body === undefined ? {} : { "Content-Type": "application/json" }) });
  let response;
  try {
    response = await fetch(path, { method, headers: sent, body: body === undefined ? undefined : toJson(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The API cannot be reached." });
  }
  if (response.ok) return response;
  const text = await response.text();
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
    problem.detail = `The API answered ${response.status}.`;
  }
  throw new Problem(response.status, problem, Number(response.headers.get("Retry-After")) || null);
}

async function json(path, options) {
  const text = await (await call(path, options)).text();
  return text ? parse(text) : null;
}

const post = (path, body, more) => json(path, { method: "POST", body, more });
const jobPath = (id, rest = "") => `v1/jobs/${encodeURIComponent(id)}${rest}`;
const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value != null && value !== ""));

/** Null where this server does not have the route, or not that thing. */
export async function ifThere(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof Problem && (error.status === 404 || error.status === 405)) return null;
    throw error;
  }
}

export const api = {
  models: () => json("v1/models"),
  queues: () => json("v1/queues"),
  workers: () => json("v1/workers"),
  jobs: (filter) => json(`v1/jobs?${query({ brief: true, ...filter })}`),
  job: (id) => json(jobPath(id)),
  submit: (request, idempotencyKey) => post("v1/jobs", request, { "Idempotency-Key": idempotencyKey }),
  abort: (id) => post(jobPath(id, "/abort")),
  abortGroup: (group) => post(`v1/jobs/abort?${query({ group })}`),
  replay: (id) => post(jobPath(id, "/replay")),
  outputs: (id) => json(jobPath(id, "/outputs")),
  explain: (id) => ifThere(json(jobPath(id, "/explain"))),
  deadLetters: () => ifThere(json("v1/dead-letters")),
  deadLetter: (id) => ifThere(json(`v1/dead-letters/${encodeURIComponent(id)}?traceback=true`)),
  retryDeadLetter: (id) => post(`v1/dead-letters/${encodeURIComponent(id)}/retry`),
  purgeDeadLetter: (id) => json(`v1/dead-letters/${encodeURIComponent(id)}`, { method: "DELETE" }),
  webhooks: () => ifThere(json("v1/webhooks")),
  retryWebhook: (id) => post(`v1/webhooks/${encodeURIComponent(id)}/retry`),
  purgeWebhook: (id) => json(`v1/webhooks/${encodeURIComponent(id)}`, { method: "DELETE" }),
  drain: (worker) => post(`v1/workers/${encodeURIComponent(worker)}/drain`),
};

/** The events of several jobs, `{ job id: last event seen }`; ends when the server closes. EventSource cannot send a token. */
export async function* events(after, signal) {
  const ids = Object.entries(after).map(([id, last]) => (last ? `${id}@${last}` : id));
  const response = await call(`v1/events?${query({ ids: ids.join(",") })}`, { signal, accept: "text/event-stream" });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parseBlock(block);
      if (event) yield event;
    }
  }
}

function parseBlock(block) {
  const event = { id: "", type: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("event: ")) event.type = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event.data ? { ...event, data: parse(event.data) } : null;
}
