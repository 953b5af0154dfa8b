"""Writes a checkpoint as GGUF: `python -m training.export --checkpoint DIR --tokenizer FILE --out FILE.gguf`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from . import checkpoint
from .config import ModelConfig, ngram_head_sizes, ngram_multipliers
from .model import DemoModel
from .naming import Array, from_gguf, to_gguf
from .quantize import quantize
from .template import CHAT_TEMPLATE
from .tokenizer import CONTROL, MARKERS, PRE

ARCH = "qwen4exp"

# First match wins; the formats are mixed on purpose, so that a reader meets most of them
RECIPES: dict[str, list[tuple[str, str]]] = {
    "mixed": [
        (r"norm|ssm_a$|ssm_dt|conv1d|ssm_alpha|ssm_beta|inject|ffn_gate_inp|indexer\.k_proj", "F32"),
        (r"token_embd\.weight$(?<!per_layer_token_embd\.weight)", "Q6_K"),
        (r"per_layer_token_embd", "Q5_0"),
        (r"blk\.0\.ffn_(gate|up)_exps", "Q6_K"),
        (r"blk\.[25]\.ffn_(gate|up)_exps", "IQ3_S"),
        (r"ffn_(gate|up)_exps", "Q4_K"),
        (r"blk\.[0246]\.ffn_down_exps", "IQ4_NL"),
        (r"blk\.[157]\.ffn_down_exps", "Q5_0"),
        (r"ffn_down_exps", "Q4_0"),
        (r"shexp|hc_\w*down|ple_|eh_proj|attn_gate|attn_q\.|attn_output", "Q6_K"),
        (r"blk\.[345]\.(attn_qkv|ssm_out)", "Q6_K"),
        (r"", "Q8_0"),
    ],
    "q8": [(r"norm|ssm_a$|ssm_dt|conv1d|ssm_alpha|ssm_beta|inject|ffn_gate_inp", "F32"), (r"", "Q8_0")],
    "f32": [(r"", "F32")],
}


def chosen_format(recipe: list[tuple[str, str]], name: str, columns: int) -> str:
    """The recipe's format, or Q8_0 (or F32) where the rows do not fit its blocks."""
    wanted = next(kind for pattern, kind in recipe if re.search(pattern, name))
    for kind in (wanted, "Q8_0"):
        if columns % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0] == 0:
            return kind
    return "F32"


def write_metadata(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    c, blocks = config, config.num_hidden_layers + 1
    numbers = {
        "block_count": blocks,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.moe_intermediate_size * c.num_experts_per_tok,
        "vocab_size": c.vocab_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        "rope.dimension_count": c.rotary_dim,
        "expert_count": c.num_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
        "expert_shared_feed_forward_length": c.shared_expert_intermediate_size,
        "ssm.conv_kernel": c.linear_conv_kernel_dim,
        "ssm.inner_size": c.linear_num_value_heads * c.linear_head_dim,
        "ssm.state_size": c.linear_head_dim,
        "ssm.time_step_rank": c.linear_num_value_heads,
        "ssm.group_count": c.linear_num_key_heads,
        "full_attention_interval": c.full_attention_interval,
        "nextn_predict_layers": 1,
        "hyper_connection.count": c.hc_count,
        "hyper_connection.low_rank": c.hc_lowrank,
        "attention.indexer.head_count": c.indexer_n_heads,
        "attention.indexer.key_length": c.indexer_head_dim,
        "attention.indexer.top_k": c.indexer_budget,
        "ple.ngram_size": c.ngram_size,
        "ple.heads_per_ngram": c.heads_per_ngram,
        "ple.conv_kernel": c.ple_conv_kernel_size,
        "ple.eos_token_id": c.eos_token_id,
        "embedding_length_per_layer_input": c.ngram_row_width,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"{ARCH}.{key}", value)
    writer.add_float32(f"{ARCH}.attention.layer_norm_rms_epsilon", c.rms_norm_eps)
    writer.add_float32(f"{ARCH}.rope.freq_base", c.rope_theta)
    writer.add_array(f"{ARCH}.rope.dimension_sections", [*c.rope_sections(), 0])
    sparse = [c.indexer_compress_ratio if i == blocks - 1 or c.is_attention(i) else 0 for i in range(blocks)]
    writer.add_array(f"{ARCH}.attention.compress_ratios", sparse)
    writer.add_array(f"{ARCH}.ple.layers", [c.ple_layer])
    sizes = ngram_head_sizes(c)
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    arrays = {"layer_multipliers": ngram_multipliers(c), "head_offsets": offsets, "head_vocab_sizes": sizes}
    for key, values in arrays.items():
        kinds = (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT64)
        writer.add_key_value(f"{ARCH}.ple.{key}", values, *kinds)


def write_tokenizer(writer: gguf.GGUFWriter, path: Path, size: int) -> None:
    body: dict[str, Any] = json.loads(path.read_text())
    ids = {**body["model"]["vocab"], **{t["content"]: t["id"] for t in body["added_tokens"]}}
    if sorted(ids.values()) != list(range(size)):
        raise SystemExit(f"{path} has {len(ids)} tokens, the model {size}")
    tokens = sorted(ids, key=ids.__getitem__)
    kinds = {**dict.fromkeys(CONTROL, gguf.TokenType.CONTROL), **dict.fromkeys(MARKERS, gguf.TokenType.USER_DEFINED)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(t, gguf.TokenType.NORMAL) for t in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in body["model"]["merges"]])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write(model: DemoModel, tokenizer: Path, out: Path, recipe: str) -> None:
    """Write the file and print what it holds."""
    writer = gguf.GGUFWriter(str(out), ARCH)
    writer.add_type("model")
    writer.add_name("Strata demo")
    writer.add_description("Small qwen4_exp trained from scratch for the Strata project's demo and tests")
    writer.add_author("The Strata project")
    writer.add_license("apache-2.0")
    writer.add_license_name("Apache License 2.0")
    writer.add_languages(["en"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    write_metadata(writer, model.config)
    write_tokenizer(writer, tokenizer, model.config.vocab_size)
    sizes: Counter[str] = Counter()
    for name, (packed, raw) in _quantized(to_gguf(model.config, arrays(model)), RECIPES[recipe]):
        writer.add_tensor(name, packed, raw_dtype=raw)
        sizes[raw.name] += packed.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    detail = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in sizes.most_common())
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB ({detail})")


def _quantized(
    tensors: dict[str, Array], recipe: list[tuple[str, str]]
) -> Iterator[tuple[str, tuple[Array, gguf.GGMLQuantizationType]]]:
    """Every tensor's packed bytes and format, in order; on several processors side by side."""
    jobs = [(array, chosen_format(recipe, name, array.shape[-1])) for name, array in tensors.items()]
    workers = min(24, os.cpu_count() or 1)
    if workers <= 2:
        yield from zip(tensors, (quantize(*job) for job in jobs), strict=True)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from zip(tensors, pool.starmap(quantize, jobs, chunksize=1), strict=True)


def arrays(model: DemoModel) -> dict[str, Array]:
    return {name: w.detach().float().cpu().numpy() for name, w in model.named_parameters()}


def read(path: Path, config: ModelConfig) -> DemoModel:
    """A float model with a file's dequantized weights: what the quantization left of the checkpoint."""
    tensors = {
        t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(tuple(t.shape[::-1].tolist()))
        for t in gguf.GGUFReader(str(path)).tensors
    }
    model = DemoModel(config)
    weights = from_gguf(config, tensors, arrays(model))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, strict=False)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a checkpoint as GGUF.")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="mixed")
    args = parser.parse_args()
    write(checkpoint.load_model(args.checkpoint), args.tokenizer, args.out, args.recipe)


if __name__ == "__main__":
    main()
