"""llama.cpp's logits at every position, and its MTP block's, through the C interface of `xllamacpp`'s library.

Parameter structures are passed whole as the library's own defaults give them; the few fields that are set are checked
against those defaults first, so that a version with another layout is refused and not misread. They come last in every
call, where a structure longer than the callee's is harmless on x86-64 and AArch64.
"""

import ctypes as c
import struct
from pathlib import Path

import numpy as np
import xllamacpp

POINTER = c.c_void_p
ROOM = 1024  # bytes kept for a parameter structure
MODEL_END, CONTEXT_END = 78, 168  # bytes of the two structures
LOAD_MTP = 77  # llama_model_params.load_mtp, the last flag
N_CTX, N_BATCH, N_UBATCH, N_THREADS, CONTEXT_TYPE = 0, 4, 8, 28, 36
FLASH_ATTENTION, CALLBACK, CACHE_TYPES = 52, 88, 104
DEFAULT_CONTEXT = {N_CTX: 512, N_BATCH: 2048, N_UBATCH: 512, N_THREADS: 4, CONTEXT_TYPE: 0, FLASH_ATTENTION: -1}
MTP = 1
CACHES = {"f32": 0, "f16": 1, "bf16": 30}


class Params(c.Structure):
    """Room for a parameter structure."""

    _fields_ = [("bytes", c.c_uint8 * ROOM)]

    def put(self, form: str, at: int, *values: float) -> None:
        """Set fields that lie one after the other from byte `at`."""
        struct.pack_into(form, self.bytes, at, *values)


class Batch(c.Structure):
    """llama_batch."""

    _fields_ = [
        ("n_tokens", c.c_int32),
        ("token", POINTER),
        ("embd", POINTER),
        ("pos", POINTER),
        ("n_seq_id", POINTER),
        ("seq_id", POINTER),
        ("logits", POINTER),
    ]


LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, POINTER)
WATCH = c.CFUNCTYPE(c.c_bool, POINTER, c.c_bool, POINTER)
_quiet = LOG(lambda level, text, data: None)


def _library() -> c.CDLL:
    lib = c.CDLL(str(Path(xllamacpp.__file__).with_name("xllamacpp.abi3.so")))
    for name, result, *arguments in (
        ("llama_model_load_from_file", POINTER, c.c_char_p, Params),
        ("llama_init_from_model", POINTER, POINTER, Params),
        ("llama_decode", c.c_int32, POINTER, Batch),
        ("llama_get_logits_ith", POINTER, POINTER, c.c_int32),
        ("llama_model_get_vocab", POINTER, POINTER),
        ("llama_vocab_n_tokens", c.c_int32, POINTER),
        ("llama_model_n_embd_out", c.c_int32, POINTER),
        ("llama_free", None, POINTER),
        ("llama_model_free", None, POINTER),
        ("llama_tokenize", c.c_int32, POINTER, c.c_char_p, c.c_int32, POINTER, c.c_int32, c.c_bool, c.c_bool),
        ("_Z26llama_set_embeddings_nextnP13llama_contextbb", None, POINTER, c.c_bool, c.c_bool),
        ("_Z30llama_get_embeddings_nextn_ithP13llama_contexti", POINTER, POINTER, c.c_int32),
        ("ggml_get_name", c.c_char_p, POINTER),
        ("ggml_nbytes", c.c_size_t, POINTER),
        ("ggml_backend_tensor_get", None, POINTER, POINTER, c.c_size_t, c.c_size_t),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    lib.llama_log_set(_quiet, None)
    lib.llama_backend_init()
    return lib


def default_params(lib: c.CDLL, name: str, size: int) -> Params:
    """What the library's function `name` returns; RuntimeError if it does not fill `size` bytes."""
    function, params = getattr(lib, name), Params()
    c.memset(c.byref(params), 0xAB, ROOM)
    function.restype, function.argtypes = None, [POINTER]  # a structure this long is returned through a pointer
    function(c.byref(params))
    found = len(bytes(params.bytes).rstrip(b"\xab"))
    if found != size:
        raise RuntimeError(f"xllamacpp {xllamacpp.__version__}: {name} fills {found} bytes, {size} are known.")
    return params


class LlamaModel:
    """A GGUF file in llama.cpp on one thread. Use as a context manager."""

    def __init__(self, path: Path, *, cache: str = "f16", context: int = 1024) -> None:
        self._lib = lib = _library()
        self._kept: list[object] = []
        self.routing: dict[str, np.ndarray] = {}
        model = default_params(lib, "llama_model_default_params", MODEL_END)
        model.put("?", LOAD_MTP, True)
        self._model = lib.llama_model_load_from_file(str(path).encode(), model)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.vocab_size = lib.llama_vocab_n_tokens(self._vocab)
        self.wide = lib.llama_model_n_embd_out(self._model)
        self._cache, self._length = cache, context
        self._contexts: list[int] = []

    def __enter__(self) -> "LlamaModel":
        return self

    def __exit__(self, *_: object) -> None:
        for context in self._contexts:
            self._lib.llama_free(context)
        self._lib.llama_model_free(self._model)

    def tokenize(self, text: str) -> list[int]:
        """Tokens of `text`, special tokens recognised, none added."""
        data, room = text.encode(), len(text.encode()) + 8
        out = (c.c_int32 * room)()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), out, room, False, True)
        return list(out[:count])

    def forward(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits (T, V) at every position, and the streams (T, S*D) after the last layer."""
        context = self._open(0)
        self._lib._Z26llama_set_embeddings_nextnP13llama_contextbb(context, True, False)
        logits = self._decode(context, np.asarray(tokens, np.int32), None)
        row = self._lib._Z30llama_get_embeddings_nextn_ithP13llama_contexti
        return logits, np.stack([self._floats(row(context, i), self.wide) for i in range(len(tokens))])

    def draft(self, streams: np.ndarray, following: np.ndarray) -> np.ndarray:
        """The MTP block's logits (T, V) on streams (T, S*D) and the token after each; row i at position i."""
        context = self._open(MTP)
        self._lib._Z26llama_set_embeddings_nextnP13llama_contextbb(context, True, True)
        return self._decode(context, np.asarray(following, np.int32), np.ascontiguousarray(streams, np.float32))

    def _open(self, kind: int) -> int:
        params = default_params(self._lib, "llama_context_default_params", CONTEXT_END)
        for at, value in DEFAULT_CONTEXT.items():
            found = struct.unpack_from("i", params.bytes, at)[0]
            if found != value:
                raise RuntimeError(f"llama_context_params: {found} at byte {at}, {value} is known.")
        if struct.unpack_from("ii", params.bytes, CACHE_TYPES) != (1, 1):
            raise RuntimeError(f"llama_context_params: no F16 cache types at byte {CACHE_TYPES}.")
        params.put("III", N_CTX, self._length, self._length, self._length)
        params.put("ii", N_THREADS, 1, 1)
        params.put("i", CONTEXT_TYPE, kind)
        params.put("ii", CACHE_TYPES, *[CACHES[self._cache]] * 2)
        if self._cache == "f32":  # its flash attention rounds a float32 cache to float16
            params.put("i", FLASH_ATTENTION, 0)
        watch = WATCH(self._watch)
        self._kept.append(watch)
        params.put("P", CALLBACK, c.cast(watch, POINTER).value)
        context = self._lib.llama_init_from_model(self._model, params)
        if not context:
            raise RuntimeError("llama.cpp makes no context")
        self._contexts.append(context)
        return context

    def _watch(self, tensor: int, ask: bool, _: object) -> bool:
        """Keep what the routers sorted: called before (ask) and after each node of the graph."""
        name = self._lib.ggml_get_name(tensor).decode()
        if not name.startswith("ffn_moe_argsort"):
            return not ask
        if not ask:
            out = np.empty(self._lib.ggml_nbytes(tensor) // 4, np.int32)
            self._lib.ggml_backend_tensor_get(tensor, out.ctypes.data, 0, out.nbytes)
            self.routing[name.rsplit("-", 1)[1]] = out
        return True

    def _decode(self, context: int, tokens: np.ndarray, streams: np.ndarray | None) -> np.ndarray:
        count = len(tokens)
        positions, lanes = np.arange(count, dtype=np.int32), np.zeros(1, np.int32)
        ones, wanted = np.ones(count, np.int32), np.ones(count, np.int8)
        pointers = np.full(count, lanes.ctypes.data, np.uint64)
        parts = (tokens, streams, positions, ones, pointers, wanted)
        status = self._lib.llama_decode(context, Batch(count, *[None if p is None else p.ctypes.data for p in parts]))
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        row = self._lib.llama_get_logits_ith
        return np.stack([self._floats(row(context, i), self.vocab_size) for i in range(count)])

    @staticmethod
    def _floats(address: int, count: int) -> np.ndarray:
        return np.ctypeslib.as_array(c.cast(address, c.POINTER(c.c_float)), (count,)).copy()

    def chosen(self, layers: int, experts: int, used: int) -> list[np.ndarray]:
        """The experts (T, k) that each of the first `layers` blocks chose in the last passes."""
        return [self.routing[str(i)].reshape(-1, experts)[:, :used] for i in range(layers)]
