"""Quantized blocks, read back by the `gguf` package, are near what went in."""

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from training.quantize import quantize  # noqa: E402

# Relative RMS errors of the best known encoders on normal values, with a little room
LIMITS = {"Q4_0": 0.088, "Q5_0": 0.045, "Q8_0": 0.0065, "IQ4_NL": 0.081, "Q4_K": 0.075, "Q6_K": 0.019, "IQ3_S": 0.14}


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_error_is_that_of_the_format(name: str) -> None:
    values = np.random.default_rng(3).standard_normal((40, 512)).astype(np.float32) * 0.03
    values[3] = 0
    packed, kind = quantize(values, name)
    back = gguf.quants.dequantize(packed, kind)
    assert np.sqrt(((back - values) ** 2).mean() / (values**2).mean()) < LIMITS[name]
    assert not back[3].any()


def test_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SystemExit, match="multiple of 256 values, not 64"):
        quantize(np.zeros((2, 64), np.float32), "Q4_K")
