"""Writes small qwen4_exp GGUF files with random weights in any format, for the model oracles.

Quantized tensors are random block bytes (every code occurs), their scales set so that the weights are centred and have
the wanted standard deviation. One seed, one file.
"""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value

ARCH = "qwen4exp"
# Where a block's float16 scale and float16 minimum lie (bytes).
SCALES = {
    "Q4_0": (0, None),
    "Q4_1": (0, 2),
    "Q5_0": (0, None),
    "Q5_1": (0, 2),
    "Q8_0": (0, None),
    "Q2_K": (80, 82),
    "Q3_K": (108, None),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208, None),
    "IQ1_S": (0, None),
    "IQ2_XXS": (0, None),
    "IQ2_XS": (0, None),
    "IQ2_S": (0, None),
    "IQ3_XXS": (0, None),
    "IQ3_S": (0, None),
    "IQ4_NL": (0, None),
    "IQ4_XS": (0, None),
    "TQ1_0": (52, None),
    "TQ2_0": (64, None),
}
CODES = 2.93  # root mean square of the e2m1 values
FLOATS = ("F32", "F16", "BF16")
FORMATS = (*FLOATS, *SCALES, "IQ1_M", "MXFP4", "NVFP4")


def _e4m3(code: int) -> float:
    exponent, fraction = code >> 3, code & 7
    return 2.0 ** (exponent - 7) * (1 + fraction / 8) if exponent else 2.0**-6 * fraction / 8


@dataclass(frozen=True)
class Geometry:
    """Sizes of a toy model; every ratio differs from its neighbours, so that no permutation is its own inverse."""

    layers: int = 4
    hidden: int = 256
    vocab: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rope_dim: int = 32
    key_heads: int = 2
    value_heads: int = 8
    state: int = 64
    experts: int = 12
    used: int = 3
    width: int = 256
    shared_width: int = 256
    streams: int = 4
    rank: int = 64
    index_heads: int = 2
    index_dim: int = 64
    budget: int = 64
    ratio: int = 4
    ngram_heads: int = 4
    ngram_rows: int = 101
    mtp: bool = True
    favourites: int = 0  # rows of the head that are scaled up, so that greedy text repeats and drafts are accepted

    @property
    def eos(self) -> int:
        """The token that ends an n-gram."""
        return self.vocab - 1


class RandomTensors:
    """Random arrays in a format, as `GGUFWriter.add_tensor` takes them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def matrix(self, shape: tuple[int, ...], name: str, std: float) -> tuple[np.ndarray, Type]:
        """`shape` outermost first; returns the array (bytes for all but F32 and F16) and its type."""
        kind = Type[name]
        if name in FLOATS:
            values = (self.rng.standard_normal(shape) * std).astype(np.float32)
            return (values, kind) if name == "F32" else (gguf.quants.quantize(values, kind), kind)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        count = int(np.prod(shape)) // block
        raw = self.rng.integers(0, 256, (count, size), dtype=np.uint8)
        self._scale(raw, name, kind, std)
        return raw.reshape(*shape[:-1], shape[-1] // block * size), kind

    def _scale(self, raw: np.ndarray, name: str, kind: Type, std: float) -> None:
        if name == "MXFP4":  # a power of two a block, of two neighbours
            raw[:, 0] = round(127 + np.log2(std / (CODES * 1.58))) + self.rng.integers(0, 2, len(raw))
        elif name == "NVFP4":  # four unsigned e4m3 scales a block, of those near the wanted one
            near = [c for c in range(1, 127) if 0.7 < _e4m3(c) * CODES / std < 1.3]
            raw[:, :4] = self.rng.choice(np.array(near, np.uint8), (len(raw), 4))
        elif name == "IQ1_M":  # the scale's four nibbles are the top ones of four 16-bit words
            self._nibbles(raw, 1.0)
            self._nibbles(raw, std / gguf.quants.dequantize(raw, kind).std())
        else:
            if name == "TQ2_0":  # its codes are 0 to 2
                pairs = [self.rng.integers(0, 3, (len(raw), 64)) << shift for shift in (0, 2, 4, 6)]
                raw[:, :64] = np.bitwise_or.reduce(pairs)
            self._halves(raw, name, kind, std)

    def _halves(self, raw: np.ndarray, name: str, kind: Type, std: float) -> None:
        scale, minimum = SCALES[name]

        def put(at: int, value: float) -> None:
            raw[:, at : at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)

        put(scale, 1.0)
        if minimum is not None:
            put(minimum, 0.0)
            offset = gguf.quants.dequantize(raw, kind).mean()
            put(minimum, 1.0)
            step = gguf.quants.dequantize(raw, kind).mean() - offset
            put(minimum, -offset / step)
        spread = gguf.quants.dequantize(raw, kind).std()
        if minimum is not None:
            put(minimum, -offset / step * std / spread)
        put(scale, std / spread)

    @staticmethod
    def _nibbles(raw: np.ndarray, value: float) -> None:
        bits = int(np.float16(value).view(np.uint16))
        words = raw[:, 48:56].reshape(-1, 4, 2)
        words[:, :, 1] = (words[:, :, 1] & 0x0F) | np.array([bits >> (4 * i) & 15 for i in range(4)], np.uint8) << 4
        raw[:, 48:56] = words.reshape(-1, 8)


def write(path: Path, dense: str, experts: str, *, down: str | None = None, sizes: Geometry, seed: int = 0) -> None:
    """Write a model: `dense` is the format of every matrix but the experts', `down` of the experts' down projection.

    A row width that a format's block does not divide falls back to a 32-wide format. What is F32 in published files
    (norms, router, decay and step, convolutions, injection) is F32.
    """
    GgufWriter(path, dense, experts, down or experts, sizes, seed).write()


def fallback(name: str, width: int) -> str:
    """`name`, or a 32-wide format (F16 where even that does not fit) for a row of `width` elements."""
    if name in FLOATS or width % gguf.GGML_QUANT_SIZES[Type[name]][0] == 0:
        return name
    return "IQ4_NL" if width % 32 == 0 else "F16"


class GgufWriter:
    """One random file, part by part; a subclass may draw the tensors elsewhere."""

    def __init__(self, path: Path, dense: str, experts: str, down: str, sizes: Geometry, seed: int) -> None:
        self.dense, self.experts, self.down, self.g = dense, experts, down, sizes
        self.random = RandomTensors(seed)
        self.writer = gguf.GGUFWriter(str(path), ARCH)

    def write(self) -> None:
        self._metadata()
        self._vocabulary()
        self._tensors()
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()

    def _metadata(self) -> None:
        g, w = self.g, self.writer
        blocks = g.layers + g.mtp
        numbers = {
            "block_count": blocks,
            "context_length": 4096,
            "embedding_length": g.hidden,
            "feed_forward_length": g.width * g.used,
            "attention.head_count": g.heads,
            "attention.head_count_kv": g.kv_heads,
            "attention.key_length": g.head_dim,
            "attention.value_length": g.head_dim,
            "rope.dimension_count": g.rope_dim,
            "expert_count": g.experts,
            "expert_used_count": g.used,
            "expert_feed_forward_length": g.width,
            "expert_shared_feed_forward_length": g.shared_width,
            "vocab_size": g.vocab,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": g.value_heads * g.state,
            "ssm.state_size": g.state,
            "ssm.time_step_rank": g.value_heads,
            "ssm.group_count": g.key_heads,
            "full_attention_interval": 4,
            "hyper_connection.count": g.streams,
            "hyper_connection.low_rank": g.rank,
            "attention.indexer.head_count": g.index_heads,
            "attention.indexer.key_length": g.index_dim,
            "attention.indexer.top_k": g.budget,
            "ple.ngram_size": 3,
            "ple.heads_per_ngram": g.ngram_heads,
            "ple.conv_kernel": 4,
            "ple.eos_token_id": g.eos,
            "embedding_length_per_layer_input": g.hidden // (2 * g.ngram_heads),
        }
        if g.mtp:
            numbers["nextn_predict_layers"] = 1
        for key, number in numbers.items():
            w.add_uint32(f"{ARCH}.{key}", number)
        w.add_float32(f"{ARCH}.attention.layer_norm_rms_epsilon", 1e-6)
        w.add_float32(f"{ARCH}.rope.freq_base", 1e4)
        pairs = g.rope_dim // 2
        w.add_array(f"{ARCH}.rope.dimension_sections", [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3, 0])
        sparse = [g.ratio if (i + 1) % 4 == 0 or i >= g.layers else 0 for i in range(blocks)]
        w.add_array(f"{ARCH}.attention.compress_ratios", sparse)
        w.add_array(f"{ARCH}.ple.layers", [1])
        heads = 2 * g.ngram_heads
        rows = [g.ngram_rows + i for i in range(heads)]
        for key, values in (
            ("layer_multipliers", [int(x) * 2 + 1 for x in self.random.rng.integers(2**40, 2**44, 3)]),
            ("head_offsets", [sum(rows[:i]) for i in range(heads)]),
            ("head_vocab_sizes", rows),
        ):
            w.add_key_value(f"{ARCH}.ple.{key}", values, Value.ARRAY, Value.UINT64)

    def _vocabulary(self) -> None:
        """Byte tokens, one merge, and control tokens up to the vocabulary's size."""
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [b for b in range(256) if b not in plain]
        letters = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}
        names = [letters[b] for b in range(256)] + [letters[32] + "a"]
        names += ["<|im_start|>", "<|im_end|>", *(f"<|f{i}|>" for i in range(259, self.g.vocab - 1)), "<|endoftext|>"]
        w = self.writer
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("qwen2")
        w.add_token_list(names)
        w.add_token_types([1] * 257 + [3] * (self.g.vocab - 257))
        w.add_token_merges([f"{letters[32]} a"])
        w.add_eos_token_id(self.g.eos)
        w.add_bos_token_id(self.g.eos)
        w.add_add_bos_token(False)

    def _matrix(self, name: str, *shape: int, form: str | None = None, std: float | None = None) -> None:
        form = fallback(form or self.dense, shape[-1])
        array, kind = self.random.matrix(shape, form, shape[-1] ** -0.5 if std is None else std)
        self.writer.add_tensor(f"{name}.weight", array, raw_dtype=kind)

    def _gamma(self, name: str, width: int) -> None:
        self._vector(f"{name}.weight", 1 + 0.1 * self.random.rng.standard_normal(width))

    def _vector(self, name: str, values: np.ndarray) -> None:
        self.writer.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def _mixer(self, prefix: str) -> None:
        wide = self.g.streams * self.g.hidden
        self._gamma(f"{prefix}_norm", wide)
        self._matrix(f"{prefix}_down", self.g.rank, wide)
        self._matrix(f"{prefix}_up", wide, self.g.rank)

    def _tensors(self) -> None:
        g = self.g
        self._matrix("token_embd", g.vocab, g.hidden, std=1.0)
        self._head()
        self._mixer("output_hc")
        rows = sum(g.ngram_rows + i for i in range(2 * g.ngram_heads))
        self._matrix("per_layer_token_embd", -(-rows // 32) * 32, g.hidden // (2 * g.ngram_heads), std=1.0)
        for layer in range(g.layers + g.mtp):
            at = f"blk.{layer}."
            self._block(at, delta=layer < g.layers and (layer + 1) % 4 != 0)
            if layer == 1:
                self._ngram(at)
        if g.mtp:
            self._gamma(f"{at}nextn.enorm", g.hidden)
            self._gamma(f"{at}nextn.hnorm", g.streams * g.hidden)
            self._matrix(f"{at}nextn.eh_proj", g.hidden, 2 * g.hidden)
            self._mixer(f"{at}nextn.hc_head")

    def _head(self) -> None:
        g = self.g
        if not g.favourites:
            self._matrix("output", g.vocab, g.hidden)
            return
        head = self.random.rng.standard_normal((g.vocab, g.hidden)) * g.hidden**-0.5
        head[: g.favourites] *= 8
        self._vector("output.weight", head)

    def _block(self, at: str, delta: bool) -> None:
        g = self.g
        for site in ("attn", "ffn"):
            self._mixer(f"{at}hc_{site}")
            self._matrix(f"{at}hc_{site}_inject", g.streams, g.streams * g.hidden, form="F32")
        (self._delta if delta else self._attention)(at)
        self._matrix(f"{at}ffn_gate_inp", g.experts, g.hidden, form="F32", std=2 * g.hidden**-0.5)
        self._vector(f"{at}ffn_gate_inp_shexp.weight", self.random.rng.standard_normal(g.hidden) * g.hidden**-0.5)
        for part, n, k in (("gate", g.width, g.hidden), ("up", g.width, g.hidden), ("down", g.hidden, g.width)):
            form = self.down if part == "down" else self.experts
            self._matrix(f"{at}ffn_{part}_exps", g.experts, n, k, form=form)
        for part, n, k in (
            ("gate", g.shared_width, g.hidden),
            ("up", g.shared_width, g.hidden),
            ("down", g.hidden, g.shared_width),
        ):
            self._matrix(f"{at}ffn_{part}_shexp", n, k)

    def _delta(self, at: str) -> None:
        g, rng = self.g, self.random.rng
        keys, values = g.key_heads * g.state, g.value_heads * g.state
        self._matrix(f"{at}attn_qkv", 2 * keys + values, g.hidden)
        self._matrix(f"{at}attn_gate", values, g.hidden)
        self._matrix(f"{at}ssm_alpha", g.value_heads, g.hidden, form="F32")
        self._matrix(f"{at}ssm_beta", g.value_heads, g.hidden, form="F32")
        self._vector(f"{at}ssm_a", -np.exp(rng.uniform(-2, 1, g.value_heads)))
        self._vector(f"{at}ssm_dt.bias", rng.standard_normal(g.value_heads))
        self._matrix(f"{at}ssm_conv1d", 2 * keys + values, 4, form="F32", std=0.3)
        self._gamma(f"{at}ssm_norm", g.state)
        self._matrix(f"{at}ssm_out", g.hidden, values)

    def _attention(self, at: str) -> None:
        g = self.g
        self._matrix(f"{at}attn_q", 2 * g.heads * g.head_dim, g.hidden)
        self._matrix(f"{at}attn_k", g.kv_heads * g.head_dim, g.hidden)
        self._matrix(f"{at}attn_v", g.kv_heads * g.head_dim, g.hidden)
        self._matrix(f"{at}attn_output", g.hidden, g.heads * g.head_dim)
        self._gamma(f"{at}attn_q_norm", g.head_dim)
        self._gamma(f"{at}attn_k_norm", g.head_dim)
        self._matrix(f"{at}indexer.q_proj", g.index_heads * g.index_dim, g.hidden)
        self._matrix(f"{at}indexer.k_proj", g.index_dim, g.hidden)
        self._gamma(f"{at}indexer.q_norm", g.index_dim)
        self._gamma(f"{at}indexer.k_norm", g.index_dim)

    def _ngram(self, at: str) -> None:
        g, wide = self.g, self.g.streams * self.g.hidden
        self._matrix(f"{at}ple_key", wide, g.hidden)
        self._matrix(f"{at}ple_value", g.hidden, g.hidden)
        for which in ("key", "query", "conv"):
            self._gamma(f"{at}ple_norm_{which}", wide)
        self._matrix(f"{at}ple_conv1d", wide, 4, form="F32", std=0.3)
