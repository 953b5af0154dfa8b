"""A small byte-level BPE trained here, as a tokenizer.json, as metadata, and in a GGUF that llama.cpp loads."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from strata.text.bytelevel import ALPHABET
from strata.text.vocabulary import PRE_TOKENIZERS

SPECIALS = [("<|endoftext|>", 3), ("<|im_start|>", 3), ("<|im_end|>", 3), ("<think>", 4), ("</think>", 4)]
SPECIALS += [("<tool>", 4)]
CORPUS = [
    "The quick brown fox doesn't jump over the lazy dog; it's 2026 and we'll see 12345 things.",
    "def main(argv):\n    return sum(x * x for x in range(10))\n\n\n# done\r\n",
    "Größe, naïve café, cafe\u0301s, Ελληνικά, Русский текст, 日本語のテキスト、中文字符。 नमस्ते दुनिया हिन्दी",
    "emoji 😀😃 👩‍👩‍👧 flags 🇩🇪   many   spaces\t\ttabs I'M HE'LL they'Ve",
] * 40


@pytest.fixture(scope="session", params=["qwen2", "qwen35"])
def trained(request: pytest.FixtureRequest) -> tuple[str, tokenizers.Tokenizer]:
    """(pre-tokenizer name, a trained tokenizer of the `tokenizers` library with added tokens)."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(PRE_TOKENIZERS[request.param]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=ALPHABET, show_progress=False, min_frequency=2)
    made.train_from_iterator(CORPUS, trainer)
    for text, kind in SPECIALS:
        token = tokenizers.AddedToken(text, special=kind == 3, normalized=False)
        made.add_special_tokens([token]) if kind == 3 else made.add_tokens([token])
    return request.param, made


@pytest.fixture(scope="session")
def metadata(trained: tuple[str, tokenizers.Tokenizer]) -> dict[str, object]:
    """The same vocabulary as GGUF metadata."""
    pre, made = trained
    vocab = made.get_vocab(with_added_tokens=True)
    tokens = sorted(vocab, key=vocab.__getitem__)
    kinds = dict(SPECIALS)
    merges = json.loads(made.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(m) if isinstance(m, list) else m for m in merges],
        "tokenizer.ggml.token_type": np.array([kinds.get(token, 1) for token in tokens], np.int32),
        "tokenizer.ggml.eos_token_id": vocab["<|im_end|>"], "tokenizer.ggml.add_bos_token": False,
    }


@pytest.fixture(scope="session")
def gguf_file(metadata: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-layer qwen3 model with that vocabulary, small enough to load in a blink."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    writer = gguf.GGUFWriter(str(path), "qwen3")
    hidden, heads, width = 32, 2, 16
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(32)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(str(metadata["tokenizer.ggml.pre"]))
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in metadata["tokenizer.ggml.token_type"]])  # type: ignore[attr-defined]
    writer.add_token_merges(metadata["tokenizer.ggml.merges"])  # type: ignore[arg-type]
    writer.add_eos_token_id(int(metadata["tokenizer.ggml.eos_token_id"]))  # type: ignore[call-overload]
    writer.add_add_bos_token(False)
    rng = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        values = np.ones(shape) if len(shape) == 1 else rng.standard_normal(shape) * 0.05
        writer.add_tensor(name, values.astype(np.float32))

    add("token_embd.weight", len(tokens), hidden)
    add("output_norm.weight", hidden)
    for name, *shape in (
        ("attn_norm", hidden), ("attn_q", heads * width, hidden), ("attn_k", heads * width, hidden),
        ("attn_v", heads * width, hidden), ("attn_output", hidden, heads * width), ("attn_q_norm", width),
        ("attn_k_norm", width), ("ffn_norm", hidden), ("ffn_gate", 32, hidden), ("ffn_up", 32, hidden),
        ("ffn_down", hidden, 32),
    ):  # fmt: skip
        add(f"blk.0.{name}.weight", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
