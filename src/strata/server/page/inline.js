// The inline part of markdown: emphasis by CommonMark's delimiter runs, links, code, line breaks.

import { h } from "./dom.js";

const PUNCTUATION = /[\p{P}\p{S}]/u;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const BARE_URL = /^https?:\/\/[^\s<>"`]+/i;
const ANGLE_URL = /^<((?:https?|mailto):[^\s<>]*)>/i;
const ENTITY = /^&(?:amp|lt|gt|quot|apos|nbsp|copy|hellip|mdash|ndash|rarr|larr|times|deg|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});/;
const NAMED = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–",
  rarr: "→", larr: "←", times: "×", deg: "°",
};
const SAFE_URL = /^(?:https?:|mailto:)/i;
const BREAK = /^<br ?\/?>/i;
const MAX_LABEL = 1000;
const MAX_LINK_DEPTH = 4;

/** The nodes of a line or paragraph. `inLink`: no links inside links. */
export function inline(text, inLink = false, depth = 0) {
  const parts = [];
  const runs = [];
  let plain = "";
  const flush = () => {
    if (plain) parts.push(document.createTextNode(plain));
    plain = "";
  };
  const put = (node) => {
    flush();
    parts.push(node);
  };
  let at = 0;
  while (at < text.length) {
    const found = special(text, at, inLink, depth);
    if (found?.node) {
      put(found.node);
      at = found.end;
    } else if (found?.run) {
      flush();
      const run = { ...found.run, place: parts.length, node: document.createTextNode(text.slice(at, found.end)) };
      parts.push(run.node);
      runs.push(run);
      at = found.end;
    } else if (found) {
      plain += found.text;
      at = found.end;
    } else {
      plain += text[at];
      at += 1;
    }
  }
  flush();
  return emphasize(parts, runs);
}

/** What begins at `at`: {node, end}, {run, end}, {text, end}, or null for a plain character. */
function special(text, at, inLink, depth) {
  switch (text[at]) {
    case "\\":
      return escaped(text, at);
    case "`":
      return code(text, at);
    case "\n":
      // As in messages between people, a new line stays one.
      return { node: h("br"), end: at + 1 + /^ */.exec(text.slice(at + 1))[0].length };
    case " ":
      return trailing(text, at);
    case "*":
    case "_":
    case "~":
      return delimiter(text, at);
    case "!":
      return text[at + 1] === "[" ? picture(text, at, inLink) : null;
    case "[":
      return inLink || depth >= MAX_LINK_DEPTH ? null : link(text, at, depth);
    case "<":
      return angle(text, at, inLink);
    case "h":
    case "H":
      return inLink || /\w/.test(text[at - 1] ?? "") ? null : bare(text, at);
    case "$":
      return dollars(text, at);
    case "&":
      return entity(text, at);
    default:
      return null;
  }
}

function escaped(text, at) {
  const next = text[at + 1] ?? "";
  if (next === "(" || next === "[") {
    const close = text.indexOf(next === "(" ? "\\)" : "\\]", at + 2);
    if (close > at + 2) return { node: h("span.math", { role: "math" }, text.slice(at + 2, close).trim()), end: close + 2 };
  }
  if (next === "\n") return { text: "", end: at + 1 };
  return ESCAPABLE.test(next) ? { text: next, end: at + 2 } : null;
}

function code(text, at) {
  const ticks = /^`+/.exec(text.slice(at))[0];
  for (let from = at + ticks.length; ;) {
    const close = text.indexOf(ticks, from);
    if (close < 0) return { text: ticks, end: at + ticks.length };
    const run = /^`+/.exec(text.slice(close))[0].length;
    if (run === ticks.length) {
      let body = text.slice(at + ticks.length, close).replaceAll("\n", " ");
      if (body.startsWith(" ") && body.endsWith(" ") && body.trim()) body = body.slice(1, -1);
      return { node: h("code", body), end: close + run };
    }
    from = close + run;
  }
}

function trailing(text, at) {
  const blanks = /^ +/.exec(text.slice(at))[0].length;
  return text[at + blanks] === "\n" ? { text: "", end: at + blanks } : { text: " ".repeat(blanks), end: at + blanks };
}

function delimiter(text, at) {
  const sign = text[at];
  let end = at;
  while (text[end] === sign) end += 1;
  const before = previousCharacter(text, at);
  const after = end < text.length ? String.fromCodePoint(text.codePointAt(end)) : " ";
  const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [signBefore, signAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
  const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
  const length = end - at;
  if (sign === "~" && length !== 2) return { text: text.slice(at, end), end };
  const opens = left && (sign !== "_" || !right || signBefore);
  const closes = right && (sign !== "_" || !left || signAfter);
  return { run: { sign, length, full: length, opens, closes }, end };
}

function previousCharacter(text, at) {
  if (at === 0) return " ";
  return at > 1 && /[\udc00-\udfff]/.test(text[at - 1]) ? text.slice(at - 2, at) : text[at - 1];
}

/** Pairs the delimiter runs and wraps what is between them (CommonMark 0.31, "An algorithm for parsing"). */
function emphasize(parts, runs) {
  const bottoms = new Map();
  for (let closer = 0; closer < runs.length; closer += 1) {
    const close = runs[closer];
    while (close.closes && close.length > 0) {
      const key = `${close.sign}${close.opens}${close.full % 3}`;
      const opener = openerFor(runs, closer, bottoms.get(key) ?? -1);
      if (opener < 0) {
        bottoms.set(key, closer - 1);
        break;
      }
      const open = runs[opener];
      const width = open.length > 1 && close.length > 1 ? 2 : 1;
      wrap(parts, open, close, width);
      for (let between = opener + 1; between < closer; between += 1) runs[between].dead = true;
    }
  }
  return parts.filter((part) => part !== null);
}

function openerFor(runs, closer, bottom) {
  const close = runs[closer];
  for (let index = closer - 1; index > bottom; index -= 1) {
    const open = runs[index];
    if (open.dead || !open.opens || open.length === 0 || open.sign !== close.sign) continue;
    const both = open.closes || close.opens;
    if (both && (open.full + close.full) % 3 === 0 && !(open.full % 3 === 0 && close.full % 3 === 0)) continue;
    return index;
  }
  return -1;
}

function wrap(parts, open, close, width) {
  // Between two runs of one sign lies at least one part, else they would be one run: its place takes the result.
  const content = parts.slice(open.place + 1, close.place).filter((part) => part !== null);
  parts.fill(null, open.place + 1, close.place);
  parts[open.place + 1] = h(open.sign === "~" ? "del" : width === 2 ? "strong" : "em", content);
  for (const run of [open, close]) {
    run.length -= width;
    run.node.data = run.sign.repeat(run.length);
  }
}

function link(text, at, depth) {
  const label = bracketed(text, at);
  if (label === null) return null;
  const target = destination(text, at + label.length + 2);
  if (target === null) return null;
  const content = inline(label, true, depth + 1);
  return { node: anchor(target.url, content), end: target.end };
}

function picture(text, at, inLink) {
  const label = bracketed(text, at + 1);
  const target = label === null ? null : destination(text, at + label.length + 3);
  if (target === null) return null;
  const words = `picture: ${label || target.url}`;
  return { node: inLink ? document.createTextNode(words) : anchor(target.url, [words]), end: target.end };
}

/** The text between the bracket at `at` and its partner, or null. */
function bracketed(text, at) {
  let open = 0;
  const most = Math.min(text.length, at + MAX_LABEL);
  for (let index = at; index < most; index += 1) {
    if (text[index] === "\\") index += 1;
    else if (text[index] === "`") index = code(text, index).end - 1;
    else if (text[index] === "[") open += 1;
    else if (text[index] === "]") {
      open -= 1;
      if (open === 0) return text.slice(at + 1, index);
    }
  }
  return null;
}

/** `(url "title")` at `at`: {url, end}, or null. */
function destination(text, at) {
  if (text[at] !== "(") return null;
  const found = /^\(\s*(?:<([^<>\n]*)>|((?:\\.|[^\s()\\]|\((?:\\.|[^\s()\\])*\))*))(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)/
    .exec(text.slice(at, at + 4096));
  if (!found) return null;
  const url = (found[1] ?? found[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
  return { url, end: at + found[0].length };
}

function angle(text, at, inLink) {
  const line = BREAK.exec(text.slice(at, at + 8));
  if (line) return { node: h("br"), end: at + line[0].length };
  const found = inLink ? null : ANGLE_URL.exec(text.slice(at, at + 2048));
  return found ? { node: anchor(found[1], [found[1]]), end: at + found[0].length } : null;
}

function bare(text, at) {
  const found = BARE_URL.exec(text.slice(at, at + 2048));
  if (!found) return null;
  let url = found[0].replace(/[?!.,:;*_~'"\]]+$/, "");
  while (url.endsWith(")") && url.split(")").length > url.split("(").length) url = url.slice(0, -1);
  return { node: anchor(url, [url]), end: at + url.length };
}

/** A link that leaves the page as it is; what is no web or mail address stays text. */
function anchor(url, content) {
  if (!SAFE_URL.test(url)) return h("span.unlinked", { title: url }, content);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, content);
}

/** `$$...$$` or `$...$` where it cannot be money. */
function dollars(text, at) {
  const found = /^(\$\$?)(?=\S)([^$\n]*[^\s$])\1(?!\d)/.exec(text.slice(at, at + 2048));
  if (!found || (found[1] === "$" && !/[\\^_{}=]/.test(found[2]))) return null;
  return { node: h("span.math", { role: "math" }, found[2]), end: at + found[0].length };
}

function entity(text, at) {
  const found = ENTITY.exec(text.slice(at, at + 12));
  if (!found) return null;
  const name = found[0].slice(1, -1);
  if (name[0] !== "#") return { text: NAMED[name], end: at + found[0].length };
  const point = /^#[xX]/.test(name) ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
  const valid = point > 0 && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
  return { text: valid ? String.fromCodePoint(point) : "\ufffd", end: at + found[0].length };
}
