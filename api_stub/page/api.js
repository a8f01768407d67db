// Talks to the HTTP API: bearer token, problem JSON, server-sent events. Knows nothing of the page.

const KEY = "safelight-key";
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** An answer that is not a success, in words; `fields` maps wrong fields to messages. */
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail ?? body.title ?? `the API answered ${status}`);
    this.status = status;
    this.kind = (body.type ?? "").split(":").pop();
    this.title = body.title ?? "";
    this.retryAfter = retryAfter;
    this.fields = new Map((body.errors ?? []).map((error) => [error.field, error.message]));
  }
}

// A seed may need 63 bits and a JavaScript number keeps 53: seeds that long stay text on the page, digits on the wire.
// Neither pattern can match inside a string, where the quotes are escaped.
const parse = (text) => JSON.parse(text.replace(/"seed":\s*(\d{16,})/g, '"seed":"$1"'));
export const toJson = (value, indent) => JSON.stringify(value, null, indent).replace(/"seed":(\s*)"(\d+)"/g, '"seed":$1$2');

const headers = (extra) => (key.get() ? { Authorization: `Bearer ${key.get()}`, ...extra } : { ...extra });

async function call(path, { method = "GET", body, signal, accept = "application/json", more } = {}) {
  const sent = headers({ Accept: accept, ...more, ...(body === undefined ? {} : { "Content-Type": "application/json" }) });
  let response;
  try {
    response = await fetch(path, { method, headers: sent, body: body === undefined ? undefined : toJson(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { title: "Offline", detail: "The API cannot be reached." });
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

const json = async (path, options) => parse(await (await call(path, options)).text());
const jobPath = (id, rest = "") => `v1/jobs/${encodeURIComponent(id)}${rest}`;

export const api = {
  models: () => json("v1/models"),
  queues: () => json("v1/queues"),
  workers: () => json("v1/workers"),
  jobs: (limit, cursor) => json(`v1/jobs?limit=${limit}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`),
  job: (id) => json(jobPath(id)),
  submit: (request, idempotencyKey) =>
    json("v1/jobs", { method: "POST", body: request, more: { "Idempotency-Key": idempotencyKey } }),
  abort: (id) => json(jobPath(id, "/abort"), { method: "POST" }),
  replay: (id) => json(jobPath(id, "/replay"), { method: "POST" }),
  outputs: (id) => json(jobPath(id, "/outputs")),
};

/** The events of a job from `lastId` on; ends when the server closes. `fetch`, as EventSource cannot send a token. */
export async function* events(id, { signal, lastId }) {
  const more = lastId ? { "Last-Event-ID": lastId } : {};
  const response = await call(jobPath(id, "/events"), { signal, accept: "text/event-stream", more });
  if (response.status === 204) return;
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
