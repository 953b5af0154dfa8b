"""Three readings of one GGUF side by side: ours, llama.cpp's, and the float32 model's.

A router whose choice is a near tie may choose otherwise in another arithmetic, and every later value then differs by
much more than rounding. So each of two models is compared with a float32 model that is made to use its choices, and
`flip` says how far the float32 model's own logits disagreed with them: a wrong choice shows there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from oracle_float_model import FloatModel
from oracle_llamacpp import LlamaModel

from strata import cpu, families
from strata.arithmetic import LaneState, MtpSegment, Reference, Segment, bind, experts
from strata.weights import open_checkpoint


@dataclass(frozen=True)
class Reading:
    """One model on one text: logits (T, V), streams (T, S*D), MTP logits (T-1, V), experts (T, k) of each block."""

    logits: np.ndarray
    streams: np.ndarray
    draft: np.ndarray | None
    routing: list[np.ndarray]


@dataclass(frozen=True)
class Error:
    """A reading against the float32 model with the same experts: largest relative RMS of a position, and `flip`."""

    logits: float
    draft: float
    flip: float


def relative_rms(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Relative root mean square error of each row."""
    return np.sqrt(((got - want) ** 2).mean(1) / (want.astype(np.float64) ** 2).mean(1))


def kl(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Kullback-Leibler divergence (nats) of each row's distribution from the wanted one, of logits (T, V)."""
    p, q = (_log_softmax(x.astype(np.float64)) for x in (want, got))
    return (np.exp(p) * (p - q)).sum(1)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def prompt(count: int, vocab: int, eos: int, seed: int = 1) -> np.ndarray:
    """Random tokens with the n-gram's end token inside, once alone and twice in a row."""
    tokens = np.random.default_rng(seed).integers(0, vocab - 1, count)
    tokens[[count // 3, count // 2, count // 2 + 1]] = eos
    return tokens


class Ours:
    """The package's reference with its C++ ops on a GGUF file."""

    def __init__(self, path: Path, kv: str = "bf16") -> None:
        checkpoint = open_checkpoint(path)
        opened = families.open_family(checkpoint)
        self.metadata = checkpoint.metadata
        self.spec = opened.spec
        self.model = Reference(opened.spec, bind(opened.source, opened.spec), kv=kv, ops=cpu.ops())

    def read(self, tokens: np.ndarray, forced: list[np.ndarray] | None = None) -> Reading:
        """The trunk's logits, and the MTP block's on the trunk's own streams and the text's next tokens."""
        state = LaneState.empty(self.spec)
        with _routing(forced) as chosen:
            streams = self.model.trunk([Segment(state, tokens, 0)])
            logits = self.model.logits(streams, self.model.weights.head)
            draft = None
            if state.mtp is not None:
                draft, _ = self.model.mtp([MtpSegment(state.mtp, streams[:-1], tokens[1:])])
        return Reading(logits, streams.reshape(len(tokens), -1), draft, chosen)


@contextmanager
def _routing(forced: list[np.ndarray] | None) -> Iterator[list[np.ndarray]]:
    """Records the experts that each block chooses, in the order of the blocks; or makes them those of `forced`."""
    route, chosen = experts.route, []

    def recorded(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        if forced is not None:
            wanted = np.zeros(logits.shape, bool)
            np.put_along_axis(wanted, forced[len(chosen)], True, axis=1)
            logits = np.where(wanted, logits, np.float32(-np.inf))
        ids, weights = route(logits, count)
        chosen.append(ids)
        return ids, weights

    experts.route = recorded
    try:
        yield chosen
    finally:
        experts.route = route


def llama(path: Path, tokens: np.ndarray, spec: families.Spec, cache: str = "f16") -> Reading:
    """llama.cpp on the same text."""
    with LlamaModel(path, cache=cache, context=max(256, -(-len(tokens) // 256) * 256)) as model:
        logits, streams = model.forward(tokens)
        draft = model.draft(streams[:-1], tokens[1:]) if spec.mtp_layers else None
        routing = model.chosen(spec.layers + spec.mtp_layers, spec.experts.count, spec.experts.used)
    return Reading(logits, streams, draft, routing)


def against_float(reading: Reading, model: FloatModel, tokens: np.ndarray) -> Error:
    """The reading against the float32 model that uses the reading's experts."""
    model.force(reading.routing)
    try:
        logits, streams = model.forward(tokens)
        flip = max(r.margin for r in model.routers[: len(model.trunk.model.layers)])
        draft = 0.0
        if reading.draft is not None:
            draft = float(relative_rms(reading.draft, model.draft(streams[:-1], tokens[1:])).max())
            flip = max(flip, model.routers[-1].margin)
    finally:
        model.force(None)
    return Error(float(relative_rms(reading.logits, logits).max()), draft, flip)


@dataclass(frozen=True)
class Divergence:
    """Mean KL (nats) of ours and of llama.cpp's next-token distributions from the float32 model's, over positions."""

    ours: float
    llama: float
    positions: int


def divergence(path: Path, ours: Ours, tokens: np.ndarray) -> Divergence:
    """Every model choosing its own experts; the text in pieces of the model's context."""
    model, found = FloatModel.load(path), []
    for start in range(0, len(tokens), ours.spec.context_length):
        piece = tokens[start : start + ours.spec.context_length]
        want, _ = model.forward(piece)
        found.append([kl(want, ours.read(piece).logits), kl(want, llama(path, piece, ours.spec).logits)])
    mean = np.concatenate(found, axis=1).mean(1)
    return Divergence(float(mean[0]), float(mean[1]), len(tokens))
