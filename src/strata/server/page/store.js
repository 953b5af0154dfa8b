// The conversations: all in memory, each kept in the browser's IndexedDB as soon as it changes.

const NAME = "strata";
const TABLE = "conversations";
const SAVE_MS = 800;

const promised = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

/**
 * Events: "change" (detail: the conversation's id) when another tab or this one changed something,
 * "trouble" (detail: a sentence, or "" when it is over) when something cannot be kept.
 */
export class Store extends EventTarget {
  #database = null;
  #all = new Map();
  #pending = new Map();
  #busy = () => false;
  #channel = "BroadcastChannel" in window ? new BroadcastChannel(NAME) : null;
  #troubled = false;

  /** `busy(id)`: whether this tab is writing the conversation, so that another tab's version may not replace it. */
  static async open(busy) {
    const store = new Store();
    store.#busy = busy;
    try {
      const request = indexedDB.open(NAME, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: "id" });
      store.#database = await promised(request);
      for (const conversation of await promised(store.#table("readonly").getAll())) {
        store.#all.set(conversation.id, interrupted(conversation));
      }
    } catch {
      store.#database = null;
    }
    store.#channel?.addEventListener("message", (event) => store.#reload(event.data));
    window.addEventListener("pagehide", () => store.flush());
    return store;
  }

  /** Whether conversations outlive the page. */
  get keeps() {
    return this.#database !== null;
  }

  /** Newest first. */
  list() {
    return [...this.#all.values()].sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.#all.get(id) ?? null;
  }

  /** Keeps a conversation soon; `now`: at once. */
  save(conversation, { now = false, touch = true } = {}) {
    if (touch) conversation.updated = Date.now();
    this.#all.set(conversation.id, conversation);
    if (now) this.#write(conversation.id);
    else if (!this.#pending.has(conversation.id)) {
      this.#pending.set(conversation.id, setTimeout(() => this.#write(conversation.id), SAVE_MS));
    }
  }

  remove(id) {
    clearTimeout(this.#pending.get(id));
    this.#pending.delete(id);
    this.#all.delete(id);
    if (this.#database) this.#transact((table) => table.delete(id), id);
    this.#changed(id);
  }

  flush() {
    for (const id of [...this.#pending.keys()]) this.#write(id);
  }

  /** {usage, quota} in bytes and whether the browser promised to keep them; null where it does not tell. */
  async usage() {
    if (!navigator.storage?.estimate) return null;
    const { usage, quota } = await navigator.storage.estimate();
    return { usage, quota, persistent: (await navigator.storage.persisted?.()) ?? false };
  }

  #table(mode) {
    return this.#database.transaction(TABLE, mode).objectStore(TABLE);
  }

  #write(id) {
    clearTimeout(this.#pending.get(id));
    this.#pending.delete(id);
    const conversation = this.#all.get(id);
    if (conversation && this.#database) this.#transact((table) => table.put(conversation), id);
    this.#changed(id);
  }

  #transact(work, id) {
    try {
      const table = this.#table("readwrite");
      work(table);
      table.transaction.oncomplete = () => {
        this.#channel?.postMessage(id);
        this.#trouble("");
      };
      table.transaction.onabort = () => this.#failed(table.transaction.error);
    } catch (error) {
      this.#failed(error);
    }
  }

  async #failed(error) {
    if (error?.name !== "QuotaExceededError") {
      this.#trouble(`The browser could not keep this conversation (${error?.message ?? "it does not say why"}).`);
      return;
    }
    const usage = await this.usage().catch(() => null);
    const size = usage ? ` (${Math.round(usage.usage / 2 ** 20)} of ${Math.round(usage.quota / 2 ** 20)} MiB used)` : "";
    this.#trouble(`The browser's storage is full${size}: what you write now is lost on leaving the page. `
      + "Export and delete conversations to make room.");
  }

  #trouble(text) {
    if (!text && !this.#troubled) return;
    this.#troubled = text !== "";
    this.dispatchEvent(new CustomEvent("trouble", { detail: text }));
  }

  #changed(id) {
    this.dispatchEvent(new CustomEvent("change", { detail: id }));
  }

  /** Takes over what another tab has written. */
  async #reload(id) {
    if (this.#busy(id) || this.#pending.has(id)) return;
    const kept = await promised(this.#table("readonly").get(id));
    if (kept) this.#all.set(id, kept);
    else this.#all.delete(id);
    this.#changed(id);
  }
}

/** A conversation as it is found at the start: what was being answered when the page was closed no longer is. */
function interrupted(conversation) {
  for (const node of Object.values(conversation.nodes)) {
    if (node.state === "running" || node.state === "waiting") {
      node.state = "cut";
      node.note = "The page was closed while this was being answered.";
    }
  }
  return conversation;
}
