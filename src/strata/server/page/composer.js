// The field in which messages are written.

import { byId, byTouch } from "./dom.js";

const TALLEST_PX = 220;

export class Composer {
  #actions;

  /** `actions`: {send(text), stop(), editLast(), effort(value)}. */
  constructor(actions) {
    this.#actions = actions;
    this.area = byId("prompt");
    this.form = byId("composer");
    this.drafts = new Map();
    this.conversation = null;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.area.addEventListener("keydown", (event) => this.#key(event));
    this.area.addEventListener("input", () => this.#fit());
    byId("stop").addEventListener("click", () => actions.stop());
    byId("effort").addEventListener("change", (event) => actions.effort(event.target.value));
  }

  /** Shows the field of a conversation: what was begun there, its effort. */
  show(conversation) {
    if (this.conversation) this.drafts.set(this.conversation.id, this.area.value);
    this.conversation = conversation;
    byId("effort").value = conversation.options.reasoning_effort ?? "";
    this.fill(this.drafts.get(conversation.id) ?? "", false);
  }

  fill(text, focus = true) {
    this.area.value = text;
    this.#fit();
    if (focus) this.area.focus();
  }

  setRunning(running) {
    const focused = document.activeElement === byId("stop") || document.activeElement === byId("send");
    byId("send").hidden = running;
    byId("stop").hidden = !running;
    if (focused) (byTouch() ? byId(running ? "stop" : "send") : this.area).focus();
    this.running = running;
    this.#fit();
  }

  #send() {
    const text = this.area.value.trim();
    if (!text || this.running) return;
    this.fill("", false);
    this.#actions.send(text);
  }

  #key(event) {
    if (event.isComposing) return;
    // On a touch keyboard Enter is the only way to a new line; there the button sends.
    if (event.key === "Enter" && !event.shiftKey && !byTouch()) {
      event.preventDefault();
      this.#send();
    } else if (event.key === "ArrowUp" && !this.area.value) {
      event.preventDefault();
      this.#actions.editLast();
    }
  }

  #fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight, TALLEST_PX)}px`;
    byId("send").disabled = !this.area.value.trim();
  }
}
