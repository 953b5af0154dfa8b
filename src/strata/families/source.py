"""Where a family's tensors come from: canonical (GGUF) names in, raw rows of a known format out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from strata import formats
from strata.errors import FamilyError
from strata.weights import Checkpoint

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TensorData:
    """One tensor's bytes: `raw` uint8 in C order, of `format`, `shape` outermost dimension first."""

    format: str
    raw: Bytes
    shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows: the product of all dimensions but the last."""
        return int(np.prod(self.shape[:-1], dtype=np.int64))

    def floats(self) -> npt.NDArray[np.float32]:
        """The values as fp32 of this shape."""
        return formats.dequantize(self.format, self.raw, self.rows, self.shape[-1]).reshape(self.shape)

    @classmethod
    def of_floats(cls, values: npt.NDArray[Any]) -> "TensorData":
        """An F32 tensor from an array."""
        values = np.ascontiguousarray(values, np.float32)
        return cls("F32", values.reshape(-1).view(np.uint8), values.shape)


class Source(Protocol):
    """Tensors by canonical name."""

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""

    def get(self, name: str) -> TensorData:
        """The tensor's bytes; WeightsError where it is missing."""


class GgufSource:
    """A GGUF file: canonical names are its own, bytes are spans of the map."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def has(self, name: str) -> bool:
        """Whether the file holds the tensor."""
        return name in self._checkpoint.tensors

    def get(self, name: str) -> TensorData:
        """The tensor's bytes, no copy."""
        info = self._checkpoint.require(name)
        return TensorData(info.format, self._checkpoint.span(name), info.shape)


Rule = Callable[["SafetensorsSource"], TensorData]


class SafetensorsSource:
    """A safetensors checkpoint: a rule a canonical name says which tensors it is made of and how."""

    def __init__(self, checkpoint: Checkpoint, rules: Mapping[str, tuple[tuple[str, ...], Rule]]) -> None:
        self._checkpoint = checkpoint
        self._rules = rules
        self._made: dict[str, TensorData] = {}

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds every tensor that the canonical one is made of."""
        return name in self._rules and all(part in self._checkpoint.tensors for part in self._rules[name][0])

    def get(self, name: str) -> TensorData:
        """The tensor made by its rule, once: checking its shape and binding it share the work and the bytes."""
        if name not in self._rules:
            raise FamilyError(f"{self._checkpoint.path.name}: no tensor of the checkpoint stands for {name}.")
        if name not in self._made:
            self._made[name] = self._rules[name][1](self)
        return self._made[name]

    def read(self, name: str) -> TensorData:
        """A tensor of the checkpoint under its own name; it must be of a float type."""
        info = self._checkpoint.require(name)
        if info.format not in formats.FORMATS or not formats.FORMATS[info.format].is_float:
            raise FamilyError(f"{info.file.name}: tensor {name} is {info.format}; F32, F16 or BF16 is needed.")
        return TensorData(info.format, self._checkpoint.span(name), info.shape)
