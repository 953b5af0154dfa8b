// Server-sent events of an answer (https://html.spec.whatwg.org/multipage/server-sent-events.html), read from fetch.

import { ServerError, errorOf, send } from "./api.js";

/** Takes a stream in pieces of any size and gives the data of the events that are complete. */
export class EventParser {
  #rest = "";
  #data = [];

  push(text) {
    const events = [];
    // A carriage return at the very end may be half of a line's end.
    const held = text.endsWith("\r") ? 1 : 0;
    const lines = (this.#rest + text.slice(0, text.length - held)).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() + (held ? "\r" : "");
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) events.push(this.#data.join("\n"));
        this.#data = [];
      } else if (line.startsWith("data:")) this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    }
    return events;
  }
}

/** The chunks of a streamed chat completion. Throws ServerError when it fails or breaks off, AbortError when stopped. */
export async function* chatChunks(body, signal) {
  const response = await send("/v1/chat/completions", { body: { ...body, stream: true }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await read(reader);
      if (done) break;
      for (const data of parser.push(value)) {
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw errorOf(chunk, response.status);
        yield chunk;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  throw new ServerError("The answer broke off: the connection to the server was lost.");
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The answer broke off: the connection to the server was lost.");
  }
}
