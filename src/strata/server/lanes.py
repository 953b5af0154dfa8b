"""Lines of the LANES form as what they mean to their request: the reports of a request that is alone."""

from strata.engine.protocol import (
    Done,
    Err,
    LaneDone,
    LaneErr,
    LaneProgress,
    LaneResume,
    LogProb,
    Progress,
    Report,
    Resume,
    SlotDone,
    SlotLogProb,
    SlotToken,
    Token,
)
from strata.errors import EngineError


def of_lane(report: Report) -> tuple[int, Report] | None:
    """The lane of a report, and the report without it; None for one that is about no lane.

    Raises EngineError for a refusal that names no lane, since somebody would wait for ever, and for an end of a slot.
    """
    match report:
        case SlotToken():
            return report.slot, Token(report.id)
        case SlotLogProb():
            return report.slot, LogProb(report.logprob, report.top)
        case LaneResume():
            return report.slot, Resume(report.tokens)
        case LaneProgress():
            return report.slot, Progress(report.reached, report.prompt, report.ms, report.speed)
        case LaneDone():
            return report.slot, _done(report)
        case LaneErr():
            return report.slot, Err(report.reason)
        case SlotDone():
            raise EngineError(f"The engine sent a line that is not of the LANES form: {report.format()}.")
        case Err():
            raise EngineError(f"The engine refused a line without saying whose: {report.reason}.")
    return None


def _done(report: LaneDone) -> Done:
    return Done(
        report.generated, report.prompt, report.prompt_ms, report.decode_ms, report.finish,
        report.drafts_accepted, report.drafts_offered, report.reused, prompt_read=report.prompt_read,
    )  # fmt: skip
