"""Lines of the protocol: round trips, the exact texts that clients match, and garbage."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine import protocol
from strata.engine.protocol import (
    Done,
    Err,
    Fatal,
    Gen,
    Ignored,
    Info,
    Progress,
    Quit,
    Ready,
    Resume,
    Reused,
    Stop,
    Token,
    parse_command,
    parse_report,
)
from strata.errors import EngineError, RequestError

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20).map(tuple)
UNIT = st.floats(0, 1)
COUNT = st.integers(0, 2**31 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)
GENS = st.builds(Gen, st.integers(-5, 10**6), IDS, temperature=REAL, top_p=UNIT, top_k=COUNT, min_p=UNIT,
                 seed=st.integers(0, 2**64 - 1), penalty_last_n=COUNT, penalty_repeat=REAL, penalty_freq=REAL,
                 penalty_present=REAL, cvec=st.booleans(), ckpt=st.booleans(), pin=COUNT)  # fmt: skip
TENTHS = st.integers(0, 10**7).map(lambda n: n / 10)
SENTENCE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
REPORTS = st.one_of(
    st.builds(Token, COUNT), st.builds(Resume, COUNT), st.builds(Reused, COUNT), st.builds(Ready, COUNT, st.booleans()),
    st.builds(Progress, COUNT, COUNT, TENTHS, TENTHS), st.builds(Err, SENTENCE), st.builds(Fatal, SENTENCE),
    st.builds(Info, st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), COUNT | st.just("bf16"))),
    st.builds(Done, COUNT, COUNT, TENTHS, TENTHS, st.sampled_from(protocol.FINISHES), COUNT, COUNT, COUNT,
              file_mb=TENTHS, prompt_read=COUNT),
)  # fmt: skip


@given(GENS)
def test_a_request_survives_the_line(gen: Gen) -> None:
    assert parse_command(gen.format()) == gen


@given(REPORTS)
def test_a_report_survives_the_line(report: protocol.Report) -> None:
    line = report.format()
    assert "\n" not in line
    assert parse_report(line) == report


GARBAGE = st.text(max_size=80)
BEGUN = st.sampled_from(
    ["GEN ", "GEN 5 ", "GEN 5 top_k=", "DONE ", "PP ", "T ", "READY ", "INFO ", "RESUME ", "DONE 1 2 "]
)
LINES = GARBAGE | st.builds("{}{}".format, BEGUN, GARBAGE)


@given(LINES)
def test_any_line_is_a_command_or_one_sentence(line: str) -> None:
    try:
        outcome: object = parse_command(line)
    except RequestError as error:
        outcome = Err(str(error)).format()
    assert isinstance(outcome, Gen | Stop | Quit | Ignored | str)
    if isinstance(outcome, str):
        assert len(outcome.splitlines()) == 1
        assert len(outcome) > len("ERR ")


@given(LINES)
def test_any_answer_is_a_report_or_skipped_or_out_of_step(line: str) -> None:
    try:
        report = parse_report(line)
    except EngineError:
        assert line.split()[0] in ("DONE", "PP", "T", "READY", "RESUME", "REUSED")
    else:
        assert report is None or isinstance(report, protocol.Report)


def test_the_line_of_a_client_of_the_seeds() -> None:
    gen = parse_command("GEN 256 temperature=0.7 top_p=0.95 top_k=20 seed=7 pcie_frac=0.5 novel=1 248045,846,198")
    assert gen == Gen(256, (248045, 846, 198), temperature=0.7, top_p=0.95, top_k=20, seed=7)
    assert getattr(gen, "skipped", None) == ("novel",), "tuning keys are known, novel ones are named"


def test_an_absent_top_k_is_the_seeds_twenty_and_zero_keeps_every_token() -> None:
    assert parse_command("GEN 1 temperature=1 5") == Gen(1, (5,), temperature=1.0, top_k=20)
    assert parse_command("GEN 1 temperature=1 top_k=0 5") == Gen(1, (5,), temperature=1.0, top_k=0)


@pytest.mark.parametrize("ids", ["1,2,3", "1 2 3", "1, 2 ,3", "  1,2 3  "])
def test_ids_are_separated_by_commas_or_spaces(ids: str) -> None:
    assert parse_command(f"GEN 4 {ids}") == Gen(4, (1, 2, 3))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "expected: GEN <max_new> ..."),
        ("HELLO", "expected: GEN <max_new> ..."),
        ("SAVE /tmp/x", "expected: GEN <max_new> ..."),
        ("GEN", "expected: GEN <max_new> ..."),
        ("GEN many 1,2", "expected: GEN <max_new> ..."),
        ("gen 5 1,2", "expected: GEN <max_new> ..."),
        ("STOP now", "expected: GEN <max_new> ..."),
        ("BGEN 0 5 1,2", "BGEN: no such free slot (--batch N) or a bad max_new"),
        ("GENI 5 file 1,2", "this engine was started without --vision"),
        ("GEN 5", "bad request: the prompt is empty"),
        ("GEN 5 top_k=3", "bad request: the prompt is empty"),
        ("GEN 5 1,x,3", "bad request: 'x' is not a token id"),
        ("GEN 5 1,-2", "bad request: '-2' is not a token id"),
        ("GEN 5 1,1_0", "bad request: '1_0' is not a token id"),
        ("GEN 5 ١", "bad request: '١' is not a token id"),
        ("GEN 5 2147483648", "bad request: 2147483648 is not a token id: ids end at 2147483647"),
        ("GEN 5 temperature=nan 1", "bad request: temperature='nan' is not a number"),
        ("GEN 5 top_p=1.5 1", "bad request: top_p='1.5' is not a number from 0 to 1"),
        ("GEN 5 top_k=-1 1", "bad request: top_k='-1' is not a whole number from 0 to 2147483647"),
        ("GEN 5 ckpt=yes 1", "bad request: ckpt='yes' is neither 0 nor 1"),
    ],
)
def test_refusals_in_the_words_that_clients_match(line: str, reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_command(line)
    assert str(caught.value) == reason


def test_lines_of_lanes_that_this_engine_does_not_run_get_no_answer() -> None:
    assert isinstance(parse_command("BSTOP 1"), Ignored)
    assert isinstance(parse_command("BYIELD 0"), Ignored)


def test_reports_in_the_form_of_the_seeds() -> None:
    assert Ready(4096).format() == "READY 4096 stop"
    assert Progress(512, 2048, 1234.56, 414.7).format() == "PP 512 2048 1234.6 414.7"
    assert (
        Done(3, 10, 5.0, 7.25, "stop", reused=4, prompt_read=6).format()
        == "DONE 3 10 5.0 7.2 stop 0 0 4 0 0 0 0 0.0 6 0"
    )
    assert Err("two\nlines").format() == "ERR two lines"
    assert parse_report("DONE 3 10 5 7 cancel 1 2") == Done(3, 10, 5.0, 7.0, "cancel", 1, 2), "six fields are enough"
    assert parse_report("POOL 1 2 3 -") is None


def test_the_protocol_needs_no_numpy() -> None:
    code = "import sys, strata.engine.protocol; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
