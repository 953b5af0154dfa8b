"""How the tokens of a reply are drawn: what a client may choose, in which ranges, and the keys of the protocol."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strata.errors import RequestError

_SEED_ZERO = 0x9E3779B97F4A7C15  # the protocol reads seed 0 as "from the clock", but a client's 0 is a seed
_WHOLE_CONTEXT = 2**31 - 1


class ValueRangeError(RequestError):
    """A value of the request is out of its range; `name` says which."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. temperature 0: always the likeliest. top_k 0: no limit. seed None: from the clock.

    The penalties are for tokens among the last `penalty_last_n` (-1: all; 0: no penalties) of prompt and reply.
    `logit_bias` is added to the logits of single tokens; minus infinity bans one.
    """

    temperature: float = 1.0
    top_p: float = 0.95
    top_k: int = 20
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def check(self, vocabulary: int) -> None:
        """Raises ValueRangeError for the first value that is out of its range; `vocabulary`: number of token ids."""
        for name, value, low, high in (
            ("temperature", self.temperature, 0.0, 100.0), ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0), ("top_k", self.top_k, 0, 2**31 - 1),
            ("presence_penalty", self.presence_penalty, -2.0, 2.0),
            ("frequency_penalty", self.frequency_penalty, -2.0, 2.0),
            ("repetition_penalty", self.repetition_penalty, 0.01, 100.0),
            ("penalty_last_n", self.penalty_last_n, -1, 2**31 - 1),
        ):  # fmt: skip
            if not (math.isfinite(value) and low <= value <= high):
                raise ValueRangeError(name, f"{name} must be from {low:g} to {high:g}, not {value!r}.")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise ValueRangeError("seed", f"seed must fit in 64 bits, not {self.seed}.")
        for token, value in self.logit_bias.items():
            if not 0 <= token < vocabulary:
                raise ValueRangeError(
                    "logit_bias", f"logit_bias: {token} is no token of this model (0 to {vocabulary - 1})."
                )
            if not (value == -math.inf or -100 <= value <= 100):
                raise ValueRangeError(
                    "logit_bias", f"logit_bias of token {token} must be from -100 to 100, not {value!r}."
                )

    def keys(self) -> dict[str, Any]:
        """The values as keyword arguments of the protocol's `Gen`."""
        keys: dict[str, Any] = {"logit_bias": tuple(sorted(self.logit_bias.items()))}
        if self.temperature > 0:
            seed = 0 if self.seed is None else self.seed % 2**64 or _SEED_ZERO
            keys |= {
                "temperature": float(self.temperature), "top_p": float(self.top_p), "top_k": self.top_k,
                "min_p": float(self.min_p), "seed": seed,
            }  # fmt: skip
        penalties = (self.repetition_penalty, self.frequency_penalty, self.presence_penalty)
        if penalties != (1, 0, 0) and self.penalty_last_n != 0:
            repeat, frequency, presence = map(float, penalties)
            keys |= {
                "penalty_last_n": _WHOLE_CONTEXT if self.penalty_last_n == -1 else self.penalty_last_n,
                "penalty_repeat": repeat, "penalty_freq": frequency, "penalty_present": presence,
            }  # fmt: skip
        return keys
