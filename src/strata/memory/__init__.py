"""Conversations in memory: chunks of the KV pool, kept states, who gives way, and where the idle ones wait.

`Memory` is the door (`manager`). The states themselves are opaque (`state.State`).
"""

from strata.memory.conversations import MAIN, NOWHERE, Admission
from strata.memory.files import ConversationFileError, Origin
from strata.memory.keeper import MemoryLimits
from strata.memory.manager import Memory, PoolNumbers
from strata.memory.marks import Marking, Why, marks
from strata.memory.parking import ParkingLimits
from strata.memory.policy import PoolFull
from strata.memory.sizes import Sizes, pool_tokens
from strata.memory.tokens import packed

__all__ = [
    "MAIN",
    "NOWHERE",
    "Admission",
    "ConversationFileError",
    "Marking",
    "Memory",
    "MemoryLimits",
    "Origin",
    "ParkingLimits",
    "PoolFull",
    "PoolNumbers",
    "Sizes",
    "Why",
    "marks",
    "packed",
    "pool_tokens",
]
