// Ctrl+K: find a conversation by what was said in it, or begin one.

import { dialog } from "./dialogs.js";
import { excerpt, matches } from "./conversation.js";
import { h, icon } from "./dom.js";

const MOST = 30;

/** `app`: {store, open(id), begin()}. */
export function openPalette(app) {
  if (document.querySelector("dialog[open]")) return;
  let [choices, chosen] = [[], 0];
  const input = h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-autocomplete": "list",
    "aria-label": "Search conversations", placeholder: "Search conversations…", autocomplete: "off", spellcheck: "false",
  });
  const list = h("ul", { id: "found", role: "listbox", "aria-label": "Conversations" });
  const status = h("p.hidden-label", { role: "status" });

  const take = (choice) => {
    box.close();
    choice.run();
  };
  const mark = (index) => {
    chosen = (index + choices.length) % choices.length;
    [...list.children].forEach((node, at) => node.setAttribute("aria-selected", String(at === chosen)));
    input.setAttribute("aria-activedescendant", `found-${chosen}`);
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const find = () => {
    const query = input.value.trim();
    const found = app.store.list().filter((conversation) => matches(conversation, query)).slice(0, MOST);
    const begin = { label: "New conversation", detail: "", image: "plus", run: () => app.begin() };
    const kept = found.map((conversation) => ({
      label: conversation.title, detail: excerpt(conversation, query), image: "chat", run: () => app.open(conversation.id),
    }));
    choices = query ? [...kept, begin] : [begin, ...kept];
    list.replaceChildren(...choices.map((choice, index) => h("li", {
      id: `found-${index}`, role: "option", onclick: () => take(choice), onpointermove: () => chosen !== index && mark(index),
    }, icon(choice.image), h("span.found-title", choice.label), choice.detail && h("span.found-text", choice.detail))));
    status.textContent = `${found.length} found`;
    mark(0);
  };
  input.addEventListener("input", find);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      mark(chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      take(choices[chosen]);
    }
  });
  const box = dialog("Search", "palette", input, status, list);
  find();
  input.focus();
}
