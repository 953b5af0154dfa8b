"""Many requests in one engine: every conversation's tokens are those of `engine_fakes.answer`, which knows one only."""

import threading
import time

import pytest
from engine_fakes import EOS, NANS, RAISES, TURN, answer
from engine_talk import Talk, bgen, gen

from strata.arithmetic.penalties import Penalties, Recent, penalized
from strata.arithmetic.sampling import Sampling, sample
from strata.engine.protocol import LaneDone
from strata.memory import Marking

PROMPTS = [[TURN, 3, 1, 4, n, 5, TURN, 9, n % 7, 6] + [n] * (3 * n) for n in range(12)]


def by_lane(lines: list[str]) -> dict[int, list[int]]:
    """Tokens of every lane or slot."""
    tokens: dict[int, list[int]] = {}
    for line in lines:
        if line.startswith("BT "):
            _, lane, token = line.split()
            tokens.setdefault(int(lane), []).append(int(token))
    return tokens


def words(lines: list[str], word: str) -> list[list[str]]:
    return [line.split()[1:] for line in lines if line.split()[0] == word]


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("lookup", [0, 4])
@pytest.mark.parametrize("chunk", [3, None])
def test_twelve_lanes_beside_each_other_are_each_as_alone(drafts: int, lookup: int, chunk: int | None) -> None:
    talk = Talk(chunk=chunk, drafts=drafts, lookup=lookup)
    lines = talk.say("LANES", *(bgen(100 + n, prompt, 20) for n, prompt in enumerate(PROMPTS)))
    got = by_lane(lines)
    assert got == {100 + n: answer(prompt, 20) for n, prompt in enumerate(PROMPTS)}
    assert max(talk.model.lanes) > 2, "windows are shared"
    assert len(words(lines, "BDONE")) == len(PROMPTS)
    offered = sum(int(fields[5]) for fields in words(lines, "BDONE"))
    stood = sum(int(fields[4]) for fields in words(lines, "BDONE"))
    assert (offered > stood > 0) == (drafts > 0)


def test_drawn_and_penalized_lanes_are_each_as_alone() -> None:
    sampling = Sampling(0.9, 0.95, 40, 0.01, 7)
    penalties = Penalties(6, 1.3, 0.2, 0.4, {5: 2.0, 8: float("-inf")})

    def draw(prompt: list[int]) -> list[int]:
        tokens = list(prompt)

        def one(logits: object, position: int) -> int:
            row = penalized(logits, penalties, Recent(6, tokens).counts)
            tokens.append(sample(row, sampling, choice=0, position=position))
            return tokens[-1]

        return answer(prompt, 20, draw=one)

    keys = (
        "temperature=0.9 top_p=0.95 top_k=40 min_p=0.01 seed=7 penalty_last_n=6 penalty_repeat=1.3 penalty_freq=0.2 "
        "penalty_present=0.4 logit_bias=5:2.0,8:-inf"
    )
    expected = {n: draw(prompt) for n, prompt in enumerate(PROMPTS)}
    assert expected != {n: answer(prompt, 20) for n, prompt in enumerate(PROMPTS)}
    for drafts in (0, 2):
        talk = Talk(drafts=drafts, lookup=3)
        assert by_lane(talk.say("LANES", *(bgen(n, p, 20, keys) for n, p in enumerate(PROMPTS)))) == expected


def test_stop_ids_and_log_probabilities() -> None:
    prompt = PROMPTS[3]
    expected = answer(prompt, 9)
    stop = expected[4]
    talk = Talk(drafts=2)
    lines = talk.say("LANES", bgen(1, prompt, 9, f"stop_ids={stop} logprobs=2"))
    assert by_lane(lines)[1] == expected[: expected.index(stop) + 1]
    assert words(lines, "BDONE")[0][2] == "stop"
    chances = words(lines, "BLP")
    assert len(chances) == len(by_lane(lines)[1])
    for fields, token in zip(chances, by_lane(lines)[1], strict=True):
        best, value = fields[2].split(":")
        assert (int(best), value) == (token, fields[1]), "greedy draws the most likely"
        assert float(fields[1]) <= 0


def test_a_lane_says_what_it_resumed_from_and_read() -> None:
    talk = Talk(chunk=16)
    first = talk.say("LANES", bgen(7, PROMPTS[2], 4))
    assert first[0] == "BRESUME 7 0"
    prompt = [*PROMPTS[2], *answer(PROMPTS[2], 4), TURN, 8]
    lines = talk.say(bgen(8, prompt, 2))
    assert lines[0] == f"BRESUME 8 {len(prompt) - 3}"
    assert by_lane(lines)[8] == answer(prompt, 2)
    (done,) = words(lines, "BDONE")
    assert done == ["8", "2", "length", "250.0", "0", "0", str(len(prompt)), "500.0", str(len(prompt) - 3), "3"]
    assert words(lines, "POOL")[-1][2:] == ["0", "-"]


def test_a_lane_that_is_stopped_ends_and_the_others_go_on() -> None:
    talk = Talk(chunk=64, eos_ids=())
    talk.at_window[6] = ["BSTOP 1"]
    lines = talk.say("LANES", *(bgen(n, PROMPTS[n], 20) for n in range(3)))
    got = by_lane(lines)
    expected = {n: answer(PROMPTS[n], 20, eos=()) for n in range(3)}
    assert 0 < len(got[1]) < 20
    assert got == expected | {1: expected[1][: len(got[1])]}
    assert {fields[0]: fields[2] for fields in words(lines, "BDONE")} == {"0": "length", "1": "cancel", "2": "length"}


@pytest.mark.parametrize(
    ("line", "answered"),
    [
        ("GEN 3 1,2", "ERR expected: BGEN <lane> <max_new> ..."),
        ("BGEN 5 3 1,64", "BERR 5 bad request: token id 64 is outside the vocabulary of 64"),
        ("BGEN 5 0 1,2", "BERR 5 bad request: max_new must be at least 1, not 0"),
        ("BGEN 5 3 logit_bias=64:1.0 1,2",
         "BERR 5 bad request: logit_bias names token 64, outside the vocabulary of 64"),
        ("BGEN 5 3 stop_ids=99 1,2", "BERR 5 bad request: stop_ids names token 99, outside the vocabulary of 64"),
        ("BGEN 5 3 temperature=hot 1,2", "BERR 5 bad request: temperature='hot' is not a number"),
        ("BGEN 5 3 " + "1," * 254 + "1", "BERR 5 prompt (255 tokens) + max_new (1) exceeds the context (256)"),
        ("SAVE /tmp/x", "SERR invalid 0 a client of lanes has no conversation on the control lines"),
        ("nonsense", "ERR expected: GEN <max_new> ..."),
        ("BSTOP 9", None),
        ("BYIELD 9", None),
        ("STOP", None),
    ],
)  # fmt: skip
def test_what_lanes_refuse_leaves_other_lanes_alone(line: str, answered: str | None) -> None:
    talk = Talk()
    lines = talk.say("LANES", bgen(1, PROMPTS[0], 5), line)
    assert by_lane(lines) == {1: answer(PROMPTS[0], 5)}
    assert [one for one in lines if "ERR" in one.split()[0]] == ([] if answered is None else [answered])


def test_a_lane_in_use_is_refused_without_harm() -> None:
    lines = Talk().say("LANES", bgen(1, PROMPTS[0], 5), bgen(1, PROMPTS[1], 5))
    assert by_lane(lines) == {1: answer(PROMPTS[0], 5)}
    assert "ERR lane 1 has a request already" in lines


def test_a_bad_row_ends_its_lane_only_and_a_failed_window_those_in_it() -> None:
    talk = Talk(chunk=64)
    lines = talk.say("LANES", bgen(1, PROMPTS[0], 6), bgen(2, [1, NANS, 4], 6))
    assert by_lane(lines) == {1: answer(PROMPTS[0], 6)}
    assert [line for line in lines if line.startswith("BERR")][0].startswith("BERR 2 The model gave a NaN logit")
    lines = talk.say(bgen(3, [1, RAISES, 4], 6))
    assert lines[1].startswith("BERR 3 internal error: ValueError('the fake")
    assert by_lane(talk.say(bgen(3, PROMPTS[1], 6))) == {3: answer(PROMPTS[1], 6)}


def test_more_requests_than_lanes_wait_in_order() -> None:
    talk = Talk(lanes=3, chunk=64)
    talk.at_window[2] = ["BSTOP 8"]  # it waits still
    lines = talk.say("LANES", *(bgen(n, PROMPTS[n], 5) for n in range(10)))
    got = by_lane(lines)
    assert got == {n: answer(PROMPTS[n], 5) for n in range(10) if n != 8}
    assert max(talk.model.lanes) == 3
    begun = [int(fields[0]) for fields in words(lines, "BRESUME")]
    assert begun == [n for n in range(10) if n != 8]
    assert ["8", "0", "cancel"] in [fields[:3] for fields in words(lines, "BDONE")]


def test_the_engine_goes_on_when_all_lanes_end_while_others_wait() -> None:
    """Nothing else may come for hours: what waits must not wait for a line."""
    talk = Talk(lanes=1, chunk=64, eos_ids=())
    talk.inbox.put("LANES")
    talk.inbox.put(bgen(1, PROMPTS[1], 3))
    talk.inbox.put(bgen(2, PROMPTS[2], 3))
    begun = threading.Thread(target=talk.engine.run, args=(talk.inbox,))
    begun.start()
    end = time.monotonic() + 20
    while sum(isinstance(report, LaneDone) for report in list(talk.reports)) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    told = [report.slot for report in talk.reports if isinstance(report, LaneDone)]
    talk.inbox.put("QUIT")
    begun.join(20)
    assert told == [1, 2]


def test_a_hair_above_zero_is_greedy_and_no_error() -> None:
    assert Talk().ask(PROMPTS[2], 8, "temperature=1e-40 seed=3") == answer(PROMPTS[2], 8)


# ----------------------------------------------------------------------------- clients that know slots only


def test_transcript_of_slots() -> None:
    """One request at a time on the control lines; slots decode beside it."""
    talk = Talk(chunk=64, slots=2, eos_ids=(), marking=Marking(None, 0, 0))
    a, b = PROMPTS[0], PROMPTS[1]
    lines = talk.say(bgen(0, a, 3), bgen(1, b, 2), gen([5, 6], 1))
    first, second = answer(a, 3, eos=()), answer(b, 2, eos=())
    told = [line.split() for line in lines if not line.startswith(("BT", "BDONE"))]
    assert [" ".join(fields[:3]) for fields in told] == [
        "PP 10 10",
        f"T {first[0]}",
        "DONE 1 10",
        "BADM 0 1",
        "PP 13 13",
        f"T {second[0]}",
        "DONE 1 13",
        "BADM 1 1",
        "PP 2 2",
        f"T {answer([5, 6], 1)[0]}",
        "DONE 1 2",
    ]
    ends = [" ".join(fields[5:]) for fields in told if "DONE" in fields]
    assert ends == [f"length 0 0 0 0 0 0 0 0.0 {count} 0" for count in (10, 13, 2)]
    assert by_lane(lines) == {0: first[1:], 1: second[1:]}
    assert lines.index("BADM 0 1") < lines.index(f"BT 0 {first[1]}")
    assert {" ".join(fields[:3]) for fields in words(lines, "BDONE")} == {"0 3 length", "1 2 length"}


def test_no_slot_token_comes_before_its_admission_and_all_are_as_alone() -> None:
    talk = Talk(chunk=7, slots=12, drafts=2)
    lines = talk.say(*(bgen(n, prompt, 15) for n, prompt in enumerate(PROMPTS)))
    admitted: list[int] = []
    tokens: dict[int, list[int]] = {}
    for line in lines:
        word, *fields = line.split()
        if word == "T":
            tokens[len(admitted)] = [int(fields[0])]
        elif word == "BADM":
            admitted.append(int(fields[0]))
            assert fields[1] == ("0" if tokens[admitted[-1]][-1] == EOS else "1")
        elif word == "BT":
            assert int(fields[0]) in admitted
            tokens[int(fields[0])].append(int(fields[1]))
    assert tokens == {n: answer(prompt, 15) for n, prompt in enumerate(PROMPTS)}


def test_an_admission_of_one_token_has_ended() -> None:
    lines = Talk(slots=1, chunk=64).say(bgen(0, [4, 5], 1))
    assert lines[-2:] == ["DONE 1 2 250.0 0.0 length 0 0 0 0 0 0 0 0.0 2 0", "BADM 0 0"]


def test_slots_that_are_not_there_or_not_free() -> None:
    talk = Talk(slots=2, chunk=64)
    refused = "ERR BGEN: no such free slot (--batch N) or a bad max_new"
    assert talk.say(bgen(2, [4, 5])) == [refused]
    assert talk.say(bgen(0, [4, 5], 0)) == [refused]
    assert talk.say("BGEN x 5 1,2") == [refused]
    assert talk.say(bgen(0, [4, 5], 30), bgen(0, [6, 7], 5)).count(refused) == 1
    assert Talk().say(bgen(0, [4, 5])) == [refused]


def test_bstop_ends_a_slot_and_solo_goes_on_with_its_tokens() -> None:
    talk = Talk(slots=2, chunk=64)
    talk.at_window[5] = ["BSTOP 0"]
    lines = talk.say(bgen(0, PROMPTS[2], 30))
    got = [int(fields[0]) for fields in words(lines, "T")] + by_lane(lines)[0]
    assert words(lines, "BDONE")[0][:3] == ["0", str(len(got)), "cancel"]
    rest = talk.ask([*PROMPTS[2], *got], 30 - len(got))
    assert got + rest == answer(PROMPTS[2], 30)
    assert talk.resumed == len(PROMPTS[2]) + len(got) - 1


def test_stop_means_the_control_lines_and_never_a_slot() -> None:
    talk = Talk(slots=2, chunk=64)
    talk.at_window[4] = ["STOP"]
    lines = talk.say(bgen(0, PROMPTS[1], 12))
    assert [int(fields[0]) for fields in words(lines, "T")] + by_lane(lines)[0] == answer(PROMPTS[1], 12)


def test_a_read_gives_way_and_goes_on_later() -> None:
    long = [TURN, *[n % 40 for n in range(180)]]
    talk = Talk(slots=3, chunk=20, eos_ids=())
    talk.at_window[2] = ["BYIELD 2"]
    lines = talk.say(bgen(2, long, 6), bgen(1, PROMPTS[0], 6))
    at = lines.index("YIELDED 2 40")
    assert lines[at + 1].startswith("DONE 0 181 500.0 0.0 cancel")
    assert lines[at + 2] == "BADM 2 0"
    talk.at_window = {}
    lines = talk.say(bgen(2, long, 6))
    assert lines[:2] == ["RESUME 40", "REUSED 40"]
    assert [int(fields[0]) for fields in words(lines, "T")] + by_lane(lines)[2] == answer(long, 6, eos=())
    talk.at_window = {1: ["BYIELD 0"]}
    lines = talk.say(gen([*long[:50], 7, *long], 6))
    assert lines[-2].startswith("YIELDED 0 ")
    assert lines[-1].split()[5] == "cancel"
    assert "BADM" not in " ".join(lines)


@pytest.mark.parametrize(("slot", "line"), [(1, bgen(2, [7] * 150, 3)), (9, gen([7] * 150, 3)), (0, gen([7] * 60, 3))])
def test_a_yield_that_cannot_be_is_no_harm(slot: int, line: str) -> None:
    talk = Talk(slots=3, chunk=20)
    talk.at_window[1] = [f"BYIELD {slot}"]
    lines = talk.say(line)
    assert not words(lines, "YIELDED")
    assert words(lines, "DONE")[0][4] == "length"


def test_a_solo_conversation_that_another_replaced_is_not_kept() -> None:
    talk = Talk(chunk=64)
    talk.ask(PROMPTS[5], 4)
    talk.ask(PROMPTS[6], 4)
    talk.ask(PROMPTS[5], 4)
    assert talk.resumed == 0
    talk = Talk(chunk=64)
    talk.say("LANES", bgen(1, PROMPTS[5], 4))
    talk.say(bgen(2, PROMPTS[6], 4))
    lines = talk.say(bgen(3, PROMPTS[5], 4))
    assert int(words(lines, "BRESUME")[0][1]) > 0, "a client of lanes is a client of the memory"


def test_a_follow_up_in_a_slot_resumes_from_any_place() -> None:
    talk = Talk(slots=2, chunk=64)
    lines = talk.say(bgen(0, PROMPTS[4], 5))
    got = answer(PROMPTS[4], 5)
    prompt = [*PROMPTS[4], *got, TURN, 2]
    lines = talk.say(bgen(1, prompt, 3))
    assert lines[0] == f"RESUME {len(prompt) - 3}"
    assert [int(f[0]) for f in words(lines, "T")] + by_lane(lines)[1] == answer(prompt, 3)


# ----------------------------------------------------------------------------- the pool


def test_a_full_pool_refuses_and_ends_as_it_should() -> None:
    talk = Talk(context=1024, pool=1024, slots=3, chunk=512, eos_ids=(), tell_pool=True)
    lines = talk.say(bgen(0, [3] * 300, 700), bgen(1, [4] * 200, 700), bgen(2, [5] * 300, 5))
    refused = "KV pool full: the decoding lanes hold all 1024 cells of --kv-pool-tokens; try again when one finishes"
    assert [f"ERR {refused}"] == [line for line in lines if line.startswith("ERR")]
    finishes = {fields[0]: fields[2] for fields in words(lines, "BDONE")}
    assert "pool" in finishes.values()
    got = by_lane(lines)
    for slot, prompt in ((0, [3] * 300), (1, [4] * 200)):
        assert got[slot] == answer(prompt, 700, eos=())[1 : 1 + len(got[slot])]
    last = words(lines, "POOL")[-1]
    assert int(last[0]) == 1024
    assert int(last[1]) + int(last[2]) + sum(map(int, last[3].split(","))) == 1024


def test_one_shot_requests_keep_nothing() -> None:
    talk = Talk(chunk=64)
    talk.ask(PROMPTS[3], 4)
    states = len(list(talk.memory._books.tree))
    talk.ask(PROMPTS[8], 4, "ckpt=0")
    assert len(list(talk.memory._books.tree)) == states
    assert talk.ask(PROMPTS[3], 4) == answer(PROMPTS[3], 4)
    assert talk.resumed == 6


