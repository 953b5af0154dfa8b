// The monitor: what /metrics says, once a second while it is looked at (fields: docs/operations.md).

import { send } from "./api.js";
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { bytes, clock, count, duration, known, percent, plural, speed } from "./format.js";

const POLL_MS = 1000;
const MEMORY_S = 300;
const SHOWN = 30;
const MIB = 2 ** 20;
const APIS = { chat_completions: "Chat", completions: "Text", responses: "Responses", messages: "Messages" };

export class Monitor {
  #timer = null;
  #visible = false;
  #abort = null;

  constructor(node) {
    this.node = node;
    this.state = h("div.monitor-state", { role: "status" });
    this.tiles = h("div.tiles");
    this.writing = new Chart("Written tokens a second", "writing");
    this.reading = new Chart("Read tokens a second", "reading");
    this.lanes = h("div.lanes");
    this.memory = h("div.bars");
    this.machine = h("div.bars");
    this.requests = h("tbody");
    node.append(this.grid = h("div.monitor-grid.blank",
      this.state, this.tiles,
      card("Speed", "speed", h("div.charts", this.writing.node, this.reading.node)),
      card("Lanes", "lanes-card", this.lanes),
      h("div.side", card("Conversations in memory", "", this.memory), card("Machine", "", this.machine)),
      card("Requests", "requests-card", h("div.table-scroll", { tabindex: "0", role: "region", "aria-label": "Requests" }, h("table.requests",
        h("thead", h("tr", ["Time", "API", "Ended", "Prompt", "Cached", "Written", "First token", "tok/s", "Drafts", "Took"]
          .map((name, index) => h(index > 2 ? "th.number" : "th", { scope: "col" }, name)))), this.requests)))));
    document.addEventListener("visibilitychange", () => this.#go());
  }

  show(visible) {
    this.#visible = visible;
    this.#go();
  }

  /** Polls while the monitor and the page are seen, and only then. */
  #go() {
    clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#visible && document.visibilityState === "visible") this.#poll();
    else this.#abort?.abort();
  }

  async #poll() {
    this.#abort?.abort();
    const abort = this.#abort = new AbortController();
    let again = POLL_MS;
    try {
      const signal = AbortSignal.any([abort.signal, AbortSignal.timeout(8000)]);
      const response = await send(`/metrics?requests=${SHOWN}&history=${MEMORY_S}`, { signal });
      this.#render(await response.json());
      this.#says("");
    } catch (error) {
      if (abort.signal.aborted) return;
      again = error.status === 401 ? null : 2 * POLL_MS;
      this.#failed(error);
    }
    if (again !== null && this.#abort === abort && !abort.signal.aborted) this.#timer = setTimeout(() => this.#poll(), again);
  }

  #failed(error) {
    if (error.status === 401) {
      this.#says("The server wants a key before it tells its figures.",
        h("button", { type: "button", onclick: () => this.#poll() }, "Enter the key"));
      return;
    }
    const reason = error.name === "TimeoutError" || !error.status ? "The server does not answer." : error.message;
    const old = this.grid.classList.contains("blank") ? "" : "The figures are old; ";
    this.#says(`${reason} ${old}${old ? "they go on" : "The figures come"} by themselves when it is back.`);
  }

  #says(text, ...more) {
    if (this.said !== text) this.state.replaceChildren(...(text ? [h("span", text), ...more] : []));
    this.said = text;
    this.node.classList.toggle("old", text !== "");
  }

  #render(data) {
    const { live = {}, totals = {}, history = {}, hardware = {}, engine = {} } = data;
    const cache = data.conversation_cache ?? {};
    this.grid.classList.remove("blank");
    this.tiles.replaceChildren(
      tile("Writing", speed(live.tok_s), "tok/s"),
      tile("Running", count(live.running), live.serving ? `of ${count(live.serving)}` : "at once"),
      tile("Waiting", count(live.waiting), live.waiting ? `longest ${duration(live.queue?.[0]?.waited_s)}` : "nobody"),
      tile("From cache", percent(cache.hit_rate), "of all prompts"),
      tile("Drafts", percent(totals.drafts_offered ? totals.drafts_accepted / totals.drafts_offered : NaN),
        totals.drafts_offered ? `of ${count(totals.drafts_offered)} accepted` : "none so far"),
      tile("Answered", count(totals.requests), `${plural(totals.output_tokens, "token")}`));
    this.writing.show(history.tok_s ?? [], MEMORY_S);
    this.writing.says(speed(live.tok_s));
    this.reading.show(history.prompt_tok_s ?? [], MEMORY_S);
    this.reading.says(speed(history.prompt_tok_s?.at(-1)));
    this.#lanes(live);
    this.#memory(live, cache, totals);
    this.#machine(hardware, engine);
    this.requests.replaceChildren(...(data.requests ?? []).map(requestRow));
    if (!data.requests?.length) this.requests.append(h("tr", h("td.empty", { colspan: 10 }, "No request has ended yet.")));
  }

  #lanes({ slots = [], queue = [] }) {
    const busy = slots.filter((slot) => slot.state !== "idle");
    const idle = slots.length - busy.length;
    const rows = [...busy.map(laneRow), ...queue.map((one) => h("div.lane.waiting", h("span.phase", "waiting"),
      h("span.lane-text", `${plural(one.prompt_tokens, "token")} to read`), h("span.lane-speed", duration(one.waited_s))))];
    if (!rows.length) rows.push(h("p.empty", "Nothing is being answered."));
    else if (idle) rows.push(h("p.empty", `${plural(idle, "place")} free.`));
    this.lanes.replaceChildren(...rows);
  }

  #memory(live, cache, totals) {
    const pool = live.kv_pool;
    const parts = [];
    if (pool) {
      const busy = (live.slots ?? []).filter((slot) => slot.state !== "idle")
        .map((slot) => Math.max(slot.prompt_read ?? 0, slot.reused ?? 0) + (slot.generated ?? 0));
      const kept = Math.max(0, pool.used - busy.reduce((sum, value) => sum + value, 0));
      parts.push(h("div.bar", h("p", h("span", "KV pool"), h("b", `${count(pool.used)} of ${count(pool.cells)} tokens`)),
        stack([...busy, kept].map((value) => value / pool.cells), `KV pool ${percent(pool.fill)} full`),
        h("p.small", `${percent(pool.fill)} full; a layer for each lane, the last one for what is kept of other conversations`)));
    }
    if (known(cache.budget_mib) && cache.budget_mib > 0) {
      parts.push(h("div.bar", h("p", h("span", "Parking in RAM"), h("b", `up to ${bytes(cache.budget_mib * MIB)}`))));
    }
    parts.push(bar("Prompts from the cache", cache.hit_rate, `${count(cache.reused)} of ${count(cache.prompt_tokens)}`));
    if (totals.expert_lookups) {
      parts.push(bar("Experts found in fast memory", totals.expert_hits / totals.expert_lookups, percent(totals.expert_hits / totals.expert_lookups)));
    }
    this.memory.replaceChildren(...parts);
  }

  #machine(hardware, engine) {
    const parts = [];
    if (known(hardware.cpu_percent)) parts.push(bar(`CPU, ${plural(hardware.cpu_count, "core")}`, hardware.cpu_percent / 100, percent(hardware.cpu_percent / 100)));
    if (known(hardware.ram_total_mib)) {
      const used = hardware.ram_total_mib - hardware.ram_available_mib;
      parts.push(bar("RAM", used / hardware.ram_total_mib, `${bytes(used * MIB)} of ${bytes(hardware.ram_total_mib * MIB)}`));
    }
    for (const card of hardware.gpus ?? []) {
      parts.push(bar(card.name, (card.utilization_percent ?? 0) / 100, [percent(card.utilization_percent / 100),
        known(card.temperature_c) && `${card.temperature_c} °C`, known(card.power_w) && `${Math.round(card.power_w)} W`].filter(Boolean).join(", ")));
      parts.push(bar("its memory", card.memory_used_mib / card.memory_total_mib,
        `${bytes(card.memory_used_mib * MIB)} of ${bytes(card.memory_total_mib * MIB)}`));
    }
    const process = (name, one) => one && `${name} ${bytes(one.rss_mib * MIB)}, ${plural(one.threads, "thread")}`;
    const text = [process("Engine", hardware.engine), process("Server", hardware.server)].filter(Boolean).join("; ");
    parts.push(h("p.small", `${text}. Engine ${engine.state ?? "unknown"}, ${engine.restarts ? `restarted ${plural(engine.restarts, "time")}` : "never restarted"}.`));
    this.machine.replaceChildren(...parts);
  }
}

function card(title, kind, ...parts) {
  return h(`section.card${kind && `.${kind}`}`, { "aria-label": title }, h("h2", title), parts);
}

const tile = (name, value, text) => h("div.tile", h("p.tile-name", name), h("p.tile-value", value), h("p.tile-text", text));

function laneRow(slot) {
  const reading = slot.state === "reading";
  const share = reading ? slot.prompt_read / Math.max(1, slot.prompt_tokens) : slot.generated / Math.max(1, slot.max_tokens);
  const text = reading
    ? `${count(slot.prompt_read)} of ${count(slot.prompt_tokens)} read`
    : `${count(slot.generated)}${slot.max_tokens ? ` of up to ${count(slot.max_tokens)}` : ""} tokens, prompt ${count(slot.prompt_tokens)}`;
  return h(`div.lane.${reading ? "reading" : "decoding"}`, h("span.phase", slot.phase),
    h("span.lane-text", text, slot.reused ? `, ${count(slot.reused)} cached` : ""),
    h("span.lane-speed", reading ? duration(slot.elapsed_s) : `${speed(slot.tok_s)} tok/s`),
    meter(share, `Lane ${slot.slot + 1}: ${slot.phase}`));
}

function bar(name, share, text) {
  return h("div.bar", h("p", h("span", name), h("b", text)), meter(share, name));
}

function meter(share, label) {
  const value = known(share) ? Math.min(1, Math.max(0, share)) : 0;
  const inner = h("i");
  inner.style.width = `${100 * value}%`;
  return h("div.meter", { role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * value) }, inner);
}

/** Shares one beside the other, in the colours of the layers. */
function stack(shares, label) {
  return h("div.stack", { role: "img", "aria-label": label }, shares.map((share, index) => {
    const part = h("i", { class: index === shares.length - 1 ? "kept" : `layer-${index % 3 + 1}` });
    part.style.width = `${100 * share}%`;
    return part;
  }));
}

function requestRow(one) {
  const failed = one.status >= 400 && one.status !== 499;
  const ended = failed ? `${one.status}${one.error ? ` ${one.error}` : ""}` : one.status === 499 ? "client left" : one.finish ?? "–";
  const cells = [
    count(one.prompt_tokens), count(one.reused), count(one.output_tokens), known(one.ttft_ms) ? duration(one.ttft_ms / 1000) : "–",
    speed(one.tok_s), one.drafts_offered ? percent(one.drafts_accepted / one.drafts_offered) : "–", duration(one.duration_s),
  ];
  return h("tr", h("td", clock(1000 * one.time)), h("td", APIS[one.api] ?? one.api), h(failed ? "td.danger" : "td", ended),
    cells.map((value) => h("td.number", value)));
}
