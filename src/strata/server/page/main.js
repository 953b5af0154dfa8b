// Puts the page together: what is shown for which address, keys that work everywhere, how the server is.

import { health, onKeyNeeded, send } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { newConversation } from "./conversation.js";
import { showShortcuts } from "./dialogs.js";
import { byId, byTouch, h } from "./dom.js";
import { plural } from "./format.js";
import { Generations } from "./generation.js";
import { Monitor } from "./monitor.js";
import { openPalette } from "./palette.js";
import { askKey, defaults, openSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Store } from "./store.js";

const HEALTH_MS = 10_000;
const HEALTH_SOON_MS = 2000;
const THEMES = { system: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
const FOOT = { away: "does not answer", failed: "not running", closed: "ending" };
const STATES = { ok: "", starting: "The engine is starting.", failed: "The engine is not running.", closed: "The server is ending." };

class App {
  server = null;
  #given = {};

  async start() {
    onKeyNeeded(async (refused) => {
      const given = await askKey(refused);
      if (given) this.#askDefaults();
      return given;
    });
    let generations = null;
    this.store = await Store.open((id) => generations?.running(id));
    generations = this.generations = new Generations(this.store, () => this.model());
    const shared = {
      store: this.store, generations, open: (id) => this.open(id), begin: () => this.begin(),
      shown: () => (this.view === "chat" ? this.chat.conversation?.id : null), context: () => this.server?.max_context ?? null,
      model: () => this.model(), changed: () => this.#changed(), fillPrompt: (text) => this.composer.fill(text),
      conversation: () => this.chat.conversation, settingsChanged: (conversation) => this.#settingsChanged(conversation),
      serverDefaults: () => this.#given, needsKey: () => this.server?.api_key ?? false, shortcuts: showShortcuts,
    };
    this.shared = shared;
    this.chat = new Chat(shared);
    this.sidebar = new Sidebar(shared);
    this.monitor = new Monitor(byId("monitor"));
    this.composer = new Composer({
      send: (text) => this.chat.send(text), stop: () => this.chat.stop(), editLast: () => this.chat.editLast(),
      effort: (value) => this.#effort(value),
    });
    this.#listen();
    this.#theme(window.strataTheme.choice);
    this.#route();
    this.#watch();
  }

  model() {
    return this.server?.model ?? "";
  }

  open(id) {
    location.hash = `#/c/${id}`;
  }

  begin() {
    if (location.hash === "#/" || location.hash === "") this.#route();
    else location.hash = "#/";
  }

  #listen() {
    window.addEventListener("hashchange", () => this.#route());
    document.addEventListener("keydown", (event) => this.#key(event));
    this.store.addEventListener("change", ({ detail }) => this.#kept(detail));
    this.store.addEventListener("trouble", ({ detail }) => this.#banner("storage", detail));
    this.generations.addEventListener("update", ({ detail }) => {
      if (detail.ended || !detail.message.content) this.#changed();
    });
    byId("new").addEventListener("click", () => {
      this.sidebar.leave();
      this.begin();
    });
    byId("find").addEventListener("click", () => {
      this.sidebar.leave();
      openPalette(this.shared);
    });
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault();
      byId(this.view === "chat" ? "prompt" : "monitor").focus();
    });
    byId("open-settings").addEventListener("click", () => openSettings(this.shared));
    byId("theme").addEventListener("click", () => this.#theme(window.strataTheme.next()));
    if (!this.store.keeps) this.#banner("storage", "This browser keeps nothing for this page: conversations are lost on leaving it.");
  }

  #theme(choice) {
    const button = byId("theme");
    button.setAttribute("aria-label", THEMES[choice]);
    button.title = THEMES[choice];
  }

  /** Shows what the address names. */
  #route() {
    const [, first, id] = location.hash.split("/");
    this.view = first === "monitor" ? "monitor" : "chat";
    byId("chat").hidden = this.view !== "chat";
    byId("monitor").hidden = this.view !== "monitor";
    this.monitor.show(this.view === "monitor");
    byId("view-chat").toggleAttribute("aria-current", false);
    for (const name of ["chat", "monitor"]) {
      if (this.view === name) byId(`view-${name}`).setAttribute("aria-current", "page");
      else byId(`view-${name}`).removeAttribute("aria-current");
    }
    if (!this.chat.conversation) this.#show(this.#fresh());
    if (this.view === "chat") {
      const kept = first === "c" ? this.store.get(id) : null;
      if (first === "c" && !kept) history.replaceState(null, "", "#/");
      if (!kept || kept !== this.chat.conversation) this.#show(kept ?? this.#fresh());
      byId("view-chat").href = location.hash || "#/";
      if (!byTouch() && !document.querySelector("dialog[open]")) this.composer.area.focus();
    }
    this.#changed();
  }

  #fresh() {
    const { options, system } = defaults();
    return newConversation(options, system);
  }

  #show(conversation) {
    this.chat.show(conversation);
    this.composer.show(conversation);
  }

  /** Something that the list, the title or the buttons show is different now. */
  #changed() {
    const { conversation } = this.chat;
    const title = this.view === "monitor" ? "Monitor" : conversation.title;
    byId("title").textContent = title;
    document.title = `${title} · Strata`;
    this.composer.setRunning(this.chat.running);
    if (this.view === "chat" && this.store.get(conversation.id) && !location.hash.endsWith(conversation.id)) {
      history.replaceState(null, "", `#/c/${conversation.id}`);
      byId("view-chat").href = location.hash;
    }
    this.sidebar.render();
  }

  /** The store has written or taken over a conversation. */
  #kept(id) {
    const { conversation } = this.chat;
    const kept = this.store.get(id);
    if (conversation.id === id && kept && kept !== conversation) this.#show(kept);
    else if (conversation.id === id && !kept && location.hash.endsWith(id)) this.begin();
    this.#changed();
  }

  #settingsChanged(conversation) {
    if (this.store.get(conversation.id)) this.store.save(conversation, { touch: false });
    byId("effort").value = conversation.options.reasoning_effort ?? "";
  }

  #effort(value) {
    const { options } = this.chat.conversation;
    if (value) options.reasoning_effort = value;
    else delete options.reasoning_effort;
    this.#settingsChanged(this.chat.conversation);
  }

  #key(event) {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.sidebar.leave();
      openPalette(this.shared);
    } else if (event.key === "Escape" && this.view === "chat" && this.chat.running
      && !document.querySelector("dialog[open], .menu:popover-open")) {
      event.preventDefault();
      this.chat.stop();
    } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && !document.querySelector("dialog[open]")) {
      if (event.key === "/" && this.view === "chat") {
        event.preventDefault();
        byId("prompt").focus();
      } else if (event.key === "?") {
        event.preventDefault();
        showShortcuts();
      }
    }
  }

  /** Looks at the server's health, often while something is wrong with it. */
  async #watch() {
    const found = document.visibilityState === "visible" ? await health() : this.server;
    const before = this.server?.status;
    this.server = found ?? (this.server ? { ...this.server, status: "away" } : { status: "away" });
    this.#showServer();
    if (found?.status === "ok" && before !== "ok") {
      this.#askDefaults();
      this.chat.refresh();
    }
    setTimeout(() => this.#watch(), this.server.status === "ok" ? HEALTH_MS : HEALTH_SOON_MS);
  }

  #showServer() {
    const { status, model, max_context: context } = this.server;
    byId("engine-dot").className = `dot ${{ ok: "good", starting: "busy" }[status] ?? "bad"}`;
    byId("engine-name").textContent = model ?? "No server";
    byId("engine-state").textContent = status === "ok" ? `${plural(context, "token")} of context` : FOOT[status] ?? status;
    const trouble = status === "away" ? "The server does not answer. This page tries again by itself." : STATES[status] ?? status;
    this.#banner("server", trouble);
  }

  /** What the server uses where nothing is set. */
  async #askDefaults() {
    try {
      const props = await (await send("/props", { quiet: true })).json();
      this.#given = props.default_generation_settings?.params ?? {};
    } catch {
      this.#given = {};
    }
  }

  #troubles = new Map();

  #banner(kind, text) {
    if ((this.#troubles.get(kind) ?? "") === text) return;
    this.#troubles.set(kind, text);
    const banner = byId("banner");
    const all = [...this.#troubles.values()].filter(Boolean);
    banner.hidden = all.length === 0;
    banner.replaceChildren(...all.map((sentence) => h("p", sentence)));
  }
}

new App().start();
