"""The exposition formats of Prometheus: text 0.0.4 and OpenMetrics 1.0.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and https://openmetrics.io. The `vllm:` names mean
what they mean there (https://docs.vllm.ai/en/latest/usage/metrics.html), so that its dashboards work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from strata.server.monitor import Monitor
from strata.server.rates import Histogram

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_MIB = 2**20
_REASONS = {"cancel": "abort", "pool": "length"}


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its samples are pairs of labels and value, or one histogram."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...] = ()
    histogram: Histogram | None = None

    def lines(self, labels: Mapping[str, str], *, open_metrics: bool) -> Iterable[str]:
        """The family's lines; a counter's family bears the ending _total in the text format alone."""
        total = "_total" if self.kind == "counter" else ""
        head = self.name if open_metrics else self.name + total
        yield f"# HELP {head} {self.help}"
        yield f"# TYPE {head} {self.kind}"
        for own, value in self.samples:
            yield f"{self.name}{total}{_labels({**labels, **own})} {_number(value)}"
        if self.histogram is not None:
            counts = self.histogram.cumulative()
            for bound, count in zip((*self.histogram.bounds, float("inf")), counts, strict=True):
                yield f"{self.name}_bucket{_labels({**labels, 'le': _number(bound)})} {count}"
            yield f"{self.name}_sum{_labels(labels)} {_number(self.histogram.sum)}"
            yield f"{self.name}_count{_labels(labels)} {counts[-1]}"


def render(monitor: Monitor, *, open_metrics: bool) -> bytes:
    """All metrics of a server."""
    labels = {"model_name": monitor.model}
    lines = [line for family in families(monitor) for line in family.lines(labels, open_metrics=open_metrics)]
    if open_metrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def families(monitor: Monitor) -> list[Family]:
    """All metrics: those of vLLM's names, then our own."""
    report = monitor.report(requests=0, history_s=0)
    return [*_vllm(monitor, report), *_own(report), *_machine(report["hardware"])]


def _vllm(monitor: Monitor, report: Mapping[str, Any]) -> Iterable[Family]:
    live, totals, metrics = report["live"], report["totals"], monitor.metrics
    pool = live["kv_pool"]
    reasons: dict[str, float] = dict.fromkeys(("stop", "length", "abort", "error"), 0)
    for finish, count in totals["by_finish"].items():
        reason = _REASONS.get(finish, finish)
        reasons[reason] = reasons.get(reason, 0) + count
    yield _gauge("vllm:num_requests_running", "Requests that the engine works on.", live["running"])
    yield _gauge("vllm:num_requests_waiting", "Requests that wait for the engine.", live["waiting"])
    yield _gauge("vllm:kv_cache_usage_perc", "Share of the KV pool in use, 0 to 1.", pool["fill"] if pool else 0)
    yield _counter("vllm:prompt_tokens", "Tokens of prompts, reused ones included.", totals["prompt_tokens"])
    yield _counter("vllm:generation_tokens", "Tokens written.", totals["output_tokens"])
    yield Family("vllm:request_success", "counter", "Generations that ended, by how.",
                 tuple(({"finished_reason": reason}, count) for reason, count in reasons.items()))  # fmt: skip
    yield _counter("vllm:prefix_cache_queries", "Prompt tokens looked for in kept conversations.",
                   totals["prompt_tokens"])  # fmt: skip
    yield _counter("vllm:prefix_cache_hits", "Prompt tokens found in kept conversations.", totals["reused"])
    yield _counter("vllm:spec_decode_num_draft_tokens", "Draft tokens offered.", totals["drafts_offered"])
    yield _counter("vllm:spec_decode_num_accepted_tokens", "Draft tokens accepted.", totals["drafts_accepted"])
    for name, meaning, histogram in (
        ("time_to_first_token", "Seconds from a request to its first token.", metrics.first_token),
        ("inter_token_latency", "Seconds from a token to the next.", metrics.between_tokens),
        ("e2e_request_latency", "Seconds from a request to its end.", metrics.whole),
    ):
        yield Family(f"vllm:{name}_seconds", "histogram", meaning, histogram=histogram)


def _own(report: Mapping[str, Any]) -> Iterable[Family]:
    live, totals = report["live"], report["totals"]
    states = ("unloaded", "idle", "reading", "generating")
    yield Family("strata:live_state", "gauge", "1 for what the engine does now.",
                 tuple(({"state": state}, int(live["state"] == state)) for state in states))  # fmt: skip
    kinds, slots = ("idle", "reading", "decoding"), [row["state"] for row in live["slots"]]
    yield Family("strata:live_slots", "gauge", "Slots by what they do now.",
                 tuple(({"state": kind}, slots.count(kind)) for kind in kinds))  # fmt: skip
    yield _gauge("strata:live_tok_s", "Tokens per second over the last two seconds.", live["tok_s"])
    yield Family("strata:http_requests", "counter", "Answered requests for generations, by HTTP status.",
                 tuple(({"status": status}, count) for status, count in totals["by_status"].items()))  # fmt: skip
    yield _counter("strata:prompt_read_tokens", "Prompt tokens read, without reused ones.", totals["prompt_read"])
    yield _counter("strata:prompt_seconds", "Seconds spent reading prompts.", totals["prompt_ms"] / 1000)
    yield _counter("strata:decode_seconds", "Seconds spent writing replies.", totals["decode_ms"] / 1000)
    yield _counter("strata:expert_hits", "Experts found in the cache.", totals["expert_hits"])
    yield _counter("strata:expert_lookups", "Experts looked for in the cache.", totals["expert_lookups"])
    yield _counter("strata:engine_restarts", "Times that the engine was started again.", totals["engine_restarts"])
    if live["kv_pool"] is not None:
        yield _gauge("strata:kv_pool_tokens", "Tokens that the KV pool can hold.", live["kv_pool"]["cells"])
        yield _gauge("strata:kv_pool_free_tokens", "Tokens of the KV pool that are free.", live["kv_pool"]["free"])


def _machine(hardware: Mapping[str, Any]) -> Iterable[Family]:
    for name, meaning, scale in (
        ("ram_total", "Memory of the machine.", _MIB), ("ram_available", "Memory that is available.", _MIB)
    ):  # fmt: skip
        if (value := hardware[f"{name}_mib"]) is not None:
            yield _gauge(f"strata:{name}_bytes", meaning, value * scale)
    processes = {name: hardware[name] for name in ("server", "engine") if hardware[name] is not None}
    if processes:
        yield Family("strata:process_resident_bytes", "gauge", "Resident memory of a process.",
                     tuple(({"process": name}, one["rss_mib"] * _MIB) for name, one in processes.items()))  # fmt: skip
    for key, name, meaning, factor in (
        ("memory_total_mib", "memory_total_bytes", "Memory of a graphics card.", _MIB),
        ("memory_used_mib", "memory_used_bytes", "Memory of a graphics card in use.", _MIB),
        ("utilization_percent", "utilization_ratio", "Share of time that a graphics card was busy, 0 to 1.", 0.01),
        ("temperature_c", "temperature_celsius", "Temperature of a graphics card.", 1),
        ("power_w", "power_watts", "Power that a graphics card takes.", 1),
    ):
        samples = tuple(
            ({"gpu": str(index)}, card[key] * factor)
            for index, card in enumerate(hardware["gpus"]) if card[key] is not None
        )  # fmt: skip
        if samples:
            yield Family(f"strata:gpu_{name}", "gauge", meaning, samples)


def _gauge(name: str, meaning: str, value: float) -> Family:
    return Family(name, "gauge", meaning, (({}, value),))


def _counter(name: str, meaning: str, value: float) -> Family:
    return Family(name, "counter", meaning, (({}, value),))


def _labels(labels: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value)) if isinstance(value, float) else str(value)
