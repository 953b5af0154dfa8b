"""Array types of this room."""

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]
