// Requests to the server that this page came from, and its refusals as sentences.

const KEY = "strata.key";
let key = read(sessionStorage) ?? read(localStorage) ?? "";
let askForKey = async () => false;

function read(storage) {
  try {
    return storage.getItem(KEY);
  } catch {
    return null;
  }
}

/** `ask(refused)` shows that a key is needed, or another than the one refused, and resolves to whether there is a new one. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

export const currentKey = () => key;

/** `remember`: also after the browser was closed. */
export function setKey(value, remember) {
  key = value;
  for (const [storage, keep] of [[sessionStorage, true], [localStorage, remember]]) {
    try {
      if (keep && value) storage.setItem(KEY, value);
      else storage.removeItem(KEY);
    } catch {
      // A browser that keeps nothing has the key until the page is closed.
    }
  }
}

/** What went wrong, in words for people. `retryAfter` in seconds or null, `status` 0 when nobody answered. */
export class ServerError extends Error {
  constructor(message, { status = 0, code = "", param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, code, param, retryAfter });
  }
}

/** The error that an error body stands for. */
export function errorOf(body, status, header = null) {
  const detail = body?.error ?? {};
  const message = typeof detail.message === "string" && detail.message
    ? detail.message : `The server answered with status ${status} and did not say why.`;
  const seconds = Number(header ?? detail.retry_after ?? NaN);
  return new ServerError(message, {
    status, code: detail.code ?? "", param: detail.param ?? null,
    retryAfter: Number.isFinite(seconds) && seconds >= 0 ? seconds : null,
  });
}

/** The response of the server; asks for a key once when that is what is missing. Throws ServerError, or AbortError. */
export async function send(path, { body = null, signal = null, quiet = false } = {}) {
  const headers = { accept: "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== null) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === null ? "GET" : "POST", headers, signal, cache: "no-store",
      body: body === null ? null : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer. Is it still running, and can this device reach it?");
  }
  if (response.ok) return response;
  const failure = errorOf(await response.json().catch(() => null), response.status, response.headers.get("retry-after"));
  if (response.status === 401 && !quiet && await askForKey(key !== "")) return send(path, { body, signal, quiet });
  throw failure;
}

/** What /health says, whatever its status; null when nobody answers. */
export async function health() {
  try {
    const response = await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    return await response.json();
  } catch {
    return null;
  }
}
