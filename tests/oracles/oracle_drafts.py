"""How many of the MTP block's drafts greedy decoding accepts, one draft a step: ours and llama.cpp's.

llama.cpp gives the block one row more than the published engines do: row p holds the streams of position p - 1 and
token p, and row 0 zeros and the first token; ours holds position p's streams and token p + 1 in row p. Rotary
positions are relative, so what differs is one more key to attend to, and which four rows make an index block.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xllamacpp
from oracle_compare import Ours

from strata.arithmetic import LaneState, MtpSegment, Segment


@dataclass(frozen=True)
class Drafts:
    """Drafted and accepted tokens, and the text after the prompt."""

    drafted: int
    accepted: int
    text: list[int]


def ours(
    model: Ours, prompt: list[int], count: int, *, zero_row: bool = False, text: list[int] | None = None
) -> Drafts:
    """Greedy text of `count` tokens, and the drafts on it; `zero_row` lays the rows out as llama.cpp does.

    `text` is taken instead of our own greedy one: two engines part at near ties, and then draft on different texts.
    """
    state, tokens = LaneState.empty(model.spec), [*prompt, *(text or [])]
    streams = model.model.trunk([Segment(state, tokens, 0)])
    for _ in range(0 if text else count):
        tokens.append(int(model.model.logits(streams[-1:], model.model.weights.head)[0].argmax()))
        streams = np.concatenate([streams, model.model.trunk([Segment(state, tokens[-1:], 0)])])
    rows, following = streams[:-1], tokens[1:]
    if zero_row:
        rows, following = np.concatenate([np.zeros_like(rows[:1]), rows]), tokens
    cache = LaneState.empty(model.spec).mtp
    assert cache is not None
    guesses = [None] * (1 - zero_row) + list(model.model.mtp([MtpSegment(cache, rows, following)])[0].argmax(1))
    at, drafted, accepted = len(prompt), 0, 0
    while at < len(tokens) - 2:  # tokens[at] is known; guesses[at] is for the place after it; none for the last token
        right = guesses[at] == tokens[at + 1]
        drafted, accepted, at = drafted + 1, accepted + right, at + 1 + right
    return Drafts(drafted, accepted, tokens[len(prompt) :])


def llama(path: Path, prompt: list[int], count: int) -> Drafts:
    """The same of llama.cpp's server with `draft-mtp`."""
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers = str(path), 1024, 1, 0
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.warmup, p.fit_params, p.verbosity, p.port = False, False, 0, 0
    p.cache_ram_mib = p.n_ctx_checkpoints = 0
    p.load_mtp = True
    p.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP]
    p.speculative.draft.n_max, p.speculative.draft.p_min = 1, 0.0
    server = xllamacpp.Server(p)
    request = {"prompt": prompt, "max_tokens": count, "temperature": 0.0, "ignore_eos": True, "logprobs": 1}
    reply = server.handle_completions(request | {"cache_prompt": False})
    text = [token["id"] for token in reply["choices"][0]["logprobs"]["content"]]
    return Drafts(reply["timings"].get("draft_n", 0), reply["timings"].get("draft_n_accepted", 0), text)
