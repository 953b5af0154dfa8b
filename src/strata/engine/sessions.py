"""Commands that are no requests: SAVE and RESTORE of the control lines' conversation, and VRAM."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from strata import logs
from strata.engine.protocol import Report, Restore, Restored, Save, Saved, SessionError, VramState
from strata.engine.scheduler import Policy
from strata.memory import MAIN, ConversationFileError, Memory, PoolFull
from strata.units import bytes_text

if TYPE_CHECKING:
    from strata.model import LaneState

log = logs.get("engine")


def exchange(
    request: Save | Restore, memory: "Memory[LaneState]", clock: Callable[[], float], *, lanes: bool
) -> Report:
    """Carry out SAVE or RESTORE: its answer, also where it fails."""
    if lanes:
        return SessionError("invalid", False, "a client of lanes has no conversation on the control lines")
    before, begun = memory.stands(MAIN), clock()
    saving = isinstance(request, Save)
    try:
        path = Path(request.path)
        tokens, size = memory.save(path) if saving else memory.restore(path)
    except ConversationFileError as error:
        kind, reason = error.kind, str(error)
    except (PoolFull, MemoryError) as error:
        kind, reason = "memory", str(error) or "the system gives no more memory"
    else:
        log.info("%s %d tokens (%s): %s", "saved" if saving else "restored", tokens, bytes_text(size), path)
        milliseconds = (clock() - begun) * 1000
        return Saved(tokens, size, milliseconds) if saving else Restored(tokens, size, milliseconds)
    log.warning("%s: %s", request.format(), reason)
    return SessionError(kind, before and not memory.stands(MAIN), reason)


def vram(policy: Policy) -> VramState:
    """How the graphics card is shared: this engine has none, so only the prompt's chunk is no zero."""
    return VramState(0, 0, 0, 0, 0, 0, policy.chunk or policy.largest_chunk)
