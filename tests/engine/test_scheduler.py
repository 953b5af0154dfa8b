"""The scheduler by simulation: random lanes are run to their ends, and what must hold in every window is asserted."""

from hypothesis import given
from hypothesis import strategies as st

from strata.engine.scheduler import SMALLEST_CHUNK, Demand, Turn, adapted_chunk, next_window

LANES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 90), st.integers(1, 12), st.integers(0, 89)), min_size=1, max_size=6
)


@given(LANES, st.integers(1, 40))
def test_every_lane_reads_its_prompt_in_order_and_decodes_to_its_end(
    lanes: list[tuple[int, int, int, int]], chunk: int
) -> None:
    """A lane: the window it arrives at, its prompt, how many tokens it draws, and a position where it must pause."""
    held = dict.fromkeys(range(len(lanes)), 0)
    known = {n: prompt for n, (_, prompt, _, _) in enumerate(lanes)}
    paused: set[int] = set()
    for window in range(2000):
        alive = [
            n for n, (arrival, prompt, draws, _) in enumerate(lanes) if arrival <= window and known[n] < prompt + draws
        ]
        if not alive and all(arrival <= window for arrival, _, _, _ in lanes):
            break
        demands = []
        for n in sorted(alive, key=lambda n: (lanes[n][0], n)):
            mark = lanes[n][3] if held[n] < lanes[n][3] < lanes[n][1] else known[n]
            demands.append(Demand(n, held[n], known[n], mark, reading=held[n] < lanes[n][1]))
        turns = next_window(demands, chunk)
        assert len({turn.lane for turn in turns}) == len(turns)
        decoding = {d.lane for d in demands if not d.reading}
        readers = [d.lane for d in demands if d.reading]
        moved = {turn.lane for turn in turns}
        assert decoding <= moved, "a decoding lane was left out"
        assert not readers or readers[0] in moved, "the oldest reader was left out"
        assert sum(turn.count for turn in turns if turn.lane not in decoding) <= chunk
        for turn in turns:
            assert turn.count >= 1
            held[turn.lane] += turn.count
            assert held[turn.lane] <= known[turn.lane]
            if held[turn.lane] == lanes[turn.lane][3]:
                paused.add(turn.lane)
            assert turn.draws == (held[turn.lane] == known[turn.lane])
            known[turn.lane] += turn.draws
    assert all(known[n] == prompt + draws for n, (_, prompt, draws, _) in enumerate(lanes)), "a lane starved"
    assert paused >= {n for n, (_, prompt, _, pause) in enumerate(lanes) if 0 < pause < prompt}, (
        "a pause was passed over"
    )


def test_the_budget_goes_to_readers_in_order_of_arrival() -> None:
    demands = [
        Demand(7, 0, 30, 30, True),
        Demand(3, 40, 41, 41, False),
        Demand(5, 0, 90, 90, True),
        Demand(6, 0, 9, 9, True),
    ]
    assert next_window(demands, 32) == [Turn(7, 30, True), Turn(3, 1, True), Turn(5, 2, False)]
    assert next_window(demands, 10) == [Turn(7, 10, False), Turn(3, 1, True)], "readers leave no decoding lane out"


def test_an_adapted_chunk_finds_windows_of_the_wanted_time() -> None:
    for rows_a_second in (5.0, 100.0, 3000.0, 1e6):
        chunk = 64
        for _ in range(30):
            chunk = adapted_chunk(chunk, chunk, chunk / rows_a_second, largest=8192)
        assert chunk in (SMALLEST_CHUNK, 8192) or 0.5 <= chunk / rows_a_second <= 2
    assert adapted_chunk(64, 3, 0.001) == 64, "a short window says nothing about a full one"
