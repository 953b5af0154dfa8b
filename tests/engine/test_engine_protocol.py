"""Commands of the protocol: round trips, the exact texts that clients match, and garbage."""

import math
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.protocol import (
    BadRequest,
    BStop,
    BYield,
    Command,
    Err,
    Gen,
    Lanes,
    Quit,
    Restore,
    Save,
    Stop,
    Vram,
    parse_command,
)

COUNT = st.integers(0, 2**31 - 1)
IDS = st.lists(COUNT, min_size=1, max_size=20).map(tuple)
UNIT = st.floats(0, 1)
PENALTY = st.floats(-1e6, 1e6)
BIAS = st.dictionaries(COUNT, st.floats(-1e30, 1e30) | st.just(-math.inf), max_size=5).map(lambda d: tuple(d.items()))
GENS = st.builds(Gen, st.integers(-5, 10**6), IDS, temperature=st.floats(-3e38, 3e38), top_p=UNIT, top_k=COUNT,
                 min_p=UNIT, seed=st.integers(0, 2**64 - 1), penalty_last_n=COUNT, penalty_repeat=st.floats(1e-6, 1e6),
                 penalty_freq=PENALTY, penalty_present=PENALTY, logit_bias=BIAS, logprobs=COUNT | st.none(),
                 stop_ids=st.lists(COUNT, max_size=5).map(tuple), cvec=st.booleans(), ckpt=st.booleans(), pin=COUNT,
                 slot=COUNT | st.none())  # fmt: skip
PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), min_size=1).filter(str.strip)
COMMANDS = st.one_of(
    GENS, st.builds(BStop, COUNT), st.builds(BYield, COUNT), st.builds(Save, PATHS), st.builds(Restore, PATHS),
    st.builds(Vram, COUNT | st.none()), st.sampled_from([Stop(), Lanes(), Quit()]),
)  # fmt: skip


@given(COMMANDS, st.sampled_from(["", "\n", "\r\n"]))
def test_a_command_survives_the_line(command: Command, end: str) -> None:
    line = command.format()
    assert not re.search(r"[\r\n]", line)
    assert parse_command(line + end) == command
    assert hash(parse_command(line)) == hash(command)


GARBAGE = st.text(max_size=80)
BEGUN = st.sampled_from(
    ["GEN ", "GEN 5 ", "GEN 5 top_k=", "GEN 5 logit_bias=", "GEN 5 stop_ids=1,", "BGEN ", "BGEN 1 ", "BGEN 1 5 ",
     "BGENI ", "BSTOP ", "BYIELD ", "BHANDOFF ", "SAVE ", "RESTORE ", "VRAM ", "LANES ", "GENI ", "QUIT "]
)  # fmt: skip


@given(GARBAGE | st.builds("{}{}".format, BEGUN, GARBAGE))
def test_any_line_is_a_command_or_one_sentence(line: str) -> None:
    outcome: Command | BadRequest
    try:
        outcome = parse_command(line)
    except BadRequest as error:
        outcome = error
    if isinstance(outcome, BadRequest):
        assert outcome.slot is None or line.split()[0] in ("BGEN", "BGENI")
        sentence = Err(str(outcome)).format()
        assert len(str(outcome).splitlines()) == 1
        assert len(sentence) > len("ERR ")
    else:
        assert isinstance(outcome, Command)


def test_the_lines_of_a_client_of_the_seeds() -> None:
    gen = parse_command("GEN 256 temperature=0.7 top_p=0.95 top_k=20 seed=7 pcie_frac=0.5 novel=1 248045,846,198")
    assert gen == Gen(256, (248045, 846, 198), temperature=0.7, top_p=0.95, top_k=20, seed=7)
    assert getattr(gen, "skipped", None) == ("novel",), "tuning keys are known, novel ones are named"
    assert parse_command("BGEN 1 256 temperature=0.7 top_p=0.95 top_k=20 seed=7 248045,846,198") == Gen(
        256, (248045, 846, 198), temperature=0.7, top_p=0.95, top_k=20, seed=7, slot=1
    )
    assert parse_command("BGEN 0 64 spec_min_p=0.5 q8k_avx2=0 ckpt=0 pin=12 5 6") == Gen(
        64, (5, 6), ckpt=False, pin=12, slot=0
    )
    assert parse_command("HANDOFF") == parse_command("STOP") == Stop()
    assert parse_command("BHANDOFF 3") == parse_command("BSTOP 3") == BStop(3)
    assert parse_command("BYIELD 0") == BYield(0)
    assert parse_command("SAVE /tmp/my conversation.bin") == Save("/tmp/my conversation.bin")
    assert parse_command("RESTORE C:\\chats\\one two\r\n") == Restore("C:\\chats\\one two")
    assert parse_command("VRAM") == Vram(None)
    assert parse_command("VRAM 700") == Vram(700)
    assert parse_command("QUIT") == Quit()


def test_the_own_keys() -> None:
    gen = parse_command("BGEN 70000 9 logit_bias=5:-inf,7:1.5,9:-100 logprobs=0 stop_ids=11,12 1,2")
    assert gen == Gen(9, (1, 2), logit_bias=((5, -math.inf), (7, 1.5), (9, -100.0)), logprobs=0, stop_ids=(11, 12),
                      slot=70000)  # fmt: skip
    assert gen.format() == "BGEN 70000 9 logit_bias=5:-inf,7:1.5,9:-100.0 logprobs=0 stop_ids=11,12 1,2"


def test_an_absent_top_k_is_the_seeds_twenty_and_zero_keeps_every_token() -> None:
    assert parse_command("GEN 1 temperature=1 5") == Gen(1, (5,), temperature=1.0, top_k=20)
    assert parse_command("GEN 1 temperature=1 top_k=0 5") == Gen(1, (5,), temperature=1.0, top_k=0)


def test_penalties_over_the_whole_context_as_in_llama_cpp() -> None:
    assert parse_command("GEN 1 penalty_last_n=-1 5") == Gen(1, (5,), penalty_last_n=2**31 - 1)


@pytest.mark.parametrize("ids", ["1,2,3", "1 2 3", "1, 2 ,3", "  1,2 3  "])
def test_ids_are_separated_by_commas_or_spaces(ids: str) -> None:
    assert parse_command(f"GEN 4 {ids}") == Gen(4, (1, 2, 3))
    assert parse_command(f"BGEN 7 4 min_p=0.5 {ids}") == Gen(4, (1, 2, 3), min_p=0.5, slot=7)


EXPECTED = "expected: GEN <max_new> ..."
NO_SLOT = "BGEN: no such free slot (--batch N) or a bad max_new"
WHOLE = "is not a whole number from 0 to 2147483647"
NO_ID = "is not a token id (0 to 2147483647)"
SLOT = "needs a slot's number (0 to 2147483647), not"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", EXPECTED),
        ("HELLO", EXPECTED),
        ("GEN", EXPECTED),
        ("GEN many 1,2", EXPECTED),
        ("gen 5 1,2", EXPECTED),
        ("STOP now", EXPECTED),
        ("HANDOFF 1", EXPECTED),
        ("LANES 4", EXPECTED),
        ("QUIT 1", EXPECTED),
        ("MEMORY 1 2 3", EXPECTED),
        ("BGEN", NO_SLOT),
        ("BGEN x 5 1,2", NO_SLOT),
        ("BGEN -1 5 1,2", NO_SLOT),
        ("BGEN 2147483648 5 1,2", NO_SLOT),
        ("GENI 5 file 1,2", "this engine was started without --vision"),
        ("BGENI x 5 file 1,2", "this engine was started without --vision"),
        ("BSTOP", f"bad request: BSTOP {SLOT} ''"),
        ("BSTOP one", f"bad request: BSTOP {SLOT} 'one'"),
        ("BSTOP 3 now", f"bad request: BSTOP {SLOT} '3 now'"),
        ("BHANDOFF -1", f"bad request: BHANDOFF {SLOT} '-1'"),
        ("BYIELD 1.0", f"bad request: BYIELD {SLOT} '1.0'"),
        ("SAVE", "bad request: SAVE needs the path of a file"),
        ("SAVE   ", "bad request: SAVE needs the path of a file"),
        ("RESTORE ", "bad request: RESTORE needs the path of a file"),
        ("RESTORE a\0b", "bad request: the path of RESTORE holds a line break or a NUL: 'a\\x00b'"),
        ("VRAM -5", "bad request: VRAM takes a number of MiB (0 to 2147483647), not '-5'"),
        ("GEN 5", "bad request: the prompt is empty"),
        ("GEN 5 top_k=3", "bad request: the prompt is empty"),
        ("GEN 5 1,x,3", "bad request: 'x' is not a token id"),
        ("GEN 5 1,-2", "bad request: '-2' is not a token id"),
        ("GEN 5 1,1_0", "bad request: '1_0' is not a token id"),
        ("GEN 5 1 top_k=3", "bad request: 'top_k=3' is not a token id"),
        ("GEN 5 ١", "bad request: '١' is not a token id"),
        ("GEN 5 2147483648", "bad request: 2147483648 is not a token id: ids end at 2147483647"),
        ("GEN 5 temperature=nan 1", "bad request: temperature='nan' is not a number"),
        ("GEN 5 temperature=1_0 1", "bad request: temperature='1_0' is not a number"),
        ("GEN 5 temperature=1e39 1",
         "bad request: temperature='1e39' is not a number from -3.40282e+38 to 3.40282e+38"),
        ("GEN 5 top_p=1.5 1", "bad request: top_p='1.5' is not a number from 0 to 1"),
        ("GEN 5 min_p=-inf 1", "bad request: min_p='-inf' is not a number from 0 to 1"),
        ("GEN 5 top_k=-1 1", f"bad request: top_k='-1' {WHOLE}"),
        ("GEN 5 seed=18446744073709551616 1",
         "bad request: seed='18446744073709551616' is not a whole number from 0 to 18446744073709551615"),
        ("GEN 5 penalty_last_n=-2 1", f"bad request: penalty_last_n='-2' {WHOLE}"),
        ("GEN 5 penalty_repeat=0 1", "bad request: penalty_repeat='0' is not a number from 1e-06 to 1e+06"),
        ("GEN 5 penalty_freq=inf 1", "bad request: penalty_freq='inf' is not a number from -1e+06 to 1e+06"),
        ("GEN 5 penalty_present= 1", "bad request: penalty_present='' is not a number from -1e+06 to 1e+06"),
        ("GEN 5 logprobs=-1 1", f"bad request: logprobs='-1' {WHOLE}"),
        ("GEN 5 stop_ids=4,,5 1", f"bad request: stop_ids: '' {NO_ID}"),
        ("GEN 5 stop_ids=4294967296 1", f"bad request: stop_ids: '4294967296' {NO_ID}"),
        ("GEN 5 logit_bias=5 1", "bad request: logit_bias: '5' is not <token id>:<number>"),
        ("GEN 5 logit_bias=x:1 1", f"bad request: logit_bias: 'x' {NO_ID}"),
        ("GEN 5 logit_bias=5:inf 1",
         "bad request: logit_bias: 'inf' is neither a number from -1e+30 to 1e+30 nor -inf"),
        ("GEN 5 logit_bias=5:1,5:2 1", "bad request: logit_bias names token 5 twice"),
        ("GEN 5 ckpt=yes 1", "bad request: ckpt='yes' is neither 0 nor 1"),
        ("GEN 5 cvec=2 1", "bad request: cvec='2' is neither 0 nor 1"),
        ("GEN 5 pin=1.5 1", f"bad request: pin='1.5' {WHOLE}"),
    ],
)  # fmt: skip
def test_refusals_in_the_words_that_clients_match(line: str, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_command(line)
    assert str(caught.value) == reason
    assert caught.value.slot is None, "no request of a slot has ended"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("BGEN 7", NO_SLOT),
        ("BGEN 7 many 1,2", NO_SLOT),
        ("BGEN 7 5", "bad request: the prompt is empty"),
        ("BGEN 7 5 1,x", "bad request: 'x' is not a token id"),
        ("BGEN 7 5 top_k=x 1", f"bad request: top_k='x' {WHOLE}"),
        ("BGENI 7 5 file 1,2", "this engine was started without --vision"),
    ],
)
def test_a_refusal_of_a_slots_request_says_which_slot_is_free_again(line: str, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_command(line)
    assert (str(caught.value), caught.value.slot) == (reason, 7)


@pytest.mark.parametrize("path", ["", "  ", "two\nlines", "a\rb", "a\0b"])
def test_a_path_that_no_line_can_carry_is_refused_before_it_is_sent(path: str) -> None:
    with pytest.raises(BadRequest):
        Save(path)
    with pytest.raises(BadRequest):
        Restore(path)


def test_a_line_of_very_many_keys_is_read_in_a_time_that_grows_with_its_length() -> None:
    begun = time.process_time()
    gen = parse_command("GEN 5 " + "a=1 " * 300_000 + "1")
    assert gen == Gen(5, (1,))
    assert time.process_time() - begun < 10, "copying the rest of the line for each key takes minutes"


def test_the_protocol_needs_no_numpy() -> None:
    code = "import sys, strata.engine.protocol; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
