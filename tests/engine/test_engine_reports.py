"""Reports of the protocol: round trips, the form that clients count on, and lines that are out of step."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine import protocol
from strata.engine.protocol import (
    Admitted,
    Done,
    Err,
    Fatal,
    Info,
    LaneDone,
    LaneErr,
    LaneProgress,
    LaneResume,
    LogProb,
    PoolState,
    Progress,
    Ready,
    Report,
    Restored,
    Resume,
    Reused,
    Saved,
    SessionError,
    SlotDone,
    SlotLogProb,
    SlotToken,
    Token,
    VramState,
    Yielded,
    parse_report,
)
from strata.errors import EngineError

COUNT = st.integers(0, 2**31 - 1)
TENTHS = st.integers(0, 10**7).map(lambda n: n / 10)
FINISH = st.sampled_from(protocol.FINISHES)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
SENTENCE = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
LOG = st.integers(-(10**12), 0).map(lambda n: n / 10**6) | st.just(-math.inf)
TOP = st.lists(st.tuples(COUNT, LOG), max_size=4).map(tuple)
SLOT_ENDS = st.builds(SlotDone, COUNT, COUNT, FINISH, TENTHS) | st.builds(
    SlotDone, COUNT, COUNT, FINISH, TENTHS, COUNT, COUNT
)
VALUES = st.one_of(
    st.builds(Token, COUNT), st.builds(Resume, COUNT), st.builds(Reused, COUNT), st.builds(Ready, COUNT, st.booleans()),
    st.builds(Progress, COUNT, COUNT, TENTHS, TENTHS), st.builds(Yielded, COUNT, COUNT), st.builds(LogProb, LOG, TOP),
    st.builds(Info, st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), COUNT | st.just("bf16"))),
    st.builds(Done, COUNT, COUNT, TENTHS, TENTHS, FINISH, COUNT, COUNT, COUNT, file_mb=TENTHS, prompt_read=COUNT),
    st.builds(Admitted, COUNT, st.booleans()), st.builds(SlotToken, COUNT, COUNT),
    st.builds(SlotLogProb, COUNT, LOG, TOP), SLOT_ENDS,
    st.builds(LaneDone, COUNT, COUNT, FINISH, TENTHS, COUNT, COUNT, COUNT, TENTHS, COUNT, COUNT),
    st.builds(LaneResume, COUNT, COUNT), st.builds(LaneProgress, COUNT, COUNT, COUNT, TENTHS, TENTHS),
    st.builds(PoolState, COUNT, COUNT, COUNT, st.lists(COUNT, max_size=5).map(tuple)),
    st.builds(Saved, COUNT, st.integers(0, 2**50), TENTHS), st.builds(Restored, COUNT, st.integers(0, 2**50), TENTHS),
    st.builds(VramState, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT),
)  # fmt: skip
SENTENCES = st.one_of(
    st.builds(Err, SENTENCE), st.builds(Fatal, SENTENCE), st.builds(LaneErr, COUNT, SENTENCE),
    st.builds(SessionError, st.sampled_from(protocol.SESSION_ERRORS), st.booleans(), SENTENCE),
)  # fmt: skip


@given(VALUES | SENTENCES)
def test_a_report_survives_the_line(report: Report) -> None:
    line = report.format()
    assert not re.search(r"[\r\n]", line)
    assert parse_report(line) == report
    assert parse_report(line + "\r\n") == report


@given(VALUES)
def test_further_values_at_the_end_are_skipped(report: Report) -> None:
    assert parse_report(report.format() + " novel") == report


# Every known line, written out, and what it says.
LINES: list[tuple[str, Report]] = [
    ("INFO context=4096 kv=bf16 engine=0.1", Info({"context": 4096, "kv": "bf16", "engine": "0.1"})),
    ("READY 4096 stop", Ready(4096)),
    ("POOL 65536 61440 4096 -", PoolState(65536, 61440, 4096)),
    ("POOL 65536 61440 1024 1024,0,2048", PoolState(65536, 61440, 1024, (1024, 0, 2048))),
    ("SAVED 812 3350012 17.5", Saved(812, 3350012, 17.5)),
    ("RESTORED 812 3350012 9.1", Restored(812, 3350012, 9.1)),
    ("SERR storage 0 the disk is full", SessionError("storage", False, "the disk is full")),
    ("SERR invalid 1 not a session", SessionError("invalid", True, "not a session")),
    ("VRAM reserve_mib=700 expert_slots=9 expert_slots_full=12 expert_cache_mib=80 expert_cache_full_mib=99 "
     "vram_free_mib=640 prompt_chunk=512", VramState(700, 9, 12, 80, 99, 640, 512)),
    ("ERR KV pool full: try again when one finishes", Err("KV pool full: try again when one finishes")),
    ("FATAL no weights", Fatal("no weights")),
    ("T 248046", Token(248046)),
    ("LP -0.000123", LogProb(-0.000123)),
    ("LP -1.5 7:-0.25 9:-1.5 3:-inf", LogProb(-1.5, ((7, -0.25), (9, -1.5), (3, -math.inf)))),
    ("PP 512 2048 1234.6 414.7", Progress(512, 2048, 1234.6, 414.7)),
    ("RESUME 480", Resume(480)),
    ("REUSED 480", Reused(480)),
    ("YIELDED 1 512", Yielded(1, 512)),
    ("DONE 3 10 5.0 7.2 stop 2 6 4 0 0 0 0 0.0 6 0", Done(3, 10, 5.0, 7.2, "stop", 2, 6, 4, prompt_read=6)),
    ("BADM 2 1", Admitted(2, True)),
    ("BADM 2 0", Admitted(2, False)),
    ("BT 2 198", SlotToken(2, 198)),
    ("BLP 2 -0.5 198:-0.5", SlotLogProb(2, -0.5, ((198, -0.5),))),
    ("BDONE 2 64 length 812.3", SlotDone(2, 64, "length", 812.3)),
    ("BDONE 2 64 cancel 812.3 20 31", SlotDone(2, 64, "cancel", 812.3, 20, 31)),
    ("BRESUME 2 0", LaneResume(2, 0)),
    ("BPP 2 512 2048 1234.6 414.7", LaneProgress(2, 512, 2048, 1234.6, 414.7)),
    ("BDONE 2 64 pool 812.3 20 31 2048 99.5 512 1536",
     LaneDone(2, 64, "pool", 812.3, 20, 31, 2048, 99.5, 512, 1536)),
    ("BERR 2 the prompt is empty", LaneErr(2, "the prompt is empty")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "report"), LINES)
def test_each_line_in_its_form(line: str, report: Report) -> None:
    assert report.format() == line
    assert parse_report(line) == report


FREE = {"INFO": 0, "ERR": 0, "FATAL": 0, "SERR": 2, "BERR": 1, "READY": 1}


@pytest.mark.parametrize("line", [line for line, _ in LINES])
def test_a_malformed_value_anywhere_is_one_sentence_that_quotes_it(line: str) -> None:
    word, *values = line.split(" ")
    for at in range(FREE.get(word, len(values))):
        for wrong in ("x", "-1x", "nan", "1_0", "١"):
            bad = f"{values[at].partition('=')[0]}={wrong}" if word == "VRAM" else wrong
            bad = f"{values[at].partition(':')[0]}:{wrong}" if ":" in values[at] else bad
            with pytest.raises(EngineError) as caught:
                parse_report(" ".join([word, *values[:at], bad, *values[at + 1 :]]))
            sentence = str(caught.value)
            assert len(sentence.splitlines()) == 1
            assert sentence.startswith(f"The engine sent a line that cannot be read: '{word}")
            assert f" is {wrong!r})." in sentence


LEAST = {"READY": 1, "POOL": 4, "SAVED": 3, "RESTORED": 3, "SERR": 2, "T": 1, "LP": 1, "PP": 4, "RESUME": 1,
         "REUSED": 1, "YIELDED": 2, "DONE": 6, "BADM": 2, "BT": 2, "BLP": 2, "BDONE": 4, "BRESUME": 2, "BPP": 5,
         "BERR": 1, "VRAM": 7}  # fmt: skip


@pytest.mark.parametrize("line", [line for line, _ in LINES if line.split()[0] in LEAST])
def test_a_line_that_is_too_short_is_out_of_step(line: str) -> None:
    word, *values = line.split(" ")
    least = LEAST[word]
    for count in range(least):
        with pytest.raises(EngineError):
            parse_report(" ".join([word, *values[:count]]))
    assert parse_report(" ".join([word, *values[:least]])) is not None


def test_the_two_forms_of_bdone_are_told_apart_by_their_length() -> None:
    slot = "BDONE 1 9 stop 5.0 3 4"
    for further in ("", " 7", " 7 8", " 7 8 9"):
        assert parse_report(slot + further) == SlotDone(1, 9, "stop", 5.0, 3, 4)
    assert parse_report(slot + " 7 8 9 10") == LaneDone(1, 9, "stop", 5.0, 3, 4, 7, 8.0, 9, 10)
    assert parse_report(slot + " 7 8 9 10 11") == LaneDone(1, 9, "stop", 5.0, 3, 4, 7, 8.0, 9, 10)
    assert parse_report("BDONE 1 9 stop 5.0 3") == SlotDone(1, 9, "stop", 5.0), "half a pair of drafts is none"


def test_what_is_rounded_and_what_a_sentence_may_not_break() -> None:
    assert Progress(512, 2048, 1234.56, 414.7).format() == "PP 512 2048 1234.6 414.7"
    assert Done(3, 10, 5.0, 7.25, "stop", reused=4, prompt_read=6).format() == (
        "DONE 3 10 5.0 7.2 stop 0 0 4 0 0 0 0 0.0 6 0"
    )
    assert LogProb(-0.123456789, ((3, -math.inf),)).format() == "LP -0.123457 3:-inf"
    assert Err("two\nlines").format() == "ERR two lines"
    assert LaneErr(4, "two\r\nlines").format() == "BERR 4 two lines"
    assert SessionError("io", True, "two\nlines").format() == "SERR io 1 two lines"


def test_six_values_of_done_are_enough() -> None:
    assert parse_report("DONE 3 10 5 7 cancel 1 2") == Done(3, 10, 5.0, 7.0, "cancel", 1, 2)


@pytest.mark.parametrize("line", ["", "SESSION 1 2", "SWAIT write 5", "CAPACITY free_mib=1", "done 1 2", "loading 5 %"])
def test_lines_of_other_engines_are_skipped(line: str) -> None:
    assert parse_report(line) is None


@given(st.text(max_size=80) | st.builds("{} {}".format, st.sampled_from([*LEAST, "INFO"]), st.text(max_size=80)))
def test_any_answer_is_a_report_or_skipped_or_out_of_step(line: str) -> None:
    outcome: Report | EngineError | None
    try:
        outcome = parse_report(line)
    except EngineError as error:
        outcome = error
    if isinstance(outcome, EngineError):
        assert line.split()[0] in LEAST
        assert len(str(outcome).splitlines()) == 1
    else:
        assert outcome is None or isinstance(outcome, Report)
