// Dialogs: the browser's own modal ones, which hold the focus, close with Escape and give the focus back.

import { h, iconButton } from "./dom.js";

/** Shows a modal dialog of a title and parts; returns it. It is taken away when it closes. */
export function dialog(title, kind, ...parts) {
  const name = h("h2", title);
  const box = h(`dialog.${kind}`, { "aria-label": title },
    h("header", name, iconButton("close", "Close", () => box.close())), parts, h("div.toasts", { role: "status" }));
  // A press beside the dialog closes it; one that began inside (a selection) does not.
  let outside = false;
  box.addEventListener("pointerdown", (event) => {
    outside = event.target === box;
  });
  box.addEventListener("click", (event) => {
    if (outside && event.target === box) box.close();
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** Asks for a text: resolves to it, or null when it was not given. `wrong`: about the last; `more`: further parts of the form. */
export function askText({ title, label, value = "", action, type = "text", text = "", wrong = "", more = [] }) {
  return new Promise((resolve) => {
    let result = null;
    const input = h("input", { type, id: "ask-input", autocomplete: "off", spellcheck: "false" });
    input.value = value;
    const form = h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        result = input.value.trim() || null;
        box.close();
      },
    }, wrong && h("p.wrong", { role: "alert" }, wrong), text && h("p", text), h("label", { for: "ask-input" }, label), input, more,
    h("div.dialog-row", h("button", { type: "button", onclick: () => box.close() }, "Cancel"),
      h("button.primary", { type: "submit" }, action)));
    const box = dialog(title, "small", form);
    box.addEventListener("close", () => resolve(result));
    input.focus();
    input.select();
  });
}

const KEYS = [
  ["Enter", "send"], ["Shift + Enter", "new line"], ["Esc", "stop the answer"], ["Ctrl + K", "search, or begin a new conversation"],
  ["↑", "in an empty field: edit your last message"], ["/", "go to the message field"], ["?", "this list"],
];

export function showShortcuts() {
  dialog("Shortcuts", "small", h("dl.shortcuts", KEYS.map(([keys, what]) => [h("dt", h("kbd", keys)), h("dd", what)])));
}
