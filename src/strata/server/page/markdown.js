// Markdown (CommonMark's core and GitHub's tables, strikethrough, task lists) to DOM nodes. No HTML is ever parsed:
// tags in the text are shown as text. Pictures become links, so that reading an answer fetches nothing.

import { h } from "./dom.js";
import { codeBlock } from "./code.js";
import { inline } from "./inline.js";

const MAX_DEPTH = 16;
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*?)\s*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?=\S)| +(?=\S)|[ \t]*$)/;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const MATH_OPEN = { "$$": "$$", "\\[": "\\]" };

/** Renders `text` into `container`; blocks that have not changed since the last call keep their nodes (and state). */
export function renderMarkdown(container, text) {
  const blocks = split(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"));
  const old = container.renderedBlocks ?? [];
  let same = 0;
  while (same < old.length && same < blocks.length && old[same] === blocks[same].source) same += 1;
  while (container.childNodes.length > same) container.lastChild.remove();
  for (const block of blocks.slice(same)) container.append(build(block, 0));
  container.renderedBlocks = blocks.map((block) => block.source);
}

/** The blocks of some lines: {type, lines, source, ...}. `source` tells whether a block has changed. */
function split(lines) {
  const blocks = [];
  let index = 0;
  while (index < lines.length) {
    if (!lines[index].trim()) {
      index += 1;
      continue;
    }
    const block = fenced(lines, index) ?? math(lines, index) ?? single(lines, index) ?? quote(lines, index)
      ?? list(lines, index) ?? table(lines, index) ?? paragraph(lines, index);
    block.source = `${block.type}\n${lines.slice(index, block.end).join("\n")}`;
    blocks.push(block);
    index = block.end;
  }
  return blocks;
}

function fenced(lines, start) {
  const open = FENCE.exec(lines[start]);
  if (!open) return null;
  const [, indent, fence, info] = open;
  const close = new RegExp(`^ {0,3}${fence[0] === "`" ? "`" : "~"}{${fence.length},}[ \\t]*$`);
  let end = start + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  const body = lines.slice(start + 1, end).map((line) => dedent(line, indent.length));
  return { type: "code", language: info.split(/\s/)[0], text: body.join("\n"), end: Math.min(end + 1, lines.length) };
}

function math(lines, start) {
  const first = lines[start].trim();
  const close = MATH_OPEN[first.slice(0, 2)];
  if (!close) return null;
  let end = start;
  const ends = (line, from) => line.trimEnd().endsWith(close) && line.trim().length >= from;
  if (!ends(first, 4)) {
    end += 1;
    while (end < lines.length && lines[end].trim() && !ends(lines[end], 2)) end += 1;
    if (end === lines.length || !lines[end].trim()) return null;
  }
  const text = lines.slice(start, end + 1).join("\n").trim();
  return { type: "math", text: text.slice(2, -2).trim(), end: end + 1 };
}

/** Blocks of one line. */
function single(lines, start) {
  const heading = HEADING.exec(lines[start]);
  if (heading) return { type: "heading", level: heading[1].length, text: heading[2] ?? "", end: start + 1 };
  return RULE.test(lines[start]) ? { type: "rule", end: start + 1 } : null;
}

function quote(lines, start) {
  if (!QUOTE.test(lines[start])) return null;
  const inner = [];
  let end = start;
  // A paragraph goes on in the next line also where the sign is missing, as people write in mails.
  while (end < lines.length && (QUOTE.test(lines[end]) || (lazy(inner) && continues(lines[end])))) {
    inner.push(lines[end].replace(QUOTE, ""));
    end += 1;
  }
  return { type: "quote", lines: inner, end };
}

const lazy = (inner) => inner.length > 0 && continues(inner[inner.length - 1]);

/** Whether a line can only be part of a paragraph. */
function continues(line) {
  return line.trim() !== "" && !starts(line);
}

function starts(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
}

function list(lines, start) {
  const first = marker(lines[start]);
  if (!first) return null;
  const items = [];
  let [index, loose] = [start, false];
  while (index < lines.length) {
    const mark = marker(lines[index]);
    if (!mark || mark.kind !== first.kind || RULE.test(lines[index])) break;
    const item = [lines[index].slice(mark.width)];
    index += 1;
    let blank = false;
    while (index < lines.length) {
      const line = lines[index];
      const inside = line.trim() && indentOf(line) >= mark.width;
      if (line.trim() && !inside && (blank || !lazy([item[item.length - 1] || " "]) || !continues(line))) break;
      if (inside && blank) loose = true;
      blank = !line.trim();
      item.push(inside ? line.slice(mark.width) : line.trimStart());
      index += 1;
    }
    if (blank) {
      while (item.length && !item[item.length - 1].trim()) item.pop();
      const next = index < lines.length ? marker(lines[index]) : null;
      if (next && next.kind === first.kind && !RULE.test(lines[index])) loose = true;
    }
    items.push(item);
  }
  while (index > start + 1 && !lines[index - 1].trim()) index -= 1;
  return { type: "list", ordered: first.ordered, first: first.number, items, loose, end: index };
}

function marker(line) {
  const found = ITEM.exec(line);
  if (!found || RULE.test(line)) return null;
  const [whole, indent, sign, near] = found;
  const ordered = sign.length > 1;
  // More than four blanks after the sign belong to the text.
  const width = near ? whole.length : indent.length + sign.length + 1;
  return { kind: sign.slice(-1), ordered, number: ordered ? parseInt(sign, 10) : 1, width };
}

function table(lines, start) {
  if (start + 1 >= lines.length || !lines[start].includes("|") || !DELIMITER_ROW.test(lines[start + 1])) return null;
  const head = cells(lines[start]);
  const signs = cells(lines[start + 1]);
  if (head.length !== signs.length) return null;
  const align = signs.map((sign) => {
    if (sign.endsWith(":")) return sign.startsWith(":") ? "center" : "right";
    return sign.startsWith(":") ? "left" : "";
  });
  let end = start + 2;
  const rows = [];
  while (end < lines.length && continues(lines[end])) {
    const row = cells(lines[end]).slice(0, head.length);
    rows.push([...row, ...Array(head.length - row.length).fill("")]);
    end += 1;
  }
  return { type: "table", head, align, rows, end };
}

/** The cells of a table's row; a bar after a backslash is text. */
function cells(line) {
  const parts = [""];
  const body = line.trim().replace(/^\|/, "");
  for (let index = 0; index < body.length; index += 1) {
    if (body[index] === "\\" && body[index + 1] === "|") {
      parts[parts.length - 1] += "|";
      index += 1;
    } else if (body[index] === "|") parts.push("");
    else parts[parts.length - 1] += body[index];
  }
  if (parts.length > 1 && !parts[parts.length - 1].trim()) parts.pop();
  return parts.map((part) => part.trim());
}

function paragraph(lines, start) {
  let end = start + 1;
  while (end < lines.length && lines[end].trim()) {
    const level = /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[end]);
    if (level) {
      const text = lines.slice(start, end).map((line) => line.trim()).join("\n");
      return { type: "heading", level: level[1][0] === "=" ? 1 : 2, text, end: end + 1 };
    }
    if (interrupts(lines[end])) break;
    end += 1;
  }
  return { type: "paragraph", text: lines.slice(start, end).map((line) => line.trimStart()).join("\n").trimEnd(), end };
}

/** Whether a line ends the paragraph before it; a list does so only when it begins at one and says something. */
function interrupts(line) {
  const item = marker(line);
  if (item && !RULE.test(line)) return (!item.ordered || item.number === 1) && line.slice(item.width).trim() !== "";
  return starts(line);
}

function build(block, depth) {
  const inner = (lines) => (depth < MAX_DEPTH
    ? split(lines).map((part) => build(part, depth + 1))
    : [h("p", lines.join("\n"))]);
  switch (block.type) {
    case "code":
      return codeBlock(block.text, block.language);
    case "math":
      return h("pre.math", { tabindex: "0", role: "math" }, block.text);
    case "heading":
      // The page's title is h1 and a message's author h2.
      return h(`h${Math.min(block.level + 2, 6)}`, { dataset: { level: block.level } }, inline(block.text));
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", inner(block.lines));
    case "list":
      return buildList(block, inner);
    case "table":
      return buildTable(block);
    default:
      return h("p", inline(block.text));
  }
}

function buildList(block, inner) {
  const start = block.ordered && block.first !== 1 ? block.first : null;
  return h(block.ordered ? "ol" : "ul", { start }, block.items.map((lines) => {
    const task = /^\[([ xX])\] +/.exec(lines[0] ?? "");
    const body = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
    const item = h(task ? "li.task" : "li", task && taskBox(task[1] !== " "));
    for (const node of inner(body)) {
      if (!block.loose && node.tagName === "P") item.append(...node.childNodes);
      else item.append(node);
    }
    return item;
  }));
}

function taskBox(done) {
  const box = h("input", { type: "checkbox", disabled: true, "aria-label": done ? "done" : "to do" });
  box.checked = done;
  return box;
}

function buildTable({ head, align, rows }) {
  const cell = (tag) => (text, column) => {
    const node = h(tag, inline(text));
    if (align[column]) node.classList.add(align[column]);
    return node;
  };
  return h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", h("thead", h("tr", head.map(cell("th")))),
      rows.length > 0 && h("tbody", rows.map((row) => h("tr", row.map(cell("td")))))));
}

const indentOf = (line) => line.length - line.trimStart().length;

function dedent(line, width) {
  return line.slice(Math.min(width, indentOf(line)));
}
