"""A model ready to run: its file opened and checked, its weights bound, and the ops chosen.

`forward` advances conversations by a window of rows; whatever computes it, the bits are those of `strata.arithmetic`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from strata import families, logs, settings
from strata.arithmetic import Reference, Sampling, bind
from strata.cpu.model import NativeModel
from strata.errors import FamilyError, UsageError
from strata.families import Spec
from strata.model.reference import ReferencePath
from strata.model.segment import LaneState, Segment
from strata.weights import Checkpoint, fingerprint, open_checkpoint

__all__ = ["KV_TYPES", "LaneState", "Model", "Segment", "load"]

KV_TYPES = ("bf16", "f16", "f32")
Progress = Callable[[str, int, int], None]
log = logs.get("model")


class Model:
    """A loaded model.

    `name`, `vocab_size`, `context_length` (tokens), `eos_ids` (tokens that end an answer), `turn_id` (opens a turn;
    None where the vocabulary has no such token), `can_draft` (it has an MTP block), `kv` (the caches' type),
    `computed_by` ("native avx2", "reference": whose bits these are).
    """

    def __init__(self, checkpoint: Checkpoint, spec: Spec, path: NativeModel | ReferencePath, context: int) -> None:
        self._checkpoint = checkpoint
        self._path: Any = path  # its lanes are its own
        self.spec = spec
        self.name = spec.name
        self.vocab_size = spec.vocab_size
        self.context_length = context
        self.can_draft = bool(spec.mtp_layers)
        self.kv: str = path.kv
        self.computed_by: str = path.computed_by
        self.eos_ids = _eos_ids(checkpoint)
        self.turn_id = _token_id(checkpoint, "<|im_start|>")

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return int(self._path.threads)

    @cached_property
    def fingerprint(self) -> str:
        """What tells these weights from others, 32 hexadecimal digits."""
        return fingerprint(self._checkpoint)

    def new_state(self, drafts: bool = False) -> LaneState:
        """An empty conversation. `drafts`: the MTP block follows it, so that `draft` can be asked."""
        lane: LaneState = self._path.new_lane(drafts)
        return lane

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Advance every state by its tokens; logits fp32 (wanted rows of all segments in order, vocabulary).

        Raises UsageError for a conversation with undecided rows, one that stands in two segments, and a token that the
        vocabulary does not have.
        """
        try:
            logits: npt.NDArray[np.float32] = self._path.forward(
                [s.state for s in segments],
                [s.tokens for s in segments],
                [s.tentative for s in segments],
                [s.logits_from for s in segments],
            )
        except ValueError as error:
            raise UsageError(f"The window cannot be computed: {error}.") from error
        return logits

    def draft(self, states: Sequence[LaneState], tokens: Sequence[int], depth: int) -> npt.NDArray[np.int64]:
        """Greedy drafts of the MTP block, int64 (len(states), depth), of what may follow tokens[i].

        tokens[i] is the next token of states[i] (drawn, not yet computed). The states do not change.
        """
        drafts: npt.NDArray[np.int64] = self._path.draft(states, tokens, depth)[0]
        return drafts

    def draft_chains(
        self, states: Sequence[LaneState], tokens: Sequence[int], depth: int, least: Sequence[float]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """`draft`, with the chance that the MTP block gives them to stand up to there, fp32 of the same shape.

        A chain of states[i] ends (-1, and 0, from there on) before that chance falls below least[i].
        """
        drafts, chances = self._path.draft(states, tokens, depth, least)
        return drafts, chances

    def sample(self, logits: npt.NDArray[np.float32], sampling: Sampling, *, choice: int, position: int) -> int:
        """Draw the token at `position` from one row of logits (V,); the same for the same (seed, choice, position).

        Raises RequestError on a NaN logit.
        """
        return int(self._path.sample(logits, sampling, choice=choice, position=position))


def load(
    path: str | Path,
    *,
    kv: str = "bf16",
    context: int | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Model:
    """Open, check and prepare the model at `path` (a GGUF, a safetensors file or directory).

    `kv` is the type of the attention caches, `context` a limit below the model's own, `threads` of the C++ ops (0: one
    a physical core that this process may use). `progress(what, done, total)` is called while weights are made ready.
    Raises WeightsError, FamilyError or UsageError with one sentence.
    """
    if kv not in KV_TYPES:
        raise UsageError(f"The cache type {kv!r} is not implemented; choose one of {', '.join(KV_TYPES)}.")
    checkpoint = open_checkpoint(path)
    opened = families.open_family(checkpoint)
    limit = opened.spec.context_length
    if context is not None and not 1 <= context <= limit:
        raise UsageError(f"A context of {context} tokens was asked for, but the model has 1 to {limit}.")
    weights = bind(opened.source, opened.spec)
    computes: NativeModel | ReferencePath
    if settings.read("STRATA_OPS") == "native":
        computes = NativeModel(opened.spec, weights, kv, threads, progress)
        log.info("computing in C++ with %d threads", computes.threads)
    else:
        computes = ReferencePath(Reference(opened.spec, weights, kv))
    return Model(checkpoint, opened.spec, computes, context or limit)


def _token_id(checkpoint: Checkpoint, text: str) -> int | None:
    """The id of a token in a GGUF's vocabulary, None where there is none (or no vocabulary)."""
    tokens = checkpoint.metadata.get("tokenizer.ggml.tokens")
    return tokens.index(text) if isinstance(tokens, list) and text in tokens else None


def _eos_ids(checkpoint: Checkpoint) -> tuple[int, ...]:
    """The tokens that end an answer, from the file's metadata: eos, end of turn, end of message."""
    if checkpoint.kind == "gguf":
        keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
        found = [checkpoint.metadata.get(key) for key in keys]
    else:
        config = checkpoint.metadata.get("config")
        text = config.get("text_config", config) if isinstance(config, dict) else {}
        value = text.get("eos_token_id")
        found = value if isinstance(value, list) else [value]
    ids = tuple(dict.fromkeys(int(v) for v in found if isinstance(v, int | np.integer)))
    if not ids:
        raise FamilyError(f"{checkpoint.path.name}: no end token is named (tokenizer.ggml.eos_token_id).")
    return ids
