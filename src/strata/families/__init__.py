"""Families of models: a family is its facts as data (spec, tensor names, shapes). The door recognises and checks."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from strata.errors import FamilyError, WeightsError
from strata.families import qwen4_exp
from strata.families.qwen4_exp import Spec, Tensor
from strata.families.source import GgufSource, SafetensorsSource, Source, TensorData
from strata.weights import Checkpoint

__all__ = ["Description", "Opened", "Source", "Spec", "TensorData", "describe", "open_family"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint that fits its family: spec and a source of canonical tensors, every one present and of its shape."""

    spec: Spec
    source: Source


@dataclass(frozen=True, slots=True)
class Description:
    """What a checkpoint is: family, spec, tensors by part, what is missing and what does not fit (sentences)."""

    family: str | None
    spec: Spec | None
    parts: dict[str, list[str]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def open_family(checkpoint: Checkpoint) -> Opened:
    """Recognise a checkpoint's family and check every tensor; FamilyError or WeightsError names the first fault."""
    spec = _spec(checkpoint)
    source = _source(checkpoint, spec)
    for need, found in _found(spec, source):
        if found is None:
            raise FamilyError(f"{checkpoint.path.name}: tensor {need.name} of shape {list(need.shape)} is missing.")
        problem = _misfit(need, found)
        if problem:
            raise FamilyError(f"{checkpoint.path.name}: {problem}")
    strangers = _strangers(checkpoint, spec)
    if strangers:
        raise FamilyError(
            f"{checkpoint.path.name}: {len(strangers)} tensors have no part in this architecture ({strangers[0]}, "
            "...); leaving them out would change the answers."
        )
    return Opened(spec, source)


def _found(spec: Spec, source: Source) -> Iterator[tuple[Tensor, tuple[int, ...] | None]]:
    """Every tensor the family needs with the shape found; None: missing. Absent optional ones are left out."""
    for need in qwen4_exp.tensors(spec):
        if source.has(need.name):
            yield need, source.get(need.name).shape
        elif not need.optional:
            yield need, None


def _strangers(checkpoint: Checkpoint, spec: Spec) -> list[str]:
    """Tensors of a GGUF that the family does not know (a checkpoint may also hold a vision tower: that is no fault)."""
    if checkpoint.kind != "gguf":
        return []
    known = {need.name for need in qwen4_exp.tensors(spec)}
    return [name for name in checkpoint.tensors if name not in known]


def describe(checkpoint: Checkpoint) -> Description:
    """What a checkpoint is and what it lacks, without raising for a model that cannot run."""
    everything = list(checkpoint.tensors)
    try:
        spec = _spec(checkpoint)
        source = _source(checkpoint, spec)
    except WeightsError as error:
        return Description(_family_name(checkpoint), None, {"other": everything}, [], [str(error)])
    parts: dict[str, list[str]] = {}
    missing, problems = [], []
    for need, found in _found(spec, source):
        if found is None:
            missing.append(need.name)
            continue
        parts.setdefault(need.part, []).append(need.name)
        problem = _misfit(need, found)
        if problem:
            problems.append(problem)
    strangers = _strangers(checkpoint, spec)
    if strangers:
        parts["other"] = strangers
        problems.append(f"{len(strangers)} tensors have no part in this architecture ({strangers[0]}, ...).")
    return Description(qwen4_exp.ARCHITECTURE, spec, parts, missing, problems)


def _family_name(checkpoint: Checkpoint) -> str | None:
    if checkpoint.kind == "gguf":
        value = checkpoint.metadata.get("general.architecture")
    else:
        config = checkpoint.metadata.get("config")
        value = config.get("model_type") if isinstance(config, Mapping) else None
    return value if isinstance(value, str) else None


def _spec(checkpoint: Checkpoint) -> Spec:
    name = _family_name(checkpoint)
    if checkpoint.kind == "gguf" and name == qwen4_exp.ARCHITECTURE:
        return qwen4_exp.from_gguf(checkpoint.metadata, checkpoint.require("token_embd.weight").shape[0])
    if checkpoint.kind != "gguf" and name in qwen4_exp.MODEL_TYPES:
        config: Any = checkpoint.metadata["config"]
        return qwen4_exp.from_config(config)
    known = ", ".join((qwen4_exp.ARCHITECTURE, *qwen4_exp.MODEL_TYPES))
    raise FamilyError(f"{checkpoint.path.name}: the architecture is {name or 'not stated'}; implemented: {known}.")


def _source(checkpoint: Checkpoint, spec: Spec) -> Source:
    if checkpoint.kind == "gguf":
        return GgufSource(checkpoint)
    return SafetensorsSource(checkpoint, qwen4_exp.rules(spec, checkpoint.tensors))


def _misfit(need: Tensor, shape: tuple[int, ...]) -> str | None:
    """What is wrong with a tensor's shape (dimensions of 1 in front count for nothing), or None."""
    found, wanted = _squeezed(shape), _squeezed(need.shape)
    if found == wanted:
        return None
    if need.rows_at_least and len(found) == len(wanted) and found[1:] == wanted[1:] and found[0] >= wanted[0]:
        return None
    return f"tensor {need.name} has shape {list(shape)} ({math.prod(shape)} values); {list(need.shape)} is needed."


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape
