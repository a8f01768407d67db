// A job's request as something to paste: curl, Python, JSON. Without nulls and defaults, as its producer would write it.

import { key } from "./api.js";
import { toJson } from "./json.js";

const DEFAULTS = { num_outputs: 1, priority: 5, exact: false, supersede: false, preview_every: 0, output_prefix: "" };

export function essential(request) {
  const isEmpty = (value) => typeof value === "object" && Object.keys(value).length === 0;
  const kept = Object.entries(request).filter(([name, value]) => value !== null && DEFAULTS[name] !== value && !isEmpty(value));
  return Object.fromEntries(kept);
}

export function asCurl(request) {
  const body = toJson(essential(request)).replaceAll("'", "'\\''");
  const auth = key.get() ? ` \\\n  -H "Authorization: Bearer $SAFELIGHT_API_KEY"` : "";
  return `curl ${new URL("v1/jobs", document.baseURI)} \\\n  -H 'Content-Type: application/json'${auth} \\\n  -d '${body}'\n`;
}

export function asPython(request) {
  // A JSON string is a Python string too; true, false and null are not.
  const words = { true: "True", false: "False", null: "None" };
  const body = toJson(essential(request), 4).replace(/"(?:[^"\\]|\\.)*"|\b(true|false|null)\b/g, (text, word) => (word ? words[word] : text));
  return `from tasks import Client\n\nclient = Client()\njob = client.submit(${body})\njob = client.wait(job.id, timeout_s=600)\nprint(job.status, client.result_urls(job.id))\n`;
}

export function asJson(job) {
  const { preview, ...record } = job;
  return `${toJson(record, 2)}\n`;
}
