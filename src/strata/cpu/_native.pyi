from typing import Any

import numpy as np
import numpy.typing as npt

def quantized_product(
    q: npt.NDArray[np.int8],
    d: npt.NDArray[np.float32],
    values: npt.NDArray[np.int16],
    scales: npt.NDArray[np.float32],
    minimums: npt.NDArray[np.int16] | None,
    min_scales: npt.NDArray[np.float32] | None,
    y: npt.NDArray[np.float32],
) -> None: ...
def gated_delta_rule(
    state: npt.NDArray[np.float32],
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.float32],
    v: npt.NDArray[np.float32],
    decay: npt.NDArray[np.float32],
    beta: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None: ...

class Matrix:
    def __init__(
        self, format: int, n: int, k: int, raw: npt.NDArray[np.uint8], map: tuple[int, int] | None = None
    ) -> None: ...
    def with_tiles(self, tiles: npt.NDArray[np.uint8]) -> Matrix: ...
    @property
    def format(self) -> int: ...
    def give_integers(
        self,
        values: npt.NDArray[np.int16],
        scales: npt.NDArray[np.float32],
        minimums: npt.NDArray[np.int16] | None,
        min_scales: npt.NDArray[np.float32] | None,
    ) -> None: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def tiles(self) -> int: ...
    @property
    def repacked(self) -> bool: ...

def product(
    w: Matrix,
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.float32],
    row_index: npt.NDArray[np.uint32] | None = None,
    first_tile: int = 0,
    last_tile: int = ...,
) -> None: ...
def quantize_rows(
    x: npt.NDArray[np.float32], q: npt.NDArray[np.int8], scale: npt.NDArray[np.float32]
) -> None: ...
def available_isas() -> list[str]: ...
def select_isa(name: str) -> None: ...
def selected_isa() -> str: ...
def repack(w: Matrix, tiles: npt.NDArray[np.uint8]) -> None: ...
def repack_all(model: Model, matrices: list[Matrix]) -> int: ...
def repacked_bytes(format: int, n: int, k: int) -> int: ...
def read_memory(memory: npt.NDArray[np.uint8]) -> int: ...
def dot_registers(steps: int) -> int: ...

class Model:
    def __init__(self, spec: dict[str, Any], weights: dict[str, Any], threads: int) -> None: ...
    def set_rope(self, cos: npt.NDArray[np.float32], sin: npt.NDArray[np.float32]) -> None: ...
    def forward(
        self,
        lanes: list[Lane],
        tokens: list[npt.NDArray[np.int64]],
        tentative: list[int],
        logits_from: list[int],
        logits: npt.NDArray[np.float32],
        streams: npt.NDArray[np.float32] | None = None,
    ) -> None: ...
    def mtp(
        self,
        lanes: list[Lane],
        counts: list[int],
        streams: npt.NDArray[np.float32],
        tokens: npt.NDArray[np.int64],
        logits: npt.NDArray[np.float32],
        out: npt.NDArray[np.float32],
    ) -> None: ...
    def draft(
        self, lanes: list[Lane], tokens: npt.NDArray[np.int64], drafts: npt.NDArray[np.int64]
    ) -> None: ...
    def start_profile(self, on: bool) -> None: ...
    def profile(self) -> dict[str, Any]: ...
    @property
    def threads(self) -> int: ...
    @property
    def pinned(self) -> bool: ...
    @property
    def positions(self) -> int: ...

class ExpertLayer:
    def __init__(self, experts: list[tuple[Matrix, Matrix, Matrix]], threads: int, repack: bool) -> None: ...
    def run(
        self,
        x: npt.NDArray[np.float32],
        ids: npt.NDArray[np.uint32],
        weights: npt.NDArray[np.float32],
        out: npt.NDArray[np.float32],
    ) -> None: ...

class Lane:
    def __init__(self, model: Model, drafts: bool) -> None: ...
    def copy(self) -> Lane: ...
    def accept(self, count: int) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def undecided(self) -> int: ...
    @property
    def drafts(self) -> bool: ...
    def cache_bytes(self) -> tuple[int, int]: ...
    def read_delta(
        self, model: Model, slot: int, state: npt.NDArray[np.float32], tail: npt.NDArray[np.float32]
    ) -> None: ...
    def write_delta(self, slot: int, state: npt.NDArray[np.float32], tail: npt.NDArray[np.float32]) -> None: ...
    def cache_lengths(self, slot: int) -> tuple[int, int, int]: ...
    def read_cache(
        self,
        slot: int,
        k: npt.NDArray[np.uint8],
        v: npt.NDArray[np.uint8],
        index: npt.NDArray[np.uint8],
        open: npt.NDArray[np.float32],
    ) -> None: ...
    def write_cache(
        self,
        slot: int,
        k: npt.NDArray[np.uint8],
        v: npt.NDArray[np.uint8],
        index: npt.NDArray[np.uint8],
        open: npt.NDArray[np.float32],
    ) -> None: ...
    def read_ngram(self, tokens: npt.NDArray[np.int64], tail: npt.NDArray[np.float32]) -> None: ...
    def write_ngram(self, tokens: npt.NDArray[np.int64], tail: npt.NDArray[np.float32]) -> None: ...
    def waiting_rows(self) -> int: ...
    def following_tokens(self) -> int: ...
    def read_waiting(self, streams: npt.NDArray[np.float32], following: npt.NDArray[np.int64]) -> None: ...
    def write_rest(
        self, length: int, streams: npt.NDArray[np.float32], following: npt.NDArray[np.int64]
    ) -> None: ...

def available_cores() -> int: ...
def poison(on: bool) -> None: ...
def sample(
    logits: npt.NDArray[np.float32],
    temperature: float,
    top_p: float,
    top_k: int,
    min_weight: int,
    seed: int,
    choice: int,
    position: int,
) -> int: ...
def philox(key0: int, key1: int, position: int) -> int: ...

# One op each, for tests.
def elementwise(
    name: str,
    x: npt.NDArray[np.float32],
    b: npt.NDArray[np.float32],
    c: npt.NDArray[np.float32],
    number: float,
    y: npt.NDArray[np.float32],
) -> None: ...
def rms_norm(
    x: npt.NDArray[np.float32], gamma: npt.NDArray[np.float32], y: npt.NDArray[np.float32], group: int, eps: float
) -> None: ...
def gated_norm(
    x: npt.NDArray[np.float32],
    gate: npt.NDArray[np.float32],
    gamma: npt.NDArray[np.float32],
    y: npt.NDArray[np.float32],
    eps: float,
    silu: bool,
) -> None: ...
def conv_silu(
    rows: npt.NDArray[np.float32], weight: npt.NDArray[np.float32], y: npt.NDArray[np.float32]
) -> None: ...
def mix_streams(
    logits: npt.NDArray[np.float32], flat: npt.NDArray[np.float32], y: npt.NDArray[np.float32]
) -> None: ...
def inject(
    x: npt.NDArray[np.float32], output: npt.NDArray[np.float32], weights: npt.NDArray[np.float32]
) -> None: ...
def mix_experts(
    rows: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    shared: npt.NDArray[np.float32],
    gate: float,
    y: npt.NDArray[np.float32],
) -> None: ...
def round_row(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], format: int) -> None: ...
def pool_keys(rows: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> None: ...
def delta_rule(
    state: npt.NDArray[np.float32],
    after: npt.NDArray[np.float32],
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.float32],
    v: npt.NDArray[np.float32],
    decay: npt.NDArray[np.float32],
    beta: npt.NDArray[np.float32],
    replayed: int,
    tentative: int,
    out: npt.NDArray[np.float32],
) -> None: ...
def attend(
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.uint8],
    v: npt.NDArray[np.uint8],
    scale: float,
    format: int,
    out: npt.NDArray[np.float32],
) -> None: ...
def select(values: npt.NDArray[np.float32], chosen: npt.NDArray[np.uint32], ranked: bool) -> None: ...
def dequantize(w: Matrix, rows: npt.NDArray[np.int64], y: npt.NDArray[np.float32]) -> None: ...
