// The shown conversation: its messages, kept at the end while an answer grows, and what can be done with them.

import { addMessage, choose, path } from "./conversation.js";
import { announce, byId, byTouch, h, icon } from "./dom.js";
import { percent, plural } from "./format.js";
import { MessageView } from "./message.js";

const STARTERS = ["Why is the sky blue?", "Write a short story about a bridge.", "What is 17 plus 25?"];
const NEAR_PX = 60;

export class Chat {
  #app;
  #views = new Map();
  #dirty = null;
  #follow = true;

  /** `app`: {store, generations, context(), model(), fillPrompt(text), changed()}. */
  constructor(app) {
    this.#app = app;
    this.conversation = null;
    this.thread = byId("thread");
    this.messages = byId("messages");
    this.thread.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    byId("latest").addEventListener("click", () => this.toEnd());
    app.generations.addEventListener("update", ({ detail }) => this.#updated(detail));
    new ResizeObserver(() => this.#keepEnd()).observe(this.messages);
    setInterval(() => this.#tick(), 1000);
  }

  /** Shows a conversation; one that was just begun and is kept nowhere yet is shown as a beginning. */
  show(conversation) {
    this.conversation = conversation;
    this.#views.clear();
    this.messages.replaceChildren();
    this.#render();
    if (conversation.head) this.toEnd();
  }

  /** The server is known now, or another one: what is shown of it is drawn anew. */
  refresh() {
    if (!this.conversation.head) this.#render();
    for (const view of this.#views.values()) view.update();
    this.#showFill();
  }

  get running() {
    return this.conversation !== null && this.#app.generations.running(this.conversation.id);
  }

  /** Sends what was written as the next message. */
  send(text) {
    const parent = this.conversation.head;
    const message = addMessage(this.conversation, parent, "user", text);
    this.#answer(message);
  }

  stop() {
    this.#app.generations.stop(this.conversation.id);
  }

  /** Opens the last message of the user for editing. */
  editLast() {
    const last = path(this.conversation).filter((node) => node.role === "user").pop();
    const view = last && this.#views.get(last.id);
    if (view && !this.running) this.#edit(last, view);
  }

  toEnd() {
    this.#follow = true;
    this.thread.scrollTop = this.thread.scrollHeight;
    byId("latest").hidden = true;
  }

  #answer(message) {
    this.#app.store.save(this.conversation, { now: true });
    this.#app.generations.answer(this.conversation, message);
    this.#render();
    this.toEnd();
    this.#app.changed();
    announce("Answering");
  }

  #again(message) {
    const parent = this.conversation.nodes[message.parent];
    if (this.running || !parent) return;
    this.#answer(parent);
  }

  #show(version) {
    if (this.running) return;
    choose(this.conversation, version);
    this.#app.store.save(this.conversation, { touch: false });
    this.#render();
    this.#views.get(version.id)?.node.querySelector(".versions button:not([disabled])")?.focus();
    this.#showFill();
  }

  #edit(message, view) {
    if (this.running) return;
    const area = h("textarea", { "aria-label": "Edit your message", rows: Math.min(12, message.content.split("\n").length + 1) });
    area.value = message.content;
    const close = () => {
      form.replaceWith(view.body);
      view.node.classList.remove("editing");
      if (!byTouch()) byId("prompt").focus();
    };
    const submit = () => {
      const text = area.value.trim();
      if (!text) return;
      close();
      this.#answer(addMessage(this.conversation, message.parent, "user", text));
    };
    const form = h("form.edit", {
      onsubmit: (event) => {
        event.preventDefault();
        submit();
      },
      onkeydown: (event) => {
        if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !byTouch()) {
          event.preventDefault();
          submit();
        } else if (event.key === "Escape") {
          event.stopPropagation();
          close();
        }
      },
    }, area, h("div.edit-row", h("p.edit-hint", "What followed stays as another version."),
      h("button", { type: "button", onclick: close }, "Cancel"), h("button.primary", { type: "submit" }, "Send")));
    view.body.replaceWith(form);
    view.node.classList.add("editing");
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  /** Makes the list of message views equal to the conversation's path, keeping those that stay. */
  #render() {
    const shown = path(this.conversation);
    if (!shown.length) {
      this.messages.replaceChildren(this.#welcome());
      this.#views.clear();
      this.#showFill();
      return;
    }
    const kept = new Map();
    for (const message of shown) {
      kept.set(message.id, this.#views.get(message.id) ?? this.#view(message));
    }
    this.#views = kept;
    const nodes = [...kept.values()].map((view) => view.node);
    for (const child of [...this.messages.children]) if (!nodes.includes(child)) child.remove();
    nodes.forEach((node, index) => {
      if (this.messages.children[index] !== node) this.messages.insertBefore(node, this.messages.children[index] ?? null);
    });
    for (const view of kept.values()) view.showTools(view.wasLive);
    this.#showFill();
  }

  #view(message) {
    return new MessageView(this.conversation, message, {
      edit: (node, view) => this.#edit(node, view),
      again: (node) => this.#again(node),
      show: (version) => this.#show(version),
      hurry: () => this.#app.generations.hurry(this.conversation.id),
      progress: () => this.#app.generations.progress(this.conversation?.id),
      context: () => this.#app.context(),
    });
  }

  #welcome() {
    return h("div.welcome",
      icon("strata"), h("p.welcome-title", "What would you like to know?"),
      h("p.welcome-text", `${this.#app.model() || "The model"} runs on your own machine. What you write goes to it and nowhere else.`),
      h("div.starters", STARTERS.map((text) => h("button", { type: "button", onclick: () => this.#app.fillPrompt(text) }, text))));
  }

  #updated({ conversation, message, ended }) {
    if (conversation.id !== this.conversation?.id) return;
    if (ended) announce(message.state === "done" ? "The answer is complete" : message.note);
    this.#dirty = message;
    this.#schedule();
  }

  #schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const message = this.#dirty;
      if (!message || this.conversation?.nodes[message.id] !== message) return;
      if (!this.#views.has(message.id)) this.#render();
      this.#views.get(message.id)?.update();
      this.#showFill();
      this.#keepEnd();
    });
  }

  #tick() {
    if (!this.running) return;
    this.#views.get(this.#app.generations.progress(this.conversation.id)?.message.id)?.tick();
  }

  #scrolled() {
    const left = this.thread.scrollHeight - this.thread.scrollTop - this.thread.clientHeight;
    this.#follow = left < NEAR_PX;
    byId("latest").hidden = this.#follow;
  }

  #keepEnd() {
    if (this.#follow) this.thread.scrollTop = this.thread.scrollHeight;
    else this.#scrolled();
  }

  /** How full the context is after the last answer. */
  #showFill() {
    const fill = byId("fill");
    const last = path(this.conversation).filter((node) => node.stats?.usage).pop();
    const context = this.#app.context();
    fill.hidden = !last || !context;
    if (fill.hidden) return;
    const share = Math.min(1, last.stats.usage.total_tokens / context);
    const gauge = fill.querySelector(".gauge");
    gauge.firstChild.style.width = `${Math.max(2, 100 * share)}%`;
    gauge.classList.toggle("high", share > 0.85);
    gauge.setAttribute("aria-valuenow", Math.round(100 * share));
    fill.querySelector(".fill-text").replaceChildren(percent(share), h("span.fill-of", ` of ${plural(context, "token")}`));
  }
}
