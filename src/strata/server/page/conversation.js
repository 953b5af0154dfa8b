// A conversation is a tree of messages: editing or asking again adds a version beside the old one, nothing is lost.
//
// {id, title, named, created, updated, system, options, nodes: {id: message}, head: id of the last message shown}
// message: {id, parent, role, content, reasoning, thinkingMs, calls, created, state, note, stats}
// state of an answer: "running", "waiting" (for a retry), "done", "stopped", "failed", "cut" (page closed meanwhile)

const FORMAT = "strata-conversations";
const TITLE_LENGTH = 60;
export const OPTIONS = {
  temperature: [0, 10], top_p: [0, 1], top_k: [0, 1_000_000], min_p: [0, 1], seed: [0, Number.MAX_SAFE_INTEGER],
  max_tokens: [1, 10_000_000], presence_penalty: [-10, 10], frequency_penalty: [-10, 10],
  repetition_penalty: [0.01, 10], reasoning_budget_tokens: [0, 10_000_000],
};
export const EFFORTS = ["none", "low", "medium", "high"];

/** A random id; crypto.randomUUID is missing where a phone comes by http. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  return `c${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export function newConversation(options = {}, system = "") {
  const now = Date.now();
  return {
    id: newId(), title: "New conversation", named: false, created: now, updated: now, system,
    options: { ...options }, nodes: {}, head: null,
  };
}

export function addMessage(conversation, parent, role, content, more = {}) {
  const message = { id: newId(), parent, role, content, created: Date.now(), state: "done", ...more };
  conversation.nodes[message.id] = message;
  conversation.head = message.id;
  if (!conversation.named && role === "user" && parent === null) conversation.title = titleOf(content);
  return message;
}

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH).trimEnd()}…` : line || "New conversation";
}

/** The messages that are shown, first to last. */
export function path(conversation, head = conversation.head) {
  const shown = [];
  for (let node = conversation.nodes[head]; node; node = conversation.nodes[node.parent]) shown.push(node);
  return shown.reverse();
}

/** The versions of a message, oldest first. */
export function versions(conversation, message) {
  return Object.values(conversation.nodes).filter((node) => node.parent === message.parent && node.role === message.role);
}

/** Shows the given version and what last followed it. */
export function choose(conversation, message) {
  const children = new Map();
  for (const node of Object.values(conversation.nodes)) children.set(node.parent, node);
  let last = message;
  while (children.has(last.id)) last = children.get(last.id);
  conversation.head = last.id;
}

/** The request's messages: everything up to and including `last`. Unchanged beginnings meet the server's cache. */
export function requestMessages(conversation, last) {
  const system = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  const turns = path(conversation, last).filter((node) => node.role === "user" || node.content || node.calls?.length);
  return [...system, ...turns.map((node) => {
    const message = { role: node.role, content: node.content };
    if (node.reasoning) message.reasoning_content = node.reasoning;
    return message;
  })];
}

/** Whether every word of `query` is in the title or a shown message. */
export function matches(conversation, query) {
  const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
  const text = [conversation.title, ...path(conversation).map((node) => node.content)].join("\n").toLowerCase();
  return wanted.every((word) => text.includes(word));
}

/** What is around the first place of the query's first word, for a list of results. */
export function excerpt(conversation, query) {
  const word = query.toLowerCase().split(/\s+/).find(Boolean);
  if (!word) return "";
  for (const node of path(conversation)) {
    const at = node.content.toLowerCase().indexOf(word);
    if (at >= 0) return `${at > 30 ? "…" : ""}${node.content.slice(Math.max(at - 30, 0), at + 90).replace(/\s+/g, " ")}`;
  }
  return "";
}

export function toMarkdown(conversation) {
  const parts = [`# ${conversation.title}`, `*${new Date(conversation.created).toISOString().slice(0, 16).replace("T", " ")} UTC*`];
  if (conversation.system.trim()) parts.push("## System", conversation.system);
  for (const node of path(conversation)) {
    parts.push(node.role === "user" ? "## You" : "## Strata");
    if (node.reasoning) parts.push(`> *Thinking*\n>\n${node.reasoning.trim().split("\n").map((line) => `> ${line}`).join("\n")}`);
    for (const call of node.calls ?? []) parts.push(`\`${call.name}\`\n\n\`\`\`json\n${call.arguments}\n\`\`\``);
    if (node.content) parts.push(node.content);
    if (node.state !== "done" && node.note) parts.push(`*${node.note}*`);
  }
  return `${parts.join("\n\n")}\n`;
}

export const toJson = (conversations) => JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);

/** The conversations of an exported text, or of a list of {role, content}. Throws an Error with a sentence. */
export function fromJson(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  if (Array.isArray(data) || Array.isArray(data?.messages)) return [fromMessages(Array.isArray(data) ? data : data.messages)];
  if (data?.format !== FORMAT || !Array.isArray(data.conversations)) {
    throw new Error("The file holds neither conversations exported by this page nor a list of messages.");
  }
  if (data.version !== 1) throw new Error(`The file has version ${data.version}; this page reads version 1.`);
  return data.conversations.map(checked);
}

function fromMessages(messages) {
  const conversation = newConversation();
  for (const { role, content } of messages) {
    if (typeof content !== "string") continue;
    if (role === "system" || role === "developer") conversation.system = content;
    else if (role === "user" || role === "assistant") addMessage(conversation, conversation.head, role, content);
  }
  if (!conversation.head) throw new Error("The file has no message of a user or an assistant.");
  conversation.title = titleOf(path(conversation)[0].content);
  return conversation;
}

/** A conversation of a foreign file: known fields of the right kind only, and a tree that is one. */
function checked(given) {
  const text = (value, other = "") => (typeof value === "string" ? value : other);
  const number = (value, other) => (Number.isFinite(value) ? value : other);
  const fresh = newConversation(checkedOptions(given?.options), text(given?.system));
  const nodes = {};
  for (const [id, node] of Object.entries(given?.nodes ?? {})) {
    const parent = node?.parent ?? null;
    if (!/^c[0-9a-f]{20}$/.test(id) || !["user", "assistant"].includes(node.role) || typeof node.content !== "string") {
      throw new Error("The file has a message that this page cannot read.");
    }
    if (parent !== null && !(parent in nodes)) throw new Error("The file has a message whose predecessor is missing.");
    nodes[id] = {
      id, parent, role: node.role, content: node.content, created: number(node.created, fresh.created),
      state: ["done", "stopped", "failed", "cut"].includes(node.state) ? node.state : "done",
      reasoning: text(node.reasoning), thinkingMs: number(node.thinkingMs, undefined), note: text(node.note),
      calls: Array.isArray(node.calls)
        ? node.calls.map((call) => ({ name: text(call?.name), arguments: text(call?.arguments) })) : undefined,
    };
  }
  const head = given.head in nodes ? given.head : Object.keys(nodes).pop() ?? null;
  if (!head) throw new Error("The file has a conversation without messages.");
  return {
    ...fresh, nodes, head, title: text(given.title, "Imported"), named: given.named === true,
    created: number(given.created, fresh.created), updated: number(given.updated, fresh.updated),
  };
}

/** The options of `given` that are numbers within their bounds (and an effort that there is). */
export function checkedOptions(given) {
  const options = {};
  for (const [name, [least, most]] of Object.entries(OPTIONS)) {
    const value = given?.[name];
    if (Number.isFinite(value) && value >= least && value <= most) options[name] = value;
  }
  if (EFFORTS.includes(given?.reasoning_effort)) options.reasoning_effort = given.reasoning_effort;
  return options;
}
