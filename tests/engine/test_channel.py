"""Lines from a pipe in any pieces, and what the inbox holds on to."""

import os
import signal
import threading

import pytest
from engine_talk import Talk, gen
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.engine.channel import Inbox, lines


def through_a_pipe(data: bytes, piece: int, longest: int = 1 << 20) -> list[str]:
    reading, writing = os.pipe()

    def write() -> None:
        for at in range(0, len(data), piece):
            os.write(writing, data[at : at + piece])
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    found = list(lines(reading, longest))
    thread.join()
    os.close(reading)
    return found


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20)), st.integers(1, 50))
def test_lines_come_whole_in_whatever_pieces(texts: list[str], piece: int) -> None:
    assert through_a_pipe("".join(text + "\n" for text in texts).encode(), piece) == texts
    assert through_a_pipe("".join(text + "\r\n" for text in texts).encode(), piece) == texts


def test_a_last_line_without_an_end_counts_and_bad_bytes_do_not_end_the_reading() -> None:
    assert through_a_pipe(b"GEN 1 2", 3) == ["GEN 1 2"]
    assert through_a_pipe(b"\xff\xfe\nQUIT\n", 2) == ["\ufffd\ufffd", "QUIT"]


def test_a_line_that_is_too_long_is_refused_and_the_next_one_read() -> None:
    for piece in (7, 1000):
        found = through_a_pipe(b"GEN 5 " + b"1," * 500 + b"1\nSTOP\n" + b"GEN 5 " + b"1," * 500, piece, longest=100)
        assert found == ["GEN", "STOP", "GEN"], "GEN alone is refused"


def test_served_requests_are_not_held_on_to() -> None:
    talk = Talk()
    for n in range(5):
        talk.say(gen([n, n]), "nonsense", "STOP")
    assert len(talk.inbox._open) <= 2


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of one thread are POSIX's")
def test_a_signal_ends_the_wait_for_requests_whichever_thread_it_meets() -> None:
    """[A handler alone: Python would run it when the main thread has done waiting.]"""
    inbox, number = Inbox(), signal.SIGUSR1
    before, descriptor = signal.getsignal(number), signal.set_wakeup_fd(-1)
    missed = threading.Timer(10, inbox.put, ["nonsense"])
    meeting = threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), number))
    try:
        inbox.interrupt_on(number)
        meeting.start()
        missed.start()
        assert inbox.take(wait=True) == ([], False)
        assert inbox.interrupted
    finally:
        missed.cancel()
        signal.signal(number, before)
        signal.set_wakeup_fd(descriptor)
