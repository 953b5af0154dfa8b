"""The door of the memory: what a request resumes from, who gives way for it, what is parked, and what the pool says."""

import resource

import pytest
from memory.memory_fakes import ORIGIN, SIZES, FakeState

from strata.memory import MAIN, NOWHERE, Marking, Memory, MemoryLimits, ParkingLimits, PoolFull, Why, marks
from strata.memory.keeper import Keeper

SYSTEM, ASK, ANSWER = list(range(300)), list(range(1000, 1060)), list(range(2000, 2080))


def memory_of(tokens=10_000, available=2**40, **limits):
    return Memory(MemoryLimits(tokens, **limits), SIZES, ORIGIN, FakeState, available=lambda: available)


def run(memory, prompt, answer=(), *, marks=None, **how):
    """A whole request; `marks` are positions and reasons. What it resumed from."""
    admission = memory.admit(prompt, **how)
    for at, why in sorted((marks or {}).items()):
        if at > admission.state.length:
            admission.state.feed(prompt[admission.state.length : at])
            memory.checkpoint(admission, why)
    admission.state.feed(prompt[admission.state.length :])
    for token in answer:
        assert memory.grow(admission, 1)
        admission.state.feed([token])
    assert admission.state.sound()
    memory.finish(admission)
    memory.check()
    return admission.reused


def test_a_conversation_goes_on_from_its_end():
    memory = memory_of()
    assert run(memory, SYSTEM + ASK, ANSWER) == 0
    assert run(memory, SYSTEM + ASK + ANSWER + ASK, ANSWER) == len(SYSTEM + ASK + ANSWER)


def test_an_edit_anywhere_and_history_without_thinking_resume_from_the_deepest_checkpoint():
    memory = memory_of()
    run(memory, SYSTEM + ASK, ANSWER, marks={350: Why.TURN})
    assert run(memory, SYSTEM + ASK[:50] + ANSWER[40:] + ASK) == 350, "the reply came back without its thinking"
    run(memory, SYSTEM + ASK + ANSWER + ASK, marks={430: Why.TURN})
    assert run(memory, SYSTEM + ASK + ANSWER[:-10] + [7]) == 350, "the edit is below the second turn"
    assert run(memory, SYSTEM[:-1] + [7]) == 0


def test_two_agents_share_the_end_of_their_system_prompt():
    memory = memory_of()
    run(memory, SYSTEM + ASK, ANSWER, marks={300: Why.ROOT})
    assert run(memory, SYSTEM + ANSWER) == 300
    assert run(memory, SYSTEM + [5] * 100) == 300


def test_a_third_agent_resumes_where_the_first_two_part():
    memory = memory_of()
    run(memory, [*range(700), *ASK])
    second = memory.admit([*range(700), *ANSWER])
    assert (second.reused, second.shared) == (0, 700)
    found = marks([*range(700), *ANSWER], second.reused, 0, Marking(None, 0, 0), shared=second.shared)
    memory.discard(second)
    run(memory, [*range(700), *ANSWER], marks=found)
    assert run(memory, [*range(700), 5, 5]) == 700


def test_a_one_shot_request_uses_what_is_there_keeps_nothing_and_evicts_no_state():
    memory = memory_of(state_bytes=200)  # two states
    run(memory, SYSTEM + ASK, ANSWER, marks={300: Why.TURN})
    before = memory.pool_line(0)
    for at in range(5):
        assert run(memory, SYSTEM + [at] * 90, marks={300: Why.ROOT, 350: Why.TURN}, keep=False) == 300
    assert run(memory, [9] * 700, marks={600: Why.ROOT}, keep=False) == 0, "no root either where it would cost a state"
    assert memory.pool_line(0) == before
    assert run(memory, SYSTEM + ASK + ANSWER + [1], keep=False) == len(SYSTEM + ASK + ANSWER), "the end is copied"
    assert run(memory, SYSTEM + ASK + ANSWER + [1]) == len(SYSTEM + ASK + ANSWER), "and still there"


def test_a_one_shot_requests_root_is_kept_where_there_is_room():
    memory = memory_of()
    run(memory, SYSTEM + ASK, marks={300: Why.ROOT}, keep=False)
    assert run(memory, SYSTEM + ANSWER) == 300


def test_a_place_keeps_one_conversation_where_requests_replace():
    memory = memory_of()
    run(memory, SYSTEM + ASK, ANSWER, place=MAIN, replaces=True)
    run(memory, ANSWER * 5, place=MAIN, replaces=True)
    assert run(memory, SYSTEM + ASK + ANSWER + ASK, place=MAIN, replaces=True) == 0, "it was replaced"
    run(memory, ASK * 5, place=0, replaces=True)
    assert run(memory, SYSTEM + ASK + ANSWER + ASK + [3], place=MAIN, replaces=True) == len(SYSTEM + ASK + ANSWER + ASK)
    assert run(memory, ASK * 5 + [1], place=1, replaces=True) == 300, "found in slot 0, goes on in slot 1"
    numbers = memory.pool_line(2)
    assert (numbers.main, numbers.slots) == (512, (0, 512))


def test_an_edit_of_the_replaced_conversation_keeps_the_checkpoints_on_its_path():
    memory = memory_of()
    first = SYSTEM + ASK
    run(memory, first, ANSWER, marks={200: Why.TURN, 350: Why.TURN}, place=MAIN, replaces=True)
    assert run(memory, first[:355] + [7], place=MAIN, replaces=True) == 350
    assert run(memory, first[:220] + [7], place=MAIN, replaces=True) == 200, "the chain moved along"
    assert run(memory, first + ANSWER + [7], place=MAIN, replaces=True) == 200, "the old end and what lay behind went"


def test_the_oldest_idle_conversation_gives_way_and_a_running_one_does_not():
    memory = memory_of(tokens=4 * 256)
    run(memory, [1] * 300)
    run(memory, [2] * 200)
    lane = memory.admit([3] * 200)
    assert memory.pool_line(0).free == 0
    running = memory.admit([4] * 300)
    memory.check()
    with pytest.raises(PoolFull, match=r"^KV pool full: the decoding lanes hold all 1024 cells of --kv-pool-tokens"):
        memory.admit([5] * 300)
    memory.check()
    for admission in (lane, running):
        memory.finish(admission)
    assert run(memory, [2] * 201) == 200, "nobody was asked for a need that could not be covered"
    assert run(memory, [1] * 301) == 0


def test_a_lane_that_cannot_grow_ends_and_what_it_has_is_kept():
    memory = memory_of(tokens=2 * 256)
    lane = memory.admit([1] * 200)
    other = memory.admit([2] * 200)
    lane.state.feed([1] * 200)
    assert memory.grow(lane, 50)
    lane.state.feed([3] * 50)
    assert not memory.grow(lane, 10)
    assert memory.grow(lane, 6), "up to the end of its chunk it may go on"
    memory.finish(lane)
    memory.finish(other)
    assert run(memory, [1] * 200 + [3] * 50 + [4]) == 250


def test_a_read_that_gave_way_goes_on_and_gives_way_last():
    memory = memory_of(tokens=4 * 256)
    lane = memory.admit([1] * 400)
    lane.state.feed([1] * 256)
    memory.finish(lane, gave_way=True)
    run(memory, [2] * 200)
    run(memory, [3] * 600)
    assert run(memory, [1] * 400) == 256, "younger cached conversations gave way first"


def test_a_read_that_gave_way_outlives_the_limit_of_idle_conversations():
    memory = memory_of(conversations=2)
    lane = memory.admit([1] * 400)
    lane.state.feed([1] * 256)
    memory.finish(lane, gave_way=True)
    for at in range(5):
        run(memory, [2, at] * 50)
    assert run(memory, [1] * 400) == 256


def test_states_beyond_their_budget_go_by_what_they_would_cost_to_read_again():
    memory = memory_of(state_bytes=300)
    run(memory, [9] * 2500)
    for at in range(6):
        run(memory, [at] * 100)
    assert len(memory._books.tree) == 3
    assert run(memory, [9] * 2501, keep=False) == 2500, "the oldest, and the dearest"
    assert run(memory, [0] * 101, keep=False) == 0


def test_pins_stay_longest():
    memory = memory_of(state_bytes=300)
    run(memory, SYSTEM + ASK, marks={290: Why.PIN})
    for at in range(6):
        run(memory, [at] * 100)
    assert run(memory, SYSTEM + [7]) == 290


def test_a_conversation_has_so_many_checkpoints():
    memory = memory_of(checkpoints=2)
    run(memory, [1] * 700, marks=dict.fromkeys([100, 200, 300, 400], Why.TURN) | {50: Why.ROOT})
    assert run(memory, [1] * 399 + [2]) == 200, "300 was cheaper to rebuild, from 200"
    assert run(memory, [1] * 90 + [2]) == 50, "roots are not counted"
    nothing = memory_of(checkpoints=0)
    run(nothing, [1] * 700, marks={100: Why.TURN})
    assert run(nothing, [1] * 200 + [2]) == 0
    assert run(nothing, [1] * 701) == 700, "an end is no checkpoint"


def test_what_a_failed_request_made_is_not_kept_and_what_it_took_is_gone():
    memory = memory_of()
    run(memory, [1] * 300, marks={200: Why.TURN})
    lane = memory.admit([1] * 500)
    assert lane.reused == 300
    lane.state.feed([1] * 100)
    memory.checkpoint(lane, Why.TURN)
    memory.discard(lane)
    memory.check()
    assert run(memory, [1] * 450) == 200


def test_a_thousand_short_conversations_hold_no_more_than_the_limits():
    memory = memory_of(tokens=10**6, conversations=8)
    for at in range(1000):
        run(memory, [at] * 60, [5] * 5, marks={50: Why.TURN})
    numbers = memory.pool_line(0)
    assert numbers.cells - numbers.free == 8 * 2 * 256
    assert len(memory._books.tree) == 16
    assert len(memory._books.conversations) == 8


def test_the_pool_line_counts_what_each_place_holds():
    memory = memory_of(tokens=4096)
    run(memory, [1] * 300, place=MAIN, marks={100: Why.TURN})
    lane = memory.admit([2] * 600, place=1)
    numbers = memory.pool_line(2)
    assert (numbers.cells, numbers.main, numbers.slots) == (4096, 768, (0, 768))
    assert numbers.free == 4096 - 768 - 768
    memory.discard(lane)
    assert memory.pool_line(2).slots == (0, 0)


# --- parking


def parking(**changes):
    return ParkingLimits(**({"ram_bytes": 10**6, "min_free_bytes": 0} | changes))


@pytest.fixture
def lines(monkeypatch):
    """Sentences of the log."""
    said = []
    for module in ("keeper", "parking", "manager"):
        log = __import__(f"strata.memory.{module}", fromlist=["log"]).log
        for level in ("info", "warning"):
            monkeypatch.setattr(log, level, lambda text, *values: said.append(text % values))
    return said


def test_a_replaced_conversation_is_parked_and_comes_back_with_its_checkpoints(lines):
    memory = memory_of(parking=parking())
    run(memory, SYSTEM + ASK, ANSWER, marks={350: Why.TURN}, place=MAIN, replaces=True)
    run(memory, ANSWER * 5, place=MAIN, replaces=True)
    assert memory.pool_line(0).main == 512
    assert any(line.startswith("parked 440 tokens and 1 checkpoints") for line in lines)
    assert int(lines[-1].rpartition("reused_kv_bytes=")[2]) > 0
    assert run(memory, SYSTEM + ASK + ANSWER + [1], place=MAIN, replaces=True) == 440
    assert any(line.startswith("restored 440 tokens") for line in lines)
    assert run(memory, SYSTEM + ASK[:50] + [1], place=MAIN, replaces=True) == 350


def test_a_checkpoint_of_a_parked_conversation_is_lent():
    memory = memory_of(parking=parking())
    run(memory, SYSTEM + ASK, ANSWER, marks={350: Why.TURN}, place=MAIN, replaces=True)
    run(memory, ANSWER * 5, place=MAIN, replaces=True)
    assert run(memory, SYSTEM + ASK[:50] + [1], place=0) == 350
    assert run(memory, SYSTEM + ASK + ANSWER + [1], place=1) == 440


def test_parked_conversations_survive_a_restart(tmp_path, lines):
    limits = {"parking": parking(directory=tmp_path / "spill", slots=1)}
    memory = memory_of(**limits)
    for at in range(3):
        run(memory, [at] * 500, [7] * 9, marks={300: Why.TURN})
    memory.close()
    again = memory_of(**limits)
    assert lines[-1].startswith("3 parked conversations found in")
    again.check()
    assert run(again, [1] * 500 + [7] * 10) == 509
    assert run(again, [2] * 301) == 300
    again.close()
    third = memory_of(**limits)
    assert run(third, [1] * 500 + [7] * 11) == 510, "the file of the earlier turn gave way to the later one's"
    lengths = sorted(path.name.partition("-")[0] for path in (tmp_path / "spill").iterdir())
    assert lengths == ["301", "509", "509", "510"]


def test_a_damaged_file_loses_that_conversation_only_and_says_so(tmp_path, lines):
    limits = {"parking": parking(directory=tmp_path, ram_bytes=0)}
    memory = memory_of(**limits)
    for at in range(2):
        run(memory, [at] * 500)
    memory.close()
    again = memory_of(**limits)
    victim = next(path for path in tmp_path.iterdir() if b"\0\0" in path.read_bytes())
    data = bytearray(victim.read_bytes())
    data[data.find(b"layers.0.k") - 2000 : data.find(b"layers.0.k") - 1990] = b"\xff" * 10
    victim.write_bytes(bytes(data))
    found = [run(again, [at] * 501) for at in range(2)]
    assert sorted(found) == [0, 500]
    (said,) = [line for line in lines if "lost" in line]
    assert said.startswith(f"a parked conversation is lost: {victim} is damaged: the checksum of section ")
    assert not victim.exists()


def test_a_full_disk_loses_that_conversation_only_and_says_so(tmp_path, lines):
    memory = memory_of(parking=parking(directory=tmp_path, slots=1))
    run(memory, [1] * 3000)
    run(memory, [2] * 300)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limits[1]))
    try:
        memory.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (said,) = [line for line in lines if "lost" in line]
    assert said.endswith("cannot be written: File too large.")
    again = memory_of(parking=parking(directory=tmp_path))
    assert (run(again, [1] * 3001), run(again, [2] * 301)) == (0, 300)


def test_files_of_another_model_are_left_alone(tmp_path, lines):
    memory = memory_of(parking=parking(directory=tmp_path))
    run(memory, [1] * 500)
    memory.close()
    (path,) = tmp_path.iterdir()
    other = Memory(MemoryLimits(4096, parking=parking(directory=tmp_path)), SIZES,
                   ORIGIN.__class__("model-2", "bf16", "cpu"), FakeState, available=lambda: 2**40)  # fmt: skip
    assert run(other, [1] * 501) == 0
    assert path.exists()
    assert "another model" in lines[-1]


@pytest.mark.parametrize("limit", ["ram", "slots", "free"])
def test_the_longest_unused_leaves_ram_first(limit, lines):
    what = {"ram": {"ram_bytes": 6_000}, "slots": {"slots": 2}, "free": {"min_free_bytes": 2**50}}[limit]
    memory = memory_of(parking=parking(**what), conversations=1)
    for at in range(4):
        run(memory, [at] * 200)
    assert run(memory, [2] * 201, keep=False) == (0 if limit == "free" else 200)
    assert run(memory, [0] * 201, keep=False) == 0, "three were parked, the first gave way"


def test_a_session_file_is_the_conversation_of_the_control_lines(tmp_path):
    memory = memory_of()
    run(memory, SYSTEM + ASK, ANSWER, marks={350: Why.TURN}, place=MAIN, replaces=True)
    tokens, size = memory.save(tmp_path / "session")
    assert (tokens, size) == (440, (tmp_path / "session").stat().st_size)
    fresh = memory_of()
    assert fresh.restore(tmp_path / "session") == (440, size)
    fresh.check()
    assert run(fresh, SYSTEM + ASK + ANSWER + [1], place=MAIN) == 440
    assert run(fresh, SYSTEM + ASK[:50] + [1], place=0) == 350


def test_restore_is_refused_where_the_lanes_hold_the_pool(tmp_path):
    memory = memory_of(tokens=1024)
    run(memory, [1] * 600, place=MAIN)
    memory.save(tmp_path / "session")
    lanes = [memory.admit([2] * 300), memory.admit([3] * 100)]
    with pytest.raises(PoolFull, match="KV pool full"):
        memory.restore(tmp_path / "session")
    memory.check()
    for lane in lanes:
        memory.discard(lane)
    assert memory.restore(tmp_path / "session")[0] == 600
    assert run(memory, [1] * 601, place=MAIN) == 600


def test_nothing_is_copied_or_parked_for_a_request_that_is_refused(monkeypatch):
    memory = memory_of(tokens=1024, parking=parking())
    run(memory, [1] * 300)
    lane = memory.admit([2] * 300)
    monkeypatch.setattr(Keeper, "give_way", lambda *_: pytest.fail("somebody was asked"))
    with pytest.raises(PoolFull):
        memory.admit([1] * 900, place=NOWHERE)
    memory.discard(lane)
