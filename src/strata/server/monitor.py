"""/metrics as JSON: what the engine does now, what it did, how the machine is (fields: docs/operations.md)."""

import os
import time
from typing import Any

import strata
from strata.server.hardware import Hardware
from strata.server.metrics import KEPT, Metrics
from strata.server.rates import HISTORY_S
from strata.server.records import Generation, Trace
from strata.server.service import Service
from strata.server.supervisor import State

SHOWN = 12
"""Requests that /metrics lists unless all are asked for."""
_MOST_IDLE = 64
_MOST_QUEUED = 50


class Monitor:
    """Reads the counters of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine
        self._hardware = Hardware()

    @property
    def metrics(self) -> Metrics:
        return self._engine.metrics

    @property
    def model(self) -> str:
        """The model's name."""
        return self._service.generator.name

    def report(self, *, requests: int = SHOWN, history_s: int = HISTORY_S) -> dict[str, Any]:
        """Everything, with the last `requests` requests and the last `history_s` seconds."""
        metrics, now = self.metrics, self.metrics.clock()
        return {
            "service": "strata",
            "version": strata.__version__,
            "engine": self.engine(),
            "live": self.live(now),
            "requests": [_record(trace) for trace in metrics.recent(min(requests, KEPT))],
            "totals": self._totals(),
            "conversation_cache": self._cache(),
            "hardware": self._hardware.read(server=os.getpid(), engine=self._engine.pid),
            "history": self._history(now, history_s),
            "time": time.time(),
        }

    def machine(self) -> dict[str, Any]:
        """Memory and graphics cards, as /v1/status has them; sizes in MiB."""
        read = self._hardware.read(server=os.getpid(), engine=self._engine.pid)
        cards = read["gpus"]
        return {
            "vram": {name: sum(card[f"memory_{name}"] for card in cards) for name in ("total_mib", "used_mib")}
            if cards else None,
            "machine": {
                "cpu_count": read["cpu_count"],
                "ram": {"total_mib": read["ram_total_mib"], "available_mib": read["ram_available_mib"]},
                "gpu": [card["name"] for card in cards],
            },
        }  # fmt: skip

    def engine(self) -> dict[str, Any]:
        """The engine and its model; what the engine's INFO line says under the names it has there."""
        engine = self._engine
        info = dict(engine.info)
        return {
            **info,
            "model": self._service.generator.name,
            "state": engine.state.value,
            "version": info.pop("engine", None),
            "max_context": engine.max_context,
            "images": False,
            "restarts": engine.restarts,
            "failure": str(engine.failure) if engine.state is State.FAILED else None,
        }

    def live(self, now: float) -> dict[str, Any]:
        """What is done at this moment."""
        metrics = self.metrics
        running, waiting = metrics.running, metrics.waiting
        decoding = [one for one in running if one.first is not None]
        state = "generating" if decoding else "reading" if running else "idle"
        return {
            "state": state if self._engine.state is State.READY else "unloaded",
            "running": len(running),
            "waiting": len(waiting),
            "serving": self._engine.serving,
            "tok_s": round(metrics.rate.value(now), 2),
            "tok_s_mean": round(sum(one.tok_s_mean() for one in decoding), 2),
            "slots": self.slots(now),
            "queue": [
                {"api": one.trace.api if one.trace is not None else "", "prompt_tokens": one.prompt_tokens,
                 "waited_s": round(now - one.asked, 3)}
                for one in waiting[:_MOST_QUEUED]
            ],
            "kv_pool": self.pool(),
        }  # fmt: skip

    def slots(self, now: float) -> list[dict[str, Any]]:
        """One row a slot, idle ones too: as many as are served at once, where that is a number."""
        by_slot = {one.slot: one for one in self.metrics.running}
        most = max(by_slot, default=0) + 1
        count = max(most, min(self._engine.serving or 1, _MOST_IDLE))
        model = self._service.generator.name
        return [
            {"slot": slot, "model": model, **by_slot[slot].live(now)} if slot in by_slot
            else {"slot": slot, "model": model, "state": "idle"}
            for slot in range(count)
        ]  # fmt: skip

    def pool(self) -> dict[str, Any] | None:
        """The KV pool in tokens; None while the engine has said nothing of one."""
        pool = self.metrics.pool
        if pool is None:
            cells = self._engine.info.get("pool_tokens", 0)
            return {"cells": cells, "free": cells, "used": 0, "fill": 0.0} if isinstance(cells, int) and cells else None
        used = pool.cells - pool.free
        return {
            "cells": pool.cells, "free": pool.free, "used": used, "fill": round(used / max(pool.cells, 1), 4),
        }  # fmt: skip

    def _totals(self) -> dict[str, Any]:
        totals = self.metrics.totals
        return {
            "since": totals.since,
            "requests": sum(totals.statuses.values()),
            "by_status": {str(status): count for status, count in sorted(totals.statuses.items())},
            "by_finish": dict(sorted(totals.finishes.items())),
            "prompt_tokens": totals.prompt_tokens,
            "reused": totals.reused,
            "prompt_read": totals.prompt_read,
            "output_tokens": totals.output_tokens,
            "prompt_ms": round(1000 * totals.prompt_s, 1),
            "decode_ms": round(1000 * totals.decode_s, 1),
            "drafts_offered": totals.drafts_offered,
            "drafts_accepted": totals.drafts_accepted,
            "expert_hits": totals.expert_hits,
            "expert_lookups": totals.expert_lookups,
            "engine_restarts": self._engine.restarts,
        }

    def _cache(self) -> dict[str, Any]:
        info, totals = self._engine.info, self.metrics.totals
        return {
            "budget_mib": info.get("conversation_cache_mib"),
            "slots": info.get("conversation_cache_slots"),
            "min_free_mib": info.get("conversation_cache_min_free_mib"),
            "prompt_tokens": totals.prompt_tokens,
            "reused": totals.reused,
            "hit_rate": round(totals.reused / totals.prompt_tokens, 4) if totals.prompt_tokens else None,
        }

    def _history(self, now: float, seconds: int) -> dict[str, Any]:
        rows = self.metrics.history.rows(now, seconds)
        names = ("tok_s", "prompt_tok_s", "running", "waiting", "pool_used")
        return {"seconds": len(rows), **{name: [row.get(name, 0) for row in rows] for name in names}}


def _record(trace: Trace) -> dict[str, Any]:
    """A request that has ended, as /metrics lists it. Several generations (n > 1) are one request."""
    ones = trace.generations
    dones = [one.done for one in ones if one.done is not None]
    first = min((one.first for one in ones if one.first is not None), default=None)
    began = min((one.began for one in ones if one.began is not None), default=None)
    ended = trace.ended if trace.ended is not None else trace.began
    prompt_ms, decode_ms = sum(done.prompt_ms for done in dones), sum(done.decode_ms for done in dones)
    read = sum(_read(one) for one in ones)
    generated = sum(one.generated for one in ones)
    return {
        "id": trace.id,
        "time": round(trace.time, 3),
        "duration_s": round(ended - trace.began, 4),
        "api": trace.api,
        "status": trace.status,
        "finish": next((one.finish for one in ones if one.finish is not None), None),
        "error": next((one.error for one in ones if one.error is not None), None),
        "generations": len(ones),
        "prompt_tokens": sum(one.prompt_tokens for one in ones),
        "reused": sum(one.reused for one in ones),
        "prompt_read": read,
        "output_tokens": generated,
        "wait_ms": None if began is None else round(1000 * (began - trace.began), 1),
        "ttft_ms": None if first is None else round(1000 * (first - trace.began), 1),
        "prompt_ms": round(prompt_ms, 1),
        "decode_ms": round(decode_ms, 1),
        "prompt_tok_s": round(1000 * read / prompt_ms, 2) if prompt_ms else None,
        "tok_s": round(1000 * generated / decode_ms, 2) if decode_ms else None,
        "drafts_offered": sum(done.drafts_offered for done in dones),
        "drafts_accepted": sum(done.drafts_accepted for done in dones),
    }


def _read(one: Generation) -> int:
    return one.done.prompt_read if one.done is not None else max(0, one.reached - one.reused)
