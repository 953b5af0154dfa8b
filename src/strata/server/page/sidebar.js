// The list of conversations, the menu of each, and on narrow screens the drawer that it lies in.

import { byId, download, h, iconButton, toast } from "./dom.js";
import { askText } from "./dialogs.js";
import { toJson, toMarkdown } from "./conversation.js";
import { dayGroup } from "./format.js";

const UNDO_MS = 8000;
const NARROW = matchMedia("(max-width: 800px)");

export class Sidebar {
  #app;
  #look = "";

  /** `app`: {store, generations, shown(), open(id), begin()}. */
  constructor(app) {
    this.#app = app;
    this.node = byId("sidebar");
    byId("open-sidebar").addEventListener("click", () => this.toggle(true));
    byId("close-sidebar").addEventListener("click", () => this.toggle(false));
    byId("scrim").addEventListener("click", () => this.toggle(false));
    this.node.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isOpen) {
        event.stopPropagation();
        this.toggle(false);
      }
    });
    NARROW.addEventListener("change", () => this.#lay(false));
    this.#lay(false);
  }

  get isOpen() {
    return NARROW.matches && this.node.classList.contains("open");
  }

  toggle(open) {
    if (!NARROW.matches) return;
    this.#lay(open);
    if (open) byId("close-sidebar").focus();
    else byId("open-sidebar").focus();
  }

  /** Closes the drawer without taking the focus, as after a choice. */
  leave() {
    this.#lay(false);
  }

  #lay(open) {
    this.node.classList.toggle("open", open);
    // A drawer out of sight must be out of reach too, and under an open one the page.
    this.node.inert = NARROW.matches && !open;
    byId("room").inert = NARROW.matches && open;
    byId("scrim").hidden = !open;
    byId("open-sidebar").setAttribute("aria-expanded", String(open));
  }

  render() {
    const kept = this.#app.store.list();
    const { generations } = this.#app;
    // Elements are replaced only where something looks different: a press that spans the change would be lost.
    const look = JSON.stringify([this.#app.shown(), kept.map(({ id, title, updated }) =>
      [id, title, dayGroup(updated), generations.running(id)])]);
    if (look === this.#look) return;
    this.#look = look;
    const groups = new Map();
    for (const conversation of kept) {
      const day = dayGroup(conversation.updated);
      groups.set(day, [...(groups.get(day) ?? []), conversation]);
    }
    const focused = document.activeElement?.closest?.("#list [data-id]")?.dataset.id;
    const list = byId("list");
    list.replaceChildren(...[...groups].map(([day, conversations]) => h("section", h("h2", day),
      h("ul", conversations.map((conversation) => this.#item(conversation))))));
    if (!groups.size) list.append(h("p.empty", "Conversations are kept in this browser."));
    if (focused) list.querySelector(`[data-id="${focused}"] a`)?.focus();
  }

  #item(conversation) {
    const shown = this.#app.shown() === conversation.id;
    const running = this.#app.generations.running(conversation.id);
    return h("li", { dataset: { id: conversation.id } },
      h("a", { href: `#/c/${conversation.id}`, "aria-current": shown ? "page" : null, onclick: () => this.leave() },
        running && h("span.dot.busy", { role: "img", "aria-label": "answering" }), h("span", conversation.title)),
      iconButton("more", `Menu of ${conversation.title}`, (event) => this.#menu(conversation, event.currentTarget),
        { "aria-haspopup": "menu" }));
  }

  #menu(conversation, anchor) {
    const run = (work) => () => {
      menu.hidePopover();
      work();
    };
    const item = (label, work, kind = "") => h(`button${kind}`, { type: "button", role: "menuitem", onclick: run(work) }, label);
    const menu = h("div.menu", { popover: "auto", role: "menu", "aria-label": `Menu of ${conversation.title}` },
      item("Rename", () => this.rename(conversation)),
      item("Export as Markdown", () => download(`${fileName(conversation)}.md`, "text/markdown", toMarkdown(conversation))),
      item("Export as JSON", () => download(`${fileName(conversation)}.json`, "application/json", toJson([conversation]))),
      item("Delete", () => this.remove(conversation), ".danger"));
    this.node.append(menu);
    menu.addEventListener("toggle", (event) => {
      if (event.newState === "closed") {
        menu.remove();
        if (document.activeElement === document.body) anchor.focus();
      }
    });
    menu.addEventListener("keydown", (event) => moveFocus(event, [...menu.children]));
    menu.showPopover();
    const place = anchor.getBoundingClientRect();
    const top = Math.min(place.bottom + 4, window.innerHeight - menu.offsetHeight - 8);
    menu.style.top = `${Math.max(8, top)}px`;
    menu.style.left = `${Math.max(8, Math.min(place.right - menu.offsetWidth, window.innerWidth - menu.offsetWidth - 8))}px`;
    menu.firstChild.focus();
  }

  async rename(conversation) {
    const title = await askText({ title: "Rename", label: "Title", value: conversation.title, action: "Rename" });
    if (!title) return;
    Object.assign(conversation, { title: title.slice(0, 200), named: true });
    this.#app.store.save(conversation, { now: true, touch: false });
  }

  remove(conversation) {
    this.#app.generations.stop(conversation.id);
    this.#app.store.remove(conversation.id);
    if (this.#app.shown() === conversation.id) this.#app.begin();
    const undo = () => {
      this.#app.store.save(conversation, { now: true, touch: false });
      this.#app.open(conversation.id);
    };
    toast(`Deleted “${conversation.title}”.`, { label: "Undo", run: undo }, UNDO_MS);
  }
}

/** Up, Down, Home and End in a list of things. */
export function moveFocus(event, items) {
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  items[(to + items.length) % items.length].focus();
}

export function fileName(conversation) {
  const words = conversation.title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
  return words.slice(0, 50) || "conversation";
}
