// What the tests of the page measure in it, as functions without side effects but the numbers of `reachable`.

const SHOWN = { opacityProperty: true, visibilityProperty: true };

/** The backgrounds that lie under an element, backmost first, its own last. */
function grounds(node) {
  const under = [];
  for (let up = node; up; up = up.parentElement) under.unshift(getComputedStyle(up).backgroundColor);
  return under;
}

const entry = (text, node, color, size = 15, weight = 400) => ({ text, color, under: grounds(node), size, weight });
const hidden = (node) => node.closest("option, noscript, :disabled, [inert]")
  || (document.querySelector("dialog[open]") && !node.closest("dialog"));

/** Visible texts and placeholders; disabled controls are exempt (WCAG 2.2, 1.4.3). */
function texts() {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode());) {
    const node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility(SHOWN) || hidden(node)) continue;
    const range = document.createRange();
    range.selectNode(text);
    const box = range.getBoundingClientRect();
    if (Math.min(box.width, box.height, node.getBoundingClientRect().width) < 2) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(node);
    found.push(entry(text.data.trim().slice(0, 40), node, color, parseFloat(fontSize), parseInt(fontWeight, 10)));
  }
  for (const node of document.querySelectorAll("[placeholder]")) {
    if (!node.checkVisibility(SHOWN) || node.value || hidden(node)) continue;
    found.push(entry(node.placeholder, node, getComputedStyle(node, "::placeholder").color));
  }
  return found;
}

/** What shows a control that has no text (an icon), the limits of one (a field's frame), or the focus (1.4.11). */
function shapes() {
  const found = [];
  for (const node of document.querySelectorAll("button.icon:enabled, button.send:enabled")) {
    if (node.checkVisibility(SHOWN)) found.push(entry(node.ariaLabel, node, getComputedStyle(node).color));
  }
  for (const node of document.querySelectorAll("input:not(.offscreen), textarea, .field select")) {
    if (!node.checkVisibility() || node.closest(".palette")) continue;
    found.push(entry(node.id, node.parentElement, getComputedStyle(node).borderTopColor));
  }
  const probe = document.createElement("i");
  probe.style.color = "var(--accent)";
  for (const ground of document.querySelectorAll("body, #sidebar, .own .body, dialog")) {
    ground.append(probe);
    found.push(entry("focus ring", ground, getComputedStyle(probe).color));
  }
  probe.remove();
  return found;
}

/** Numbers what the keyboard has to reach: what can be pressed, typed in or scrolled, and is shown. Returns how many. */
function reachable() {
  const top = document.querySelector("dialog[open]") ?? document.body;
  const all = top.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']");
  const found = [...all].filter((node) => !node.disabled && !node.closest("[inert], .offscreen") && node.id !== "scrim"
    && node.checkVisibility({ visibilityProperty: true })
    && (!node.closest("details:not([open])") || node.matches("summary")));
  found.forEach((node, index) => { node.dataset.stop = index; });
  return found.length;
}

/** Where the focus is: its number, whether one sees that it is there. */
function focused() {
  const node = document.activeElement;
  if (node === document.body) return null;
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(node);
  const ringed = (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2) || boxShadow !== "none";
  return { stop: node.dataset.stop ?? null, seen: ringed && node.checkVisibility(SHOWN), what: node.outerHTML.slice(0, 120) };
}

/** What lies beyond the left or right edge of the window or of its row, but for the content of what scrolls by itself. */
function stickingOut() {
  const out = document.scrollingElement.scrollWidth > innerWidth ? ["the page scrolls sideways"] : [];
  for (const node of document.querySelectorAll("#room *, dialog *, #sidebar.open *")) {
    const { left, right, width } = node.getBoundingClientRect();
    if (width < 2 || !node.checkVisibility({ visibilityProperty: true }) || (right <= innerWidth + 1 && left >= -1)) continue;
    let up = node.parentElement;
    while (up && !/auto|scroll|hidden/.test(getComputedStyle(up).overflowX)) up = up.parentElement;
    if (!up || up === document.body || ["thread", "monitor"].includes(up.id)) out.push(node.outerHTML.slice(0, 120));
  }
  for (const row of document.querySelectorAll("#room *, dialog *")) {
    const { display, overflowX } = getComputedStyle(row);
    if (display !== "flex" || overflowX !== "visible" || !row.checkVisibility()) continue;
    const edge = row.getBoundingClientRect().right + 1;
    const over = [...row.children].filter((node) => node.getBoundingClientRect().right > edge && node.checkVisibility());
    out.push(...over.map((node) => `out of its row: ${node.outerHTML.slice(0, 120)}`));
  }
  return out;
}

/** Controls under 24 by 24 pixels (2.5.8); links and buttons within a sentence are exempt. */
function smallTargets() {
  const all = document.querySelectorAll("button:not(.link), select, input:not(.offscreen, [type=checkbox]), textarea, summary");
  return [...all].filter((node) => node.checkVisibility({ visibilityProperty: true }) && !node.closest("[inert]"))
    .filter((node) => Math.min(node.getBoundingClientRect().width, node.getBoundingClientRect().height) < 24)
    .map((node) => node.outerHTML.slice(0, 120));
}
