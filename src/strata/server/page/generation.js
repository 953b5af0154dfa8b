// Answers in the making, any number at once: each belongs to its conversation, whichever is shown.

import { addMessage, checkedOptions, requestMessages } from "./conversation.js";
import { chatChunks } from "./stream.js";

const MOST_RETRIES = 5;
const LONGEST_RETRY_S = 120;

/** Event "update": detail {conversation, message, ended}. */
export class Generations extends EventTarget {
  #runs = new Map();
  #store;
  #model;
  /** Whether the server tells how far it has read; one that refuses the wish is not asked again. */
  #progress = true;

  /** `model()`: the name to ask for. */
  constructor(store, model) {
    super();
    this.#store = store;
    this.#model = model;
  }

  running(id) {
    return this.#runs.has(id);
  }

  /** How far the answer of a conversation is: {startedAt, firstAt, pieces, read} or null. */
  progress(id) {
    return this.#runs.get(id) ?? null;
  }

  stop(id) {
    this.#runs.get(id)?.controller.abort();
  }

  /** Answers the message `parent`; resolves when the answer has ended in whatever way. */
  async answer(conversation, parent) {
    if (this.#runs.has(conversation.id)) return;
    const message = addMessage(conversation, parent.id, "assistant", "", { state: "running", reasoning: "" });
    const run = { controller: new AbortController(), message, startedAt: Date.now(), firstAt: null, pieces: 0, read: null };
    this.#runs.set(conversation.id, run);
    this.#store.save(conversation, { now: true });
    this.#tell(conversation, message);
    try {
      await this.#retrying(conversation, parent, run);
    } catch (error) {
      this.#failed(message, run, error);
    }
    this.#runs.delete(conversation.id);
    // The list is in the order of asking: answers that grow at the same time must not change places all the time.
    this.#store.save(conversation, { now: true, touch: false });
    this.#tell(conversation, message, true);
  }

  async #retrying(conversation, parent, run) {
    for (let retries = 0; ; retries += 1) {
      try {
        await this.#attempt(conversation, parent, run);
        return;
      } catch (error) {
        if (error.param === "return_progress" && this.#progress) {
          this.#progress = false;
          continue;
        }
        const wait = error.retryAfter;
        if (typeof wait !== "number" || wait > LONGEST_RETRY_S || retries === MOST_RETRIES || run.pieces > 0) throw error;
        Object.assign(run.message, { state: "waiting", note: error.message, retryAt: Date.now() + 1000 * Math.max(wait, 1) });
        this.#tell(conversation, run.message);
        await this.#pause(run);
        Object.assign(run.message, { state: "running", note: "", retryAt: undefined });
        run.startedAt = Date.now();
        this.#tell(conversation, run.message);
      }
    }
  }

  /** Until it is time to try again, or somebody presses "Try now", or Stop. */
  #pause(run) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, run.message.retryAt - Date.now());
      run.hurry = () => {
        clearTimeout(timer);
        resolve();
      };
      run.controller.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(run.controller.signal.reason);
      }, { once: true });
    });
  }

  /** Ends the wait for a retry. */
  hurry(id) {
    this.#runs.get(id)?.hurry?.();
  }

  async #attempt(conversation, parent, run) {
    const body = {
      model: this.#model(), messages: requestMessages(conversation, parent.id), ...checkedOptions(conversation.options),
      ...(this.#progress && { return_progress: true }),
    };
    for await (const chunk of chatChunks(body, run.controller.signal)) {
      this.#take(run, chunk);
      this.#store.save(conversation, { touch: false });
      this.#tell(conversation, run.message);
    }
    finish(run);
  }

  #take(run, chunk) {
    const { message } = run;
    if (chunk.prompt_progress) run.read = chunk.prompt_progress;
    if (chunk.usage) message.stats = { ...message.stats, usage: chunk.usage };
    if (chunk.timings) message.stats = { ...message.stats, timings: chunk.timings };
    if (chunk.truncated) message.truncated = true;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) message.finish = choice.finish_reason;
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta ?? {};
    if (!content && !reasoning && !calls) return;
    run.firstAt ??= Date.now();
    run.pieces += 1;
    if (reasoning) message.reasoning += reasoning;
    if ((content || calls) && message.reasoning && message.thinkingMs === undefined) {
      message.thinkingMs = Date.now() - run.firstAt;
    }
    if (content) message.content += content;
    for (const call of calls ?? []) addCall(message, call);
  }

  #failed(message, run, error) {
    const stopped = error.name === "AbortError";
    if (message.reasoning && message.thinkingMs === undefined && run.firstAt) message.thinkingMs = Date.now() - run.firstAt;
    message.state = stopped ? "stopped" : "failed";
    message.note = stopped ? "Stopped." : error.message;
    message.retryAt = undefined;
    if (!stopped && !error.status && !("retryAfter" in error)) console.error(error);
  }

  #tell(conversation, message, ended = false) {
    this.dispatchEvent(new CustomEvent("update", { detail: { conversation, message, ended } }));
  }
}

function addCall(message, { index = 0, function: part = {} }) {
  message.calls ??= [];
  message.calls[index] ??= { name: "", arguments: "" };
  message.calls[index].name += part.name ?? "";
  message.calls[index].arguments += part.arguments ?? "";
}

function finish(run) {
  const { message } = run;
  const now = Date.now();
  message.state = "done";
  message.note = noteOf(message);
  if (message.reasoning && message.thinkingMs === undefined) message.thinkingMs = now - (run.firstAt ?? now);
  message.stats = { ...message.stats, firstMs: (run.firstAt ?? now) - run.startedAt, totalMs: now - run.startedAt };
}

/** What has to be said about an answer that ended, if anything. */
function noteOf(message) {
  if (message.truncated) return "Cut off: the server's memory for conversations was full.";
  if (message.finish === "length") return "Cut off: the largest number of tokens was reached.";
  if (!message.content.trim() && !message.calls?.length) return "The model ended without an answer.";
  return "";
}
