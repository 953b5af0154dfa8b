"""The qwen4_exp family: Qwen3.8-Flash-Next and models of its architecture."""

from strata.families.qwen4_exp.checkpoint import rules, tiled_order
from strata.families.qwen4_exp.spec import (
    ARCHITECTURE,
    MODEL_TYPES,
    AttentionSpec,
    DeltaSpec,
    ExpertSpec,
    NgramSpec,
    Spec,
    from_config,
    from_gguf,
)
from strata.families.qwen4_exp.tensors import Tensor, tensors

__all__ = [
    "ARCHITECTURE",
    "MODEL_TYPES",
    "AttentionSpec",
    "DeltaSpec",
    "ExpertSpec",
    "NgramSpec",
    "Spec",
    "Tensor",
    "from_config",
    "from_gguf",
    "rules",
    "tensors",
    "tiled_order",
]
