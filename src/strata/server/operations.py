"""Routes that say how the server is: health, status."""

import asyncio
import time
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import strata
from strata.server import prometheus
from strata.server.metrics import KEPT
from strata.server.monitor import SHOWN, Monitor
from strata.server.problem import FieldError
from strata.server.rates import HISTORY_S
from strata.server.replying import Json, read_body
from strata.server.sampling import Sampling
from strata.server.service import Service
from strata.server.supervisor import State
from strata.text.grammar import KINDS

DIALECTS = ("openai", "responses", "anthropic")


def operations_routes(service: Service) -> list[Route]:
    """Health, status, slots, properties, metrics, and the tokenizer."""
    routes = _Routes(service)
    return [
        *(Route(path, routes.health) for path in ("/health", "/api/health")),
        Route("/version", routes.version),
        Route("/status", routes.now),
        Route("/v1/status", routes.status),
        Route("/slots", routes.slots),
        Route("/props", routes.props),
        Route("/metrics", routes.metrics),
        Route("/tokenize", routes.tokenize, methods=["POST"]),
        Route("/detokenize", routes.detokenize, methods=["POST"]),
    ]


class TokenizeRequest(msgspec.Struct):
    """The body of POST /tokenize, as llama.cpp has it."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(msgspec.Struct):
    """The body of POST /detokenize."""

    tokens: list[int]


T = TypeVar("T")


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine
        self._generator = service.generator
        self._monitor = Monitor(service)

    async def health(self, request: Request) -> Response:
        state = self._engine.state
        context = self._engine.max_context
        body = {
            "status": "ok" if state is State.READY else state.value,
            "service": "strata", "model": self._generator.name, "max_context": context,
            "images": False, "loaded": state is State.READY, "api_key": bool(self._service.access.keys),
        }  # fmt: skip
        return Json(body, 200 if state is State.READY else 503)

    async def metrics(self, request: Request) -> Response:
        query = request.query_params
        accept = request.headers.get("accept", "")
        open_metrics = "application/openmetrics-text" in accept
        if query.get("format") == "prometheus" or open_metrics or "text/plain" in accept:
            text = prometheus.render(self._monitor, open_metrics=open_metrics)
            kind = prometheus.OPEN_METRICS if open_metrics else prometheus.TEXT
            return Response(text, headers={"content-type": kind, "cache-control": "no-store"})
        return Json(self._monitor.report(
            requests=KEPT if query.get("requests") == "all" else _count(query.get("requests"), SHOWN, "requests"),
            history_s=_count(query.get("history"), HISTORY_S, "history"),
        ), headers={"Cache-Control": "no-store"})

    async def version(self, request: Request) -> Response:
        return Json({"version": strata.__version__, "engine": self._engine.info.get("engine")})

    async def now(self, request: Request) -> Response:
        """What is done for the request that has run longest."""
        metrics = self._monitor.metrics
        now, running = metrics.clock(), metrics.running
        first = min(running, key=lambda one: one.asked).live(now) if running else {}
        return Json({
            "busy": bool(running), "queued": len(metrics.waiting), "phase": first.get("phase"),
            "prompt_tokens": first.get("prompt_tokens", 0), "generated": first.get("generated", 0),
            "elapsed_s": first.get("elapsed_s", 0), "tokens_per_s": first.get("tok_s", 0),
        })  # fmt: skip

    async def slots(self, request: Request) -> Response:
        rows = self._monitor.slots(self._monitor.metrics.clock())
        return Json([
            {"id": row["slot"], "n_ctx": self._engine.max_context, "is_processing": row["state"] != "idle",
             "n_prompt_tokens": row.get("prompt_tokens", 0), "n_decoded": row.get("generated", 0), **row}
            for row in rows
        ])  # fmt: skip

    async def props(self, request: Request) -> Response:
        generator, template = self._generator, self._generator.template
        return Json({
            "default_generation_settings": {"n_ctx": self._engine.max_context, "params": _params(generator.defaults)},
            "total_slots": self._engine.serving or len(self._monitor.slots(self._monitor.metrics.clock())),
            "model_alias": generator.name, "model_path": generator.name,
            "chat_template": template.source if template is not None else "",
            "modalities": {"vision": False, "audio": False},
            "bos_token": self._token(generator.tokenizer.vocabulary.bos_id),
            "eos_token": self._token(generator.tokenizer.vocabulary.eos_id),
            "is_sleeping": False, "build_info": f"strata {strata.__version__}",
        })  # fmt: skip

    async def tokenize(self, request: Request) -> Response:
        asked = await self._body(request, TokenizeRequest)
        tokenizer = self._generator.tokenizer
        ids = await asyncio.to_thread(
            tokenizer.encode, asked.content, parse_special=asked.parse_special, add_special=asked.add_special
        )
        if not asked.with_pieces:
            return Json({"tokens": ids})
        return Json({"tokens": [{"id": number, "piece": _piece(tokenizer.token_bytes(number))} for number in ids]})

    async def detokenize(self, request: Request) -> Response:
        asked = await self._body(request, DetokenizeRequest)
        size = self._generator.tokenizer.size
        wrong = next((number for number in asked.tokens if not 0 <= number < size), None)
        if wrong is not None:
            raise FieldError(f"tokens: {wrong} is not a token; this model has 0 to {size - 1}.", "tokens")
        return Json({"content": await asyncio.to_thread(self._generator.tokenizer.decode, asked.tokens)})

    async def _body(self, request: Request, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(await read_body(request, self._service), type=kind)
        except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FieldError(f"{error}.", None) from None

    def _token(self, number: int | None) -> str:
        return "" if number is None else self._generator.tokenizer.vocabulary.tokens[number]

    async def status(self, request: Request) -> Response:
        service, engine = self._service, self._engine
        info = dict(engine.info)
        return Json({
            "service": "strata", "version": strata.__version__, "model": self._generator.name,
            "loaded": engine.state is State.READY, "auto_load": True,
            "structured_output": list(KINDS) if info.get("grammar") == 1 else [],
            "engine": {"state": engine.state.value, "restarts": engine.restarts, "info": info,
                       "failure": str(engine.failure) if engine.state is State.FAILED else None},
            "started": int(service.started), "uptime_s": int(time.time() - service.started),
            "context": {"native": service.facts.native_context, "max_positions": engine.max_context},
            "cache_max_tokens": info.get("pool_tokens"),
            "concurrency": {"serving": engine.serving, "requested": engine.parallel,
                            "max_waiting": engine.limits.max_waiting},
            "dialects": list(DIALECTS), "vision": False, "last_timings": self._last_timings(),
            "activity": {"requests": service.requests, "in_flight": engine.running + engine.waiting,
                         "waiting": engine.waiting, "last_request_at": self._monitor.metrics.last_asked},
            **self._monitor.machine(),
        })  # fmt: skip

    def _last_timings(self) -> dict[str, Any] | None:
        """Of the last generation that the engine finished."""
        last = self._monitor.metrics.last
        if last is None or last.done is None:
            return None
        done = last.done
        return {
            "prompt_tokens": done.prompt, "reused": last.reused, "output_tokens": done.generated,
            "prompt_ms": done.prompt_ms, "decode_ms": done.decode_ms, "finish": last.finish,
            "drafts_offered": done.drafts_offered, "drafts_accepted": done.drafts_accepted,
        }  # fmt: skip


def _params(sampling: Sampling) -> dict[str, Any]:
    names = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty")
    return {name: getattr(sampling, name) for name in names} | {"repeat_penalty": sampling.repetition_penalty}


def _piece(data: bytes) -> str | list[int]:
    """A token's text; its bytes where they are no text by themselves."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def _count(text: str | None, usual: int, name: str) -> int:
    """A number of the query."""
    if text is None:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise FieldError(f"{name} must be a whole number, not {text!r}.", name)
    return int(text)
