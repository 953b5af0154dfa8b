// One message on the screen, kept up to date while it is written.

import { copyButton, h, icon, iconButton } from "./dom.js";
import { codeBlock } from "./code.js";
import { count, duration, percent, plural, speed } from "./format.js";
import { renderMarkdown } from "./markdown.js";
import { versions } from "./conversation.js";

const LONG_TEXT = 1500;
const LONG_LINES = 20;
/** What the server puts between the sentence about an engine that ended and the engine's log. */
const LOG_MARK = " Its last log lines: ";

/**
 * The view of a message. `actions`: {edit(message, view), again(message), show(version), hurry(), progress(), context()}.
 */
export class MessageView {
  #actions;
  #conversation;
  #seconds = null;

  constructor(conversation, message, actions) {
    this.message = message;
    this.#conversation = conversation;
    this.#actions = actions;
    const own = message.role === "user";
    this.thinking = h("details.thinking", h("summary", h("span.layers"), this.thinkingTitle = h("span")),
      this.thoughts = h("div.thoughts"));
    this.thinking.hidden = true;
    this.body = h("div.body");
    this.calls = h("div.calls");
    this.note = h("div.note", { hidden: true });
    this.tools = h("div.message-tools");
    this.stats = h("div.stats");
    this.node = h(`article.message.${own ? "own" : "answer"}`, { "aria-label": own ? "You" : "Strata", id: message.id },
      h("h2.hidden-label", own ? "You" : "Strata"), this.thinking, this.body, this.calls, this.note,
      h("div.message-foot", this.tools, this.stats));
    this.update();
  }

  /** Shows the message as it is now. */
  update() {
    const { message } = this;
    const live = message.state === "running" || message.state === "waiting";
    if (message.role === "user") this.#showOwn();
    else renderMarkdown(this.body, message.content);
    this.#showThinking(live);
    this.#showCalls();
    this.node.classList.toggle("live", live);
    this.node.setAttribute("aria-busy", String(live));
    this.#showNote();
    this.#showStats(live);
    if (this.wasLive !== live) this.showTools(live);
    this.wasLive = live;
  }

  /** Once a second while it is live: what passes with time. */
  tick() {
    this.#showThinking(true);
    this.#showStats(true);
    if (this.message.state === "waiting") this.#showNote();
  }

  /** What the user wrote; a long text, as when something was pasted, is shown in part until it is asked for. */
  #showOwn() {
    const { content } = this.message;
    this.body.textContent = content;
    if (this.whole || (content.length < LONG_TEXT && content.split("\n").length < LONG_LINES)) return;
    this.whole = h("button.link.whole", { type: "button", "aria-expanded": "false", onclick: () => {
      const open = !this.node.classList.toggle("long");
      this.whole.setAttribute("aria-expanded", String(open));
      this.whole.textContent = open ? "Show less" : `Show all (${plural(content.length, "character")})`;
    } }, `Show all (${plural(content.length, "character")})`);
    this.node.classList.add("long");
    this.body.after(this.whole);
  }

  #showThinking(live) {
    const { reasoning, thinkingMs } = this.message;
    this.thinking.hidden = !reasoning?.trim();
    if (this.thinking.hidden) return;
    const now = thinkingMs === undefined && live;
    const since = this.#actions.progress()?.firstAt ?? Date.now();
    const seconds = now ? Math.floor((Date.now() - since) / 1000) : null;
    this.thinking.classList.toggle("now", now);
    if (now && seconds === this.#seconds && this.thinkingTitle.textContent) {
      if (this.thinking.open) renderMarkdown(this.thoughts, reasoning);
      return;
    }
    this.#seconds = seconds;
    if (now) this.thinkingTitle.textContent = `Thinking… ${seconds} s`;
    else this.thinkingTitle.textContent = thinkingMs === undefined ? "Thought" : `Thought for ${duration(thinkingMs / 1000)}`;
    renderMarkdown(this.thoughts, reasoning);
  }

  #showCalls() {
    const calls = this.message.calls ?? [];
    const source = JSON.stringify(calls);
    if (this.callSource === source) return;
    this.callSource = source;
    this.calls.replaceChildren(...calls.filter(Boolean).map((call) => h("section.call", { "aria-label": `Tool call ${call.name}` },
      h("p.call-name", icon("tool"), h("span", "calls "), h("code", call.name)), codeBlock(pretty(call.arguments), "json"))));
  }

  #showNote() {
    const { state, note, retryAt } = this.message;
    this.note.hidden = !note;
    if (!note) return;
    const failed = state === "failed" || state === "waiting";
    this.note.className = `note${failed ? " failed" : ""}`;
    const [sentence, log] = note.split(LOG_MARK);
    const text = h("span", sentence);
    const parts = [failed && icon("warn"), text];
    if (state === "waiting") {
      const left = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
      text.append(h("span.countdown", { "aria-hidden": "true" }, ` Trying again in ${left} s.`));
      parts.push(h("button", { type: "button", onclick: () => this.#actions.hurry() }, "Try now"));
    } else if (failed || state === "cut") {
      parts.push(h("button", { type: "button", onclick: () => this.#actions.again(this.message) }, "Try again"));
    }
    if (log) parts.push(h("details", h("summary", "The engine's last log lines"), h("pre", { tabindex: "0" }, log.split(" | ").join("\n"))));
    const focused = this.note.contains(document.activeElement);
    this.note.replaceChildren(...parts.filter(Boolean));
    if (focused) this.note.querySelector("button")?.focus();
  }

  #showStats(live) {
    const { stats } = this.message;
    if (this.message.role === "user") return;
    if (live) {
      this.stats.replaceChildren(h("span", liveText(this.#actions.progress(), this.message)));
    } else if (stats?.usage) {
      this.stats.replaceChildren(statsView(stats, this.#actions.context()));
    } else this.stats.replaceChildren();
  }

  /** The buttons under the message. */
  showTools(live) {
    const { message } = this;
    const all = versions(this.#conversation, message);
    const at = all.indexOf(message);
    const parts = [];
    if (all.length > 1) {
      const step = (by, name, label) => iconButton(name, label, () => this.#actions.show(all[at + by]),
        { disabled: all[at + by] === undefined });
      parts.push(h("span.versions", { role: "group", "aria-label": `Version ${at + 1} of ${all.length}` },
        step(-1, "left", "Previous version"), h("span.which", `${at + 1}/${all.length}`), step(1, "right", "Next version")));
    }
    if (!live) {
      if (message.content) parts.push(copyButton("Copy message", () => message.content));
      if (message.role === "user") parts.push(iconButton("edit", "Edit and send again", () => this.#actions.edit(message, this)));
      else parts.push(iconButton("again", "Answer again", () => this.#actions.again(message)));
    }
    this.tools.replaceChildren(...parts);
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function liveText(progress, message) {
  if (!progress) return "";
  if (message.state === "waiting") return "Waiting for the server";
  const now = Date.now();
  if (progress.firstAt === null) {
    const { processed, total } = progress.read ?? {};
    const read = total ? ` · ${count(processed)} of ${count(total)} tokens` : "";
    return `Reading${read} · ${duration((now - progress.startedAt) / 1000)}`;
  }
  const seconds = (now - progress.firstAt) / 1000;
  const pieces = plural(progress.pieces, "piece");
  return seconds > 0.5 ? `${pieces} · ${speed(progress.pieces / seconds)} a second` : pieces;
}

/** One line that says most, and all the rest behind it. */
function statsView({ usage, timings, firstMs, totalMs }, context) {
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const filled = context ? usage.total_tokens / context : null;
  const short = [`${speed(timings?.predicted_per_second)} tok/s`, plural(usage.completion_tokens, "token")];
  if (filled !== null) short.push(`context ${percent(filled)}`);
  const rows = [
    ["Written", `${plural(usage.completion_tokens, "token")} at ${speed(timings?.predicted_per_second)} tok/s`],
    ["of it thinking", count(usage.completion_tokens_details?.reasoning_tokens)],
    ["Prompt", `${plural(usage.prompt_tokens, "token")}, ${count(cached)} from the cache`],
    ["Read", `${plural(timings?.prompt_n, "token")} at ${speed(timings?.prompt_per_second)} tok/s`],
    ["First piece after", duration(firstMs / 1000)],
    ["Whole answer", duration(totalMs / 1000)],
  ];
  if (timings?.draft_n) rows.push(["Drafts accepted", `${count(timings.draft_n_accepted)} of ${count(timings.draft_n)}`]);
  if (filled !== null) rows.push(["Context", `${count(usage.total_tokens)} of ${count(context)} tokens`]);
  return h("details.stats-more", h("summary", { title: "More figures of this answer" }, short.join(" · ")),
    h("dl", rows.map(([name, value]) => [h("dt", name), h("dd", value)])));
}
