// Elements are built here and nowhere else: text always becomes text nodes, so nothing a model writes is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("button.icon", {type: "button", onclick}, "text", node, [more])`. */
export function h(selector, ...parts) {
  const [tag, ...classes] = selector.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  return fill(node, parts);
}

/** The same for SVG. */
export function svg(tag, ...parts) {
  return fill(document.createElementNS(SVG, tag), parts);
}

function fill(node, parts) {
  for (const part of parts.flat(Infinity)) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node) node.append(part);
    else if (typeof part === "object") attributes(node, part);
    else node.append(String(part));
  }
  return node;
}

function attributes(node, values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
}

export function icon(name) {
  return svg("svg", { "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

/** A button that is an icon with a name. */
export function iconButton(name, label, onclick, more = {}) {
  return h("button.icon", { type: "button", "aria-label": label, title: label, onclick, ...more }, icon(name));
}

export const byId = (id) => document.getElementById(id);

/** Whether fingers are what points here: focusing a field would then open a keyboard over half of the page. */
export const byTouch = () => matchMedia("(pointer: coarse)").matches;

/** Say something to screen readers, once. */
export function announce(text) {
  byId("announce").textContent = text;
}

/** A message at the edge of the page; with `action` = {label, run}, it can be acted upon until it goes. */
export function toast(text, action = null, ms = 4000) {
  const box = h("div.toast", h("span", text));
  const close = () => box.remove();
  if (action) {
    const act = () => {
      close();
      action.run();
    };
    box.append(h("button", { type: "button", onclick: act }, action.label));
  }
  box.append(iconButton("close", "Dismiss", close));
  // Under a modal dialog all else is out of reach: each dialog has a place of its own for these.
  const places = document.querySelectorAll("dialog[open] > .toasts");
  (places[places.length - 1] ?? document.querySelector("body > .toasts")).replaceChildren(box);
  setTimeout(close, ms);
}

/** Copies text; also where the page is not in a secure context, as on a phone that reaches the server by http. */
export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = h("textarea.offscreen", { "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  const focused = document.activeElement;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!done) throw new Error("The browser did not allow copying.");
}

/** A copy button that says for a moment that it has copied. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    try {
      await copy(text());
      button.replaceChildren(icon("check"));
      announce("Copied");
      setTimeout(() => button.replaceChildren(icon("copy")), 1500);
    } catch (error) {
      toast(error.message);
    }
  });
  return button;
}

/** Offers text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
