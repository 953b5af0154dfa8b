"""Tensor formats of GGUF files: one table row and one unpack each, in numpy.

`unpack` gives the integers and scales that the quantized product is defined on; `dequantize` gives float32 weights.
"""

from strata.formats.table import FORMATS, Format, by_ggml_type, by_name, dequantize, unpack
from strata.formats.unpacked import Unpacked

__all__ = ["FORMATS", "Format", "Unpacked", "by_ggml_type", "by_name", "dequantize", "unpack"]
