"""The arithmetic, in numpy: one plain function an op, and a slow whole model made of them; every room's oracle.

Written out to the last bit in docs/arithmetic.md.
"""

from strata.arithmetic.forward import MtpSegment, Ops, Reference, Segment
from strata.arithmetic.products import Matrix, Rows
from strata.arithmetic.sampling import Sampling, sample
from strata.arithmetic.state import LaneState
from strata.arithmetic.weights import Weights, bind

__all__ = [
    "LaneState",
    "Matrix",
    "MtpSegment",
    "Ops",
    "Reference",
    "Rows",
    "Sampling",
    "Segment",
    "Weights",
    "bind",
    "sample",
]
