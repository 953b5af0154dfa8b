"""The table itself, and what bad input is told."""

import numpy as np
import pytest

from strata.errors import FormatError
from strata.formats import FORMATS, by_ggml_type, by_name, dequantize, unpack


def test_numbers_and_names_are_unique_and_found():
    assert len({row.ggml_type for row in FORMATS.values()}) == len(FORMATS)
    for name, row in FORMATS.items():
        assert row.name == name
        assert by_ggml_type(row.ggml_type) is row is by_name(name)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("F32", 32), ("BF16", 16), ("Q8_0", 8.5), ("Q6_K", 6.5625), ("Q4_K", 4.5), ("Q3_K", 3.4375), ("MXFP4", 4.25)]
    + [("NVFP4", 4.5), ("IQ4_XS", 4.25), ("IQ3_XXS", 3.0625), ("IQ2_XXS", 2.0625), ("Q2_0", 2.25), ("IQ1_S", 1.5625)],
)
def test_published_bits_per_weight(name, bits):
    assert FORMATS[name].bits_per_weight == bits


def test_row_bytes():
    assert FORMATS["Q4_K"].row_bytes(2560) == 1440
    assert FORMATS["F16"].row_bytes(7) == 14


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        FORMATS["Q4_K"] = FORMATS["Q5_K"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: FORMATS["Q4_K"].row_bytes(640), "Q4_K stores blocks of 256 elements; a row of 640 does not fit them."),
        (lambda: FORMATS["Q4_K"].row_bytes(0), "Q4_K stores blocks of 256 elements; a row of 0 does not fit them."),
        (lambda: FORMATS["F32"].row_bytes(-4), "F32 stores blocks of 1 elements; a row of -4 does not fit them."),
        (
            lambda: unpack("Q8_0", np.zeros(35, np.uint8), 1, 32),
            "Q8_0: 1 rows of 32 elements take 34 bytes, but 35 were given.",
        ),
        (
            lambda: dequantize("F32", np.zeros(15, np.uint8), 2, 2),
            "F32: 2 rows of 2 elements take 16 bytes, but 15 were given.",
        ),
        (
            lambda: unpack("Q8_0", np.zeros(34, np.int8), 1, 32),
            "Q8_0: raw bytes have to be uint8, not int8.",
        ),
        (
            lambda: unpack("Q8_0", np.zeros(0, np.uint8), 0, 32),
            "Q8_0: 0 rows were asked for; a tensor has at least one.",
        ),
        (
            lambda: unpack("Q8_0", np.zeros(0, np.uint8), -1, 32),
            "Q8_0: -1 rows were asked for; a tensor has at least one.",
        ),
        (
            lambda: unpack("F16", np.zeros(2, np.uint8), 1, 1),
            "F16 is a float format and has no integer form; read it with dequantize.",
        ),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(FormatError) as caught:
        call()
    assert str(caught.value) == sentence


def test_unknown_formats_name_the_known_ones():
    with pytest.raises(
        FormatError, match=r"^Tensor type 99 is not known; the known ones are 0 F32, .*12 Q4_K.*42 Q2_0\.$"
    ):
        by_ggml_type(99)
    for call in (lambda: by_name("Q9"), lambda: dequantize("Q9", np.zeros(1, np.uint8), 1, 1)):
        with pytest.raises(FormatError, match=r"^Tensor format 'Q9' is not known; the known ones are F32, .*NVFP4\.$"):
            call()
