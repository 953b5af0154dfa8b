// Settings: of this conversation (system prompt, sampling), of this browser (key, kept conversations, export).

import { currentKey, setKey } from "./api.js";
import { EFFORTS, OPTIONS, fromJson, toJson } from "./conversation.js";
import { askText, dialog } from "./dialogs.js";
import { download, h, toast } from "./dom.js";
import { bytes, percent, plural } from "./format.js";

const LARGEST_IMPORT = 64 * 2 ** 20;
const DEFAULTS = "strata.defaults";
const FIELDS = [
  ["temperature", "Temperature", "0 is always the likeliest token", 0.1],
  ["top_p", "Top p", "keep the likeliest tokens of this total", 0.05],
  ["top_k", "Top k", "keep so many tokens, 0 is all", 1],
  ["min_p", "Min p", "keep tokens of this share of the likeliest", 0.01],
  ["max_tokens", "Longest answer", "in tokens, thinking too", 1],
  ["seed", "Seed", "same seed, same answer", 1],
  ["presence_penalty", "Presence penalty", "against tokens that occurred", 0.1],
  ["frequency_penalty", "Frequency penalty", "by how often they occurred", 0.1],
  ["repetition_penalty", "Repetition penalty", "a factor, 1 is none", 0.05],
  ["reasoning_budget_tokens", "Thinking budget", "in tokens, then it answers", 64],
];
/** Fields that /props has under another name, and what happens where nothing is set and nothing is given. */
const GIVEN_NAMES = { repetition_penalty: "repeat_penalty" };
const UNSET = { max_tokens: "what fits", seed: "random", reasoning_budget_tokens: "no limit" };
const EFFORT_NAMES = { none: "off", low: "low", medium: "medium", high: "high" };

/** What new conversations begin with: {options, system}. */
export function defaults() {
  try {
    return JSON.parse(localStorage.getItem(DEFAULTS)) ?? {};
  } catch {
    return {};
  }
}

/** `app`: {store, conversation(), settingsChanged(), serverDefaults(), needsKey(), open(id), shortcuts()}. */
export function openSettings(app) {
  const conversation = app.conversation();
  const box = dialog("Settings", "sheet",
    section("This conversation", ...conversationFields(app, conversation)),
    section("This browser", ...browserFields(app)));
  return box;
}

const section = (title, ...parts) => h("section", h("h3", title), parts);

function conversationFields(app, conversation) {
  const changed = () => app.settingsChanged(conversation);
  const system = h("textarea", {
    id: "system", rows: 4, placeholder: "How the model should behave. Empty: none.",
    oninput: (event) => {
      conversation.system = event.target.value;
      changed();
    },
  });
  system.value = conversation.system;
  const given = app.serverDefaults();
  const inputs = FIELDS.map(([name, label, hint, step]) => numberField(conversation, { name, label, hint, step }, given[GIVEN_NAMES[name] ?? name] ?? UNSET[name], changed));
  const effort = h("select", {
    id: "option-effort",
    onchange: (event) => {
      if (event.target.value) conversation.options.reasoning_effort = event.target.value;
      else delete conversation.options.reasoning_effort;
      changed();
    },
  }, h("option", { value: "" }, "default"), EFFORTS.map((name) => h("option", { value: name }, EFFORT_NAMES[name])));
  effort.value = conversation.options.reasoning_effort ?? "";
  const keep = () => {
    localStorage.setItem(DEFAULTS, JSON.stringify({ options: conversation.options, system: conversation.system }));
    toast("New conversations begin with these settings.");
  };
  return [
    h("label", { for: "system" }, "System prompt"), system,
    h("p.small", "It stands before everything: changing it lets the server read the conversation anew."),
    h("div.fields", h("div.field", h("label", { for: "option-effort" }, "Thinking"), effort, h("p.small", "how much before the answer")),
      inputs),
    h("p.small", "Empty fields are left to the server."),
    h("button", { type: "button", onclick: keep }, "Use for new conversations"),
  ];
}

function numberField(conversation, { name, label, hint, step }, given, changed) {
  const [least, most] = OPTIONS[name];
  const id = `option-${name}`;
  const input = h("input", {
    id, type: "number", inputmode: "decimal", min: least, max: most, step: "any", placeholder: given ?? "",
    "aria-describedby": `${id}-hint`, "data-step": step,
    oninput: () => {
      const value = input.valueAsNumber;
      const right = input.value === "" ? !input.validity.badInput
        : value >= least && value <= most && (step < 1 || Number.isInteger(value));
      input.setCustomValidity(right ? "" : "out of range");
      note.textContent = right ? hint : `must be ${step < 1 ? "" : "a whole number "}from ${least} to ${most}`;
      note.classList.toggle("wrong", !right);
      input.setAttribute("aria-invalid", String(!right));
      if (!right) return;
      if (input.value === "") delete conversation.options[name];
      else conversation.options[name] = value;
      changed();
    },
  });
  input.value = conversation.options[name] ?? "";
  const note = h("p.small", { id: `${id}-hint` }, hint);
  return h("div.field", h("label", { for: id }, label), input, note);
}

function browserFields(app) {
  const parts = [];
  if (app.needsKey() || currentKey()) {
    parts.push(h("button", { type: "button", onclick: () => askKey() }, currentKey() ? "Change the server's key" : "Enter the server's key"));
  }
  const usage = h("p.small");
  showUsage(app, usage);
  const file = h("input.offscreen", { type: "file", accept: ".json,application/json", "aria-label": "File to import", tabindex: "-1",
    onchange: (event) => importFile(app, event.target) });
  const all = () => download("strata-conversations.json", "application/json", toJson(app.store.list()));
  return [
    parts, usage,
    h("div.button-row", h("button", { type: "button", onclick: all }, "Export all"),
      h("button", { type: "button", onclick: () => file.click() }, "Import…"), file,
      h("button", { type: "button", onclick: () => app.shortcuts() }, "Shortcuts")),
  ];
}

async function showUsage(app, node) {
  const kept = plural(app.store.list().length, "conversation");
  if (!app.store.keeps) {
    node.textContent = `${kept}; this browser keeps nothing, so they are lost on leaving the page.`;
    return;
  }
  const usage = await app.store.usage().catch(() => null);
  if (!usage) {
    node.textContent = `${kept}, kept in this browser alone.`;
    return;
  }
  node.textContent = `${kept}, kept in this browser alone: ${bytes(usage.usage)}, ${percent(usage.usage / usage.quota)} of what it allows. `;
  if (usage.persistent || !navigator.storage.persist) return;
  node.append(h("button.link", {
    type: "button",
    onclick: async () => {
      const done = await navigator.storage.persist();
      toast(done ? "The browser keeps them, also when it needs room." : "The browser did not agree; export what must not be lost.");
      if (done) showUsage(app, node);
    },
  }, "Ask the browser never to clear them"));
}

async function importFile(app, input) {
  const [file] = input.files;
  input.value = "";
  if (!file) return;
  try {
    if (file.size > LARGEST_IMPORT) throw new Error(`The file has ${bytes(file.size)}; at most ${bytes(LARGEST_IMPORT)} can be imported.`);
    const found = fromJson(await file.text());
    for (const conversation of found) app.store.save(conversation, { now: true, touch: false });
    toast(`Imported ${plural(found.length, "conversation")}.`);
    if (found.length === 1) app.open(found[0].id);
  } catch (error) {
    toast(error.message, null, 8000);
  }
}

let asking = null;

/**
 * Asks for the server's key; resolves to whether one was given. However many ask at once, there is one dialog.
 * `refused`: whether the one that was sent is wrong.
 */
export function askKey(refused = false) {
  asking ??= ask(refused).finally(() => {
    asking = null;
  });
  return asking;
}

async function ask(refused) {
  const remember = h("input", { type: "checkbox", id: "remember-key" });
  const given = await askText({
    title: "The server wants a key", label: "Key", type: "password", action: "Use this key",
    wrong: refused ? "The server refused this key." : "",
    text: "Its owner set it with --api-key or STRATA_API_KEY. The page sends it to this server alone.",
    more: [h("div.check", remember, h("label", { for: "remember-key" }, "Remember it in this browser"))],
  });
  if (given === null) return false;
  setKey(given, remember.checked);
  return true;
}
