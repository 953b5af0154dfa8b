// Blocks of code: a language label, a copy button, and a light colouring of comments, texts, numbers and keywords.

import { copyButton, h } from "./dom.js";

const MAX_COLOURED = 20_000;

const words = (text) => new Set(text.split(" "));
const C_LIKE = words(
  "abstract as async await bool boolean break case catch char class const constexpr continue default defer delete do "
  + "double else enum export extends extern false final finally float fn for from func function go goto if impl "
  + "implements import in inline instanceof int interface let long loop match mod mut namespace new nil null nullptr "
  + "operator override package private protected pub public readonly ref return self short signed sizeof static struct "
  + "super switch template this throw trait true try type typedef typename typeof undefined union unsafe unsigned use "
  + "using val var virtual void volatile when where while with yield string",
);
const PYTHON = words(
  "False None True and as assert async await break case class continue def del elif else except finally for from "
  + "global if import in is lambda match nonlocal not or pass raise return self try while with yield",
);
const SHELL = words("if then else elif fi for while until do done case esac function in return export local set unset "
  + "source exit cd echo sudo");
const SQL = words(
  "select from where and or not null insert into values update set delete create table index view drop alter join left "
  + "right inner outer full on group by order having limit offset as distinct union all case when then else end "
  + "primary key foreign references default is in like between exists with",
);
const TEXT = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const TRIPLE = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`;
const TEMPLATE = "`(?:\\\\.|[^`\\\\])*`?";
const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH = String.raw`#[^\n]*`;

const LANGUAGES = {
  c: { comment: SLASHES, text: `${TEXT}|${TEMPLATE}`, keywords: C_LIKE },
  python: { comment: HASH, text: `${TRIPLE}|${TEXT}`, keywords: PYTHON },
  shell: { comment: String.raw`(?:^|(?<=\s))#[^\n]*`, text: TEXT, keywords: SHELL },
  sql: { comment: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, text: TEXT, keywords: SQL, anyCase: true },
  json: { comment: "(?!)", text: TEXT, keywords: words("true false null") },
  config: { comment: `${HASH}|(?:^|(?<=\\n));[^\\n]*`, text: TEXT, keywords: words("true false null yes no on off") },
  css: { comment: String.raw`\/\*[\s\S]*?(?:\*\/|$)`, text: TEXT, keywords: words("important") },
  markup: { comment: String.raw`<!--[\s\S]*?(?:-->|$)`, text: TEXT, keywords: new Set() },
};
const NAMES = {
  c: "c cpp c++ cc h hpp cuda java js javascript jsx ts typescript tsx mjs rust rs go golang swift kotlin kt scala csharp cs dart php zig glsl",
  python: "python py python3 pyi starlark",
  shell: "sh bash zsh shell console fish dockerfile makefile make ruby rb perl r powershell ps1",
  sql: "sql postgres postgresql mysql sqlite",
  json: "json jsonc json5 jsonl",
  config: "yaml yml toml ini conf env properties cmake",
  css: "css scss less",
  markup: "html xml svg vue",
};
const FAMILY = new Map(Object.entries(NAMES).flatMap(([family, names]) => names.split(" ").map((name) => [name, family])));
const EXPRESSIONS = new Map();

/** A block of code with its head. */
export function codeBlock(text, language) {
  const name = /^[\w+#.-]{1,24}$/.test(language) ? language : "";
  const code = h("code", coloured(text, name.toLowerCase()));
  return h("figure.code",
    h("figcaption", h("span.language", name || "text"), copyButton(`Copy code${name ? ` (${name})` : ""}`, () => text)),
    h("pre", { tabindex: "0", "aria-label": `Code${name ? ` (${name})` : ""}`, role: "region" }, code));
}

function coloured(text, name) {
  const family = FAMILY.get(name);
  if (!family || text.length > MAX_COLOURED) return [text];
  const { keywords, anyCase } = LANGUAGES[family];
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(expression(family))) {
    const { comment, string, number, word } = found.groups;
    const kind = (comment !== undefined && "comment") || (string !== undefined && "string")
      || (number !== undefined && "number")
      || (word !== undefined && keywords.has(anyCase ? word.toLowerCase() : word) && "keyword");
    if (!kind) continue;
    parts.push(text.slice(end, found.index), h(`span.t-${kind}`, found[0]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

function expression(family) {
  if (!EXPRESSIONS.has(family)) {
    const { comment, text } = LANGUAGES[family];
    const source = `(?<comment>${comment})|(?<string>${text})|(?<number>\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?`
      + "(?:[eE][+-]?\\d+)?)\\b)|(?<word>[A-Za-z_]\\w*)";
    EXPRESSIONS.set(family, new RegExp(source, "g"));
  }
  return EXPRESSIONS.get(family);
}
