"""A model ready to run: its file opened and checked, its weights bound, and the ops chosen.

`forward` advances conversations by a window of rows; whatever computes it, the bits are those of `strata.arithmetic`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from strata import cpu, families, logs, settings
from strata.arithmetic import LaneState, Ops, Reference, Segment, bind
from strata.errors import FamilyError, UsageError
from strata.weights import Checkpoint, open_checkpoint

__all__ = ["KV_TYPES", "LaneState", "Model", "Segment", "load"]

KV_TYPES = ("bf16", "f16", "f32")
Progress = Callable[[str, int, int], None]
log = logs.get("model")


class Model:
    """A loaded model.

    `name`, `vocab_size`, `context_length` (tokens), `eos_ids` (tokens that end an answer), `turn_id` (opens a turn;
    None where the vocabulary has no such token).
    """

    def __init__(self, checkpoint: Checkpoint, reference: Reference, context: int) -> None:
        self._checkpoint = checkpoint
        self._reference = reference
        self.spec = reference.spec
        self.name = reference.spec.name
        self.vocab_size = reference.spec.vocab_size
        self.context_length = context
        self.eos_ids = _eos_ids(checkpoint)
        self.turn_id = _token_id(checkpoint, "<|im_start|>")

    def new_state(self) -> LaneState:
        """An empty conversation."""
        return LaneState.empty(self.spec)

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Advance every state by its tokens; logits fp32 (wanted rows of all segments in order, vocabulary)."""
        with np.errstate(all="ignore"):  # infinities and NaN are the row's own result, checked where a token is drawn
            return self._reference.forward(segments)


def load(
    path: str | Path,
    *,
    kv: str = "bf16",
    context: int | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Model:
    """Open, check and prepare the model at `path` (a GGUF, a safetensors file or directory).

    `kv` is the type of the attention caches, `context` a limit below the model's own, `threads` is for the C++ ops
    (one today, whatever is asked). `progress(what, done, total)` is called when what every token needs is unpacked.
    Raises WeightsError, FamilyError or UsageError with one sentence.
    """
    if kv not in KV_TYPES:
        raise UsageError(f"The cache type {kv!r} is not implemented; choose one of {', '.join(KV_TYPES)}.")
    checkpoint = open_checkpoint(path)
    opened = families.open_family(checkpoint)
    limit = opened.spec.context_length
    if context is not None and not 1 <= context <= limit:
        raise UsageError(f"A context of {context} tokens was asked for, but the model has 1 to {limit}.")
    if threads > 1:
        log.info(
            "threads=%d: the C++ ops of this version run on one thread; the option is kept for the next ones", threads
        )
    weights = bind(opened.source, opened.spec)
    reference = Reference(opened.spec, weights, kv, _ops())
    _warm(reference, opened.spec.layers, progress)
    return Model(checkpoint, reference, context or limit)


def _ops() -> Ops:
    return cpu.ops() if settings.read("STRATA_OPS") == "native" else Ops()


def _warm(reference: Reference, layers: int, progress: Progress | None) -> None:
    """Unpack what every token needs, so that the first answer is not slower than the others."""
    with np.errstate(all="ignore"):
        reference.forward([Segment(LaneState.empty(reference.spec), [0], 0)])
    if progress is not None:
        progress("weights", layers, layers)


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
