"""RMS norms and the l2 norm (docs/arithmetic.md, section 6)."""

import numpy as np

from strata.arithmetic.functions import sigmoid, silu
from strata.arithmetic.order import lane_sum
from strata.arithmetic.types import F32

L2_EPS = np.float32(1e-6)
GATES = {"sigmoid": sigmoid, "silu": silu}


def rms_norm(x: F32, gamma: F32, eps: float, group: int | None = None) -> F32:
    """RMS norm over the last axis, or over each `group` of it: (x * (1 / sqrt(mean(x^2) + eps))) * gamma.

    `gamma` is the multiplier itself and spans the whole last axis. mean = lane sum / n; root and division are IEEE.
    """
    size = group or x.shape[-1]
    grouped = x.reshape(*x.shape[:-1], x.shape[-1] // size, size)
    mean = lane_sum(grouped * grouped) / np.float32(size)
    inverse = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return (grouped * inverse[..., None]).reshape(x.shape) * gamma


def l2_norm(x: F32) -> F32:
    """x * (1 / sqrt(sum(x^2) + 1e-6)) over the last axis: the delta rule's queries and keys."""
    inverse = np.float32(1) / np.sqrt(lane_sum(x * x) + L2_EPS)
    return x * inverse[..., None]


def gated_rms_norm(x: F32, gate: F32, gamma: F32, eps: float, activation: str) -> F32:
    """rms_norm(x) * activation(gate) over the last axis (a value head); activation is 'sigmoid' or 'silu'."""
    return rms_norm(x, gamma, eps) * GATES[activation](gate)
