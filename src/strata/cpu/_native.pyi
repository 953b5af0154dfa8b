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
        self, format: int, n: int, k: int, raw: npt.NDArray[np.uint8], tiles: npt.NDArray[np.uint8] | None = None
    ) -> None: ...
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
