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
