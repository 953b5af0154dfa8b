"""llama.cpp as a side, through the library of the `xllamacpp` in this interpreter (the wheel, or a native build).

Prompts and decoding call `llama_decode` itself, as `llama-bench` and `llama-batched-bench` do, without a server around
it; drafting is the server's own, the only place where llama.cpp has it.
"""

import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "oracles"))
import oracle_llamacpp as llama
import xllamacpp

from benchmarks.sides.protocol import memory, serve, timed

BATCH, UBATCH = 2048, 512  # llama.cpp's defaults
N_SEQ_MAX, NO_PERF = 12, 138  # bytes of llama_context_params
UNUSED = -1


class Context:
    """A context of several sequences, each fed whole tokens at a time."""

    def __init__(self, model: "Model", sequences: int, length: int, threads: int) -> None:
        self._model = model
        self._lib = lib = model.library
        params = model.context_params()
        params.put("IIII", llama.N_CTX, length * sequences, BATCH, UBATCH, sequences)
        params.put("ii", llama.N_THREADS, threads, threads)
        self._handle = lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise RuntimeError("llama.cpp makes no context")
        self._memory = lib.llama_get_memory(self._handle)
        self._lengths = [0] * sequences

    def close(self) -> None:
        """Free the context."""
        self._lib.llama_free(self._handle)

    def clear(self) -> None:
        """Forget all sequences."""
        self._lib.llama_memory_clear(self._memory, True)
        self._lengths = [0] * len(self._lengths)

    def advance(self, tokens: list[list[int]], first: int = 0) -> list[int]:
        """Feed sequence `first` + i `tokens[i]`; the most likely next token of each."""
        last, at = [], 0
        flat = [t for row in tokens for t in row]
        lanes = first + np.repeat(np.arange(len(tokens), dtype=np.int32), [len(row) for row in tokens])
        wanted = np.zeros(len(flat), np.int8)
        positions = np.empty(len(flat), np.int32)
        for i, row in enumerate(tokens, first):
            positions[at : at + len(row)] = np.arange(self._lengths[i], self._lengths[i] + len(row))
            at += len(row)
            last.append(at - 1)
            self._lengths[i] += len(row)
        wanted[last] = 1
        ids = np.array(flat, np.int32)
        for start in range(0, len(flat), BATCH):
            stop = min(start + BATCH, len(flat))
            self._decode(ids[start:stop], positions[start:stop], lanes[start:stop], wanted[start:stop])
        return [self._best(i - start) for i in last if i >= start]

    def _decode(self, ids: np.ndarray, positions: np.ndarray, lanes: np.ndarray, wanted: np.ndarray) -> None:
        count = len(ids)
        counts = np.ones(count, np.int32)
        pointers = lanes.ctypes.data + 4 * np.arange(count, dtype=np.uint64)
        parts = (ids, None, positions, counts, pointers, wanted)
        batch = llama.Batch(count, *[None if p is None else p.ctypes.data for p in parts])
        status = self._lib.llama_decode(self._handle, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")

    def _best(self, row: int) -> int:
        address = self._lib.llama_get_logits_ith(self._handle, row)
        floats = llama.c.cast(address, llama.c.POINTER(llama.c.c_float))
        return int(np.ctypeslib.as_array(floats, (self._model.vocab_size,)).argmax())


class Model(llama.LlamaModel):
    """A loaded GGUF; MTP blocks are left out, as nothing here uses them."""

    def __init__(self, path: str) -> None:
        super().__init__(Path(path))
        self.library, self.handle = self._lib, self._model
        for name, result, *arguments in (
            ("llama_get_memory", llama.POINTER, llama.POINTER),
            ("llama_memory_clear", None, llama.POINTER, llama.c.c_bool),
        ):
            function = getattr(self._lib, name)
            function.restype, function.argtypes = result, arguments

    def context_params(self) -> llama.Params:
        """The library's default context parameters, their layout checked where it is used."""
        params = llama.default_params(self._lib, "llama_context_default_params", llama.CONTEXT_END)
        for at, value in {**llama.DEFAULT_CONTEXT, N_SEQ_MAX: 1}.items():
            found = struct.unpack_from("i", params.bytes, at)[0]
            if found != value:
                raise RuntimeError(f"llama_context_params: {found} at byte {at}, {value} is known.")
        return params


class Side:
    """The operations of a side."""

    def __init__(self) -> None:
        self.model: Model | None = None
        self.path, self.threads = "", 1
        self.alone: Context | None = None
        self.group: Context | None = None
        self._servers: dict[int, xllamacpp.Server] = {}

    def about(self) -> dict[str, Any]:
        """Version and instruction sets."""
        sets = [part.split("=")[0].strip() for part in xllamacpp.get_system_info().split(":", 1)[1].split("|")]
        return {"version": xllamacpp.__version__, "sets": [s for s in sets if s]}

    def open(self, model: str, threads: int, context: int, conversations: int, length: int) -> dict[str, Any]:
        """Load a model; one lone sequence of `context` tokens, and `conversations` of `length` tokens."""
        self.path, self.threads = model, threads
        self.model = Model(model)
        self.alone = Context(self.model, 1, context, threads)
        self.group = Context(self.model, conversations, length, threads)
        return memory()

    def prompt(self, tokens: list[int]) -> float:
        """Seconds to read a prompt with the first token after it."""
        self.alone.clear()
        return timed(lambda: self.alone.advance([tokens]))

    def decode(self, tokens: list[int]) -> float:
        """Seconds to decode after the prompt; the tokens are given, the most likely ones are computed and dropped."""
        return timed(lambda: [self.alone.advance([[t]]) for t in tokens])

    def join(self, prompts: list[list[int]]) -> None:
        """Begin one conversation a prompt."""
        self.group.clear()
        for start in range(0, len(prompts[0]), 64):
            self.group.advance([p[start : start + 64] for p in prompts])

    def together(self, tokens: list[list[int]]) -> float:
        """Seconds to decode `tokens[step]`, one token for each of the first conversations."""
        return timed(lambda: [self.group.advance([[t] for t in step]) for step in tokens])

    def converse(self, prompts: list[list[int]], count: int) -> dict[str, Any]:
        """Greedy texts of `count` tokens after the prompts, all at once: seconds in all, to each first token, decoding.

        Prompts are read one after the other, so that the first soon answer; batches of several gave no more in total.
        """
        self.group.clear()
        start, first, latest = time.perf_counter(), [], []
        for i, prompt in enumerate(prompts):
            latest += self.group.advance([prompt], i)
            first.append(time.perf_counter() - start)
        for _ in range(count - 1):
            latest = self.group.advance([[t] for t in latest])
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "first": first, "decoding": seconds - first[-1]}

    def drafted(self, prompt: list[int], count: int, drafts: int) -> dict[str, Any]:
        """Greedy text of `count` tokens with up to `drafts` drafts a step (0: none): seconds and what was accepted."""
        server = self._server(drafts)
        request = {"prompt": prompt, "max_tokens": count, "temperature": 0.0, "ignore_eos": True, "logprobs": 1}
        server.handle_completions(request | {"max_tokens": 4, "cache_prompt": False})
        reply = server.handle_completions(request | {"cache_prompt": False})
        times = reply["timings"]
        return {
            "seconds": times["predicted_ms"] / 1e3,
            "tokens": times["predicted_n"],
            "drafted": times.get("draft_n", 0),
            "accepted": times.get("draft_n_accepted", 0),
            "text": [token["id"] for token in reply["choices"][0]["logprobs"]["content"]],
        }

    def _server(self, drafts: int) -> xllamacpp.Server:
        found = self._servers.get(drafts)
        if found is None:
            p = xllamacpp.CommonParams()
            p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers = self.path, 2048, 1, 0
            p.cpuparams.n_threads = p.cpuparams_batch.n_threads = self.threads
            p.warmup, p.fit_params, p.verbosity, p.port = True, False, 0, 0
            p.cache_ram_mib = p.n_ctx_checkpoints = 0
            if drafts:
                p.load_mtp = True
                p.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP]
                p.speculative.draft.n_max = drafts
            found = self._servers[drafts] = xllamacpp.Server(p)
        return found

    def close(self) -> None:
        """Free the model."""
        for context in (self.alone, self.group):
            context.close()
        self.model.__exit__()
        self.model = self.alone = self.group = None
        self._servers.clear()


if __name__ == "__main__":
    side = Side()
    names = ("about", "open", "prompt", "decode", "join", "together", "converse", "drafted", "close")
    serve({name: getattr(side, name) for name in names} | {"memory": memory})
