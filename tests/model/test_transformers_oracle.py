"""The whole model against `transformers`' qwen4_exp in float32: toy sizes, random weights, several configurations.

Past the indexer's budget a top-k may flip on a near tie; so positions are compared up to the first whose selection or
routing was decided by a margin under 1e-5, and enough of them must lie past the budget.
"""

import numpy as np
import pytest
import torch
from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

from strata import cpu, families
from strata.arithmetic import LaneState, Reference, Segment, attention, bind, experts
from strata.weights import open_checkpoint

EOS = 7
CASES = {
    "n-gram table, eos inside the prompt": {},
    "no n-gram table": {"ple_layer_ids": None},
    "tied head": {"tie_word_embeddings": True},
    "silu gate, one key head a value head": {"output_gate_type": "silu", "linear_num_value_heads": 2},
    "widths that are no multiple of 128": {
        "hidden_size": 88,
        "ple_embed_dim": 88,
        "moe_intermediate_size": 40,
        "num_hidden_layers": 8,
    },
    "dense up to the end": {"indexer_budget": 256},
}


def config(changes):
    values = {
        "vocab_size": 300,
        "hidden_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 40,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "hc_lowrank": 24,
        "ple_layer_ids": [2],
        "ple_embed_dim": 96,
        "heads_per_ngram": 4,
        "ngram_vocab_size_base": 50,
        "split_ngram_parts": 4,
        "indexer_n_heads": 8,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 32,
        "indexer_budget": 32,
        "indexer_compress_ratio": 4,
        "eos_token_id": EOS,
        "output_gate_type": "sigmoid",
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
            "mrope_section": [3, 3, 2],
        },
    }
    return Qwen4ExpTextConfig(**(values | changes))


def randomize(model, seed):
    """Random weights of a size that keeps every part of the model at work."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "conv1d" in name:
                parameter.normal_(0, 0.3)
            elif parameter.ndim > 1:
                parameter.normal_(0, 1.2 / parameter.shape[-1] ** 0.5)
            elif "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            elif "A_log" in name:
                parameter.uniform_(-2, 1)
            else:
                parameter.normal_()


@pytest.fixture
def margins(monkeypatch):
    """The smallest margin by which a selection or a routing was decided since the list was cleared."""
    found = []
    select, route = attention.select_blocks, experts.route

    def select_blocks(scores, count):
        if len(scores) > count:
            ordered = np.sort(scores)[::-1]
            found.append(ordered[count - 1] - ordered[count])
        return select(scores, count)

    def routed(logits, count):
        ordered = -np.sort(-logits, axis=1)
        found.append((ordered[:, count - 1] - ordered[:, count]).min())
        return route(logits, count)

    monkeypatch.setattr(attention, "select_blocks", select_blocks)
    monkeypatch.setattr(experts, "route", routed)
    return found


@pytest.mark.filterwarnings("ignore")  # the oracle's own
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case, tmp_path, margins):
    oracle = Qwen4ExpForCausalLM(config(CASES[case])).eval().float()
    randomize(oracle, seed=len(case))
    oracle.save_pretrained(tmp_path)
    tokens = np.random.default_rng(0).integers(0, 300, 90)
    tokens[[20, 41, 42]] = EOS
    with torch.no_grad():
        want = oracle(torch.from_numpy(tokens)[None]).logits[0].numpy()

    with open_checkpoint(tmp_path) as checkpoint:
        opened = families.open_family(checkpoint)
        model = Reference(opened.spec, bind(opened.source, opened.spec), kv="f32")
        state, rows, trusted = LaneState.empty(opened.spec), [], len(tokens)
        for position, token in enumerate(tokens):
            margins.clear()
            rows.append(model.forward([Segment(state, [token], 0)]))
            if min(margins) < 1e-5:
                trusted = min(trusted, position)
        got = np.concatenate(rows)
        error = np.sqrt(((got - want) ** 2).mean(1) / (want**2).mean(1))
        assert trusted >= opened.spec.attention.index_budget + 4 or trusted == len(tokens)
        assert error[:trusted].max() < 1e-4, f"position {error[:trusted].argmax()} of {trusted}"

        whole = model.forward([Segment(LaneState.empty(opened.spec), tokens, 0)])
        chunks, state = [], LaneState.empty(opened.spec)
        for cut in np.split(tokens, [1, 4, 11, 50, 77]):
            chunks.append(model.forward([Segment(state, cut, 0)]))
        native = Reference(opened.spec, model.weights, kv="f32", ops=cpu.ops())
        again = native.forward([Segment(LaneState.empty(opened.spec), tokens, 0)])
        assert whole.tobytes() == got.tobytes() == np.concatenate(chunks).tobytes() == again.tobytes()
