"""SAVE and RESTORE of the control lines' conversation, what is said where they fail, and VRAM."""

from pathlib import Path

import pytest
from engine_fakes import TURN, answer
from engine_talk import Talk, bgen, gen

PROMPT = [TURN, 3, 1, 4, 1, 5, TURN, 9, 2, 6]


def test_a_saved_conversation_goes_on_in_another_engine(tmp_path: Path) -> None:
    path = tmp_path / "with a space.session"
    talk = Talk(eos_ids=(), chunk=64)
    got = talk.ask(PROMPT, 5)
    (saved,) = talk.say(f"SAVE {path}")
    word, tokens, size, _ = saved.split()
    assert (word, int(tokens), int(size)) == ("SAVED", len(PROMPT) + 4, path.stat().st_size)
    other = Talk(eos_ids=(), chunk=64)
    assert other.say(f"RESTORE {path}")[0].split()[:3] == ["RESTORED", tokens, size]
    prompt = [*PROMPT, *got, TURN, 7]
    assert other.ask(prompt, 5) == answer(prompt, 5, eos=())
    assert other.resumed == len(PROMPT) + 4
    assert other.say(f"RESTORE {path}")[0].split()[0] == "RESTORED"
    edited = [*PROMPT, 8, 8]
    assert other.ask(edited, 5) == answer(edited, 5, eos=())
    assert other.resumed == 6, "its checkpoint at the last turn came with it"


def test_saving_waits_for_the_request_on_the_control_lines_and_not_for_slots(tmp_path: Path) -> None:
    talk = Talk(eos_ids=(), chunk=64, slots=1)
    lines = talk.say(bgen(0, PROMPT, 30), gen([5, 6, 7], 3), f"SAVE {tmp_path / 'x'}")
    words = [line.split()[0] for line in lines]
    assert lines[words.index("SAVED")].startswith("SAVED 5 ")
    assert words.index("SAVED") > [at for at, word in enumerate(words) if word == "DONE"][1]
    assert words.index("SAVED") < words.index("BDONE")


@pytest.mark.parametrize(
    ("line", "answered"),
    [
        ("SAVE {tmp}/x", "SERR invalid 0 There is no conversation to save."),
        ("RESTORE {tmp}/missing", "SERR io 0 "),
        ("RESTORE {tmp}/noise", "SERR invalid 0 "),
        ("SAVE {tmp}/no/such/folder/x", "SERR io 0 "),
        ("SAVE", "ERR bad request: SAVE needs the path of a file"),
        ("VRAM", "VRAM reserve_mib=0 expert_slots=0 expert_slots_full=0 expert_cache_mib=0 expert_cache_full_mib=0 "
                 "vram_free_mib=0 prompt_chunk=64"),
        ("VRAM 500", "VRAM reserve_mib=0 "),
    ],
)  # fmt: skip
def test_what_fails_says_why_and_loses_nothing(tmp_path: Path, line: str, answered: str) -> None:
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 40)
    talk = Talk(eos_ids=(), chunk=64)
    if "folder" in line:
        talk.ask(PROMPT, 3)
    (told,) = talk.say(line.format(tmp=tmp_path))
    assert told.startswith(answered)
    before = talk.ask(PROMPT, 3)
    (told,) = talk.say(f"RESTORE {tmp_path / 'noise'}")
    assert told.startswith("SERR invalid 0 ")
    assert talk.ask([*PROMPT, *before, 4], 3) == answer([*PROMPT, *before, 4], 3, eos=())
    assert talk.resumed == len(PROMPT) + 2, "a file that cannot be read takes nothing away"
