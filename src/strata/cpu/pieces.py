"""Arrays that lie in several places, as the rows of caches do: a piece for every group and chunk of 256 positions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Pieces:
    """An array of this shape and type whose bytes, in C order, are those of `parts` one after the other."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: Sequence[npt.NDArray[np.uint8]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def joined(self) -> npt.NDArray[Any]:
        """The array in one place: a copy."""
        flat = np.concatenate(self.parts) if self.parts else np.empty(0, np.uint8)
        return flat.view(self.dtype).reshape(self.shape)

    def fill(self, array: npt.NDArray[Any]) -> None:
        """Write an array of the same shape and type into the pieces; ValueError for another one."""
        self.need(array.shape, array.dtype)
        flat, at = np.ascontiguousarray(array).reshape(-1).view(np.uint8), 0
        for part in self.parts:
            part[:] = flat[at : at + len(part)]
            at += len(part)

    def need(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """ValueError for what does not go into the pieces."""
        if shape != self.shape or dtype != self.dtype:
            raise ValueError(f"{dtype} {list(shape)} is not {self.dtype} {list(self.shape)}")


Section = npt.NDArray[Any] | Pieces


def whole(section: Section) -> npt.NDArray[Any]:
    """A copy in one place, which stays valid."""
    return section.joined() if isinstance(section, Pieces) else section.copy()


@runtime_checkable
class Fills(Protocol):
    """Arrays by name that can be put where they are wanted, without another place between."""

    def fill(self, name: str, target: Pieces) -> None:
        """Put the array of that name into the pieces; ValueError where it does not fit."""


def fill(arrays: Mapping[str, npt.NDArray[Any]], name: str, target: Pieces) -> None:
    """Put an array into pieces, straight from where it is if `arrays` can do that."""
    if isinstance(arrays, Fills):
        arrays.fill(name, target)
    else:
        target.fill(arrays[name])
