"""The family's facts: constants against transformers' own, and every refusal with its key and numbers."""

import numpy as np
import pytest
from transformers.models.qwen4_exp import modeling_qwen4_exp as oracle

from strata.errors import FamilyError
from strata.families import qwen4_exp
from strata.families.qwen4_exp.spec import hash_multipliers, head_sizes

METADATA = {
    "general.architecture": "qwen4exp",
    "general.name": "toy",
    **{
        f"qwen4exp.{key}": value
        for key, value in {
            "block_count": 5,
            "context_length": 4096,
            "embedding_length": 64,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.key_length": 32,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
            "rope.dimension_count": 16,
            "expert_count": 8,
            "expert_used_count": 2,
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 32,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 128,
            "ssm.state_size": 32,
            "ssm.time_step_rank": 4,
            "ssm.group_count": 2,
            "nextn_predict_layers": 1,
            "hyper_connection.count": 4,
            "hyper_connection.low_rank": 16,
            "attention.indexer.head_count": 2,
            "attention.indexer.key_length": 32,
            "attention.indexer.top_k": 64,
            "attention.compress_ratios": np.array([0, 0, 0, 4, 4], np.int32),
            "ple.layers": np.array([1], np.int32),
            "ple.ngram_size": 3,
            "ple.heads_per_ngram": 2,
            "ple.conv_kernel": 4,
            "ple.eos_token_id": 7,
            "embedding_length_per_layer_input": 16,
            "ple.layer_multipliers": np.array([3, 5, 7], np.uint64),
            "ple.head_offsets": np.array([0, 11, 24, 41], np.uint64),
            "ple.head_vocab_sizes": np.array([11, 13, 17, 19], np.uint64),
        }.items()
    },
}


def spec(**changes):
    metadata = dict(METADATA)
    for key, value in changes.items():
        name = "qwen4exp." + key.replace("__", ".")
        if value is None:
            metadata.pop(name)
        else:
            metadata[name] = value
    return qwen4_exp.from_gguf(metadata, vocab_size=100)


def test_spec_from_metadata():
    got = spec()
    assert got.kinds == ("delta", "delta", "delta", "sparse")
    assert (got.layers, got.mtp_layers, got.delta.value_dim, got.delta.conv_width) == (4, 1, 32, 256)
    assert got.ngram is not None
    assert (got.ngram.layer, got.ngram.embed_width) == (1, 64)
    assert spec(ple__layers=np.array([], np.int32)).ngram is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"context_length": None}, "qwen4exp.context_length is missing"),
        ({"embedding_length": 0}, "embedding_length is 0; a whole number of 1 or more"),
        ({"embedding_length": "64"}, "embedding_length is '64'"),
        ({"attention__head_count": True}, "head_count is True"),
        ({"rope__freq_base": float("nan")}, "freq_base is nan"),
        ({"expert_used_count": 9}, "9 experts a token of 8"),
        ({"attention__compress_ratios": np.array([0, 4])}, "compress_ratios has 2 entries; 5 are needed"),
        ({"attention__indexer__top_k": 66}, "budget of 66 tokens is no multiple"),
        ({"nextn_predict_layers": 2}, "nextn_predict_layers is 2 of 5 blocks"),
        ({"ssm__time_step_rank": 3}, "inner_size 128 is not a multiple of the 3"),
        ({"ssm__group_count": 3}, "4 value heads are no multiple of 3"),
        ({"rope__dimension_count": 40}, "40 rotary dimensions do not fit heads of 32"),
        ({"rope__scaling__type": "yarn"}, "rope.scaling.type is 'yarn'"),
        ({"ple__layers": np.array([0, 1])}, "ple.layers is \\[0, 1\\]"),
        ({"hyper_connection__count": 1}, "1 residual streams"),
        ({"attention__value_length": 16}, "value_length must equal key_length"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, text):
    with pytest.raises(FamilyError, match=text):
        spec(**changes)


def test_hash_constants_are_the_published_ones():
    for vocabulary, order, seed in ((248320, 3, 1234), (300, 3, 1234), (1000, 4, 5)):
        want = oracle._build_layer_multipliers(vocabulary, order, 0, seed).tolist()
        assert list(hash_multipliers(vocabulary, order, seed)) == want
    sizes = head_sizes(20_000_000, 3)
    assert list(sizes) == [oracle._find_nth_prime_after(20_000_000 - 1, i + 1) for i in range(3)]
    assert head_sizes(2, 5) == (2, 3, 5, 7, 11)


CONFIG = {
    "model_type": "qwen4_exp_text",
    "vocab_size": 300,
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 40,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 32,
    "indexer_budget": 32,
    "indexer_compress_ratio": 4,
    "eos_token_id": 7,
    "ple_layer_ids": [2],
    "ngram_vocab_size_base": 50,
    "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
}


def test_spec_from_config_and_from_its_text_part():
    got = qwen4_exp.from_config(CONFIG)
    assert got == qwen4_exp.from_config({"model_type": "qwen4_exp", "text_config": CONFIG})
    assert got.attention.rope_dim == 16
    assert got.ngram is not None
    assert got.ngram.sizes[:3] == (53, 59, 61)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', not 'silu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"norm_topk_prob": False}, "norm_topk_prob is False"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn' is not implemented"),
        ({"layer_types": ["linear_attention"] * 3 + ["sliding_attention"]}, "sliding_attention"),
        ({"ple_layer_ids": [1, 2]}, "ple_layer_ids is"),
        ({"output_gate_type": "tanh"}, "output gate 'tanh'"),
        ({"eos_token_id": None}, "eos_token_id is missing"),
        ({"num_experts": -1}, "num_experts is -1"),
    ],
)
def test_config_options_that_are_not_implemented_are_refused(changes, text):
    with pytest.raises(FamilyError, match=text):
        qwen4_exp.from_config(CONFIG | changes)


def test_tiled_order_of_value_heads():
    d = qwen4_exp.DeltaSpec(key_heads=2, value_heads=6, key_dim=4, value_dim=4, conv_taps=4, gate="silu")
    assert qwen4_exp.tiled_order(d).tolist() == [0, 3, 1, 4, 2, 5]
