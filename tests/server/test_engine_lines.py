"""The engine's output as lines, however the pipe cuts it."""

import asyncio
import sys
from typing import Any

import pytest

from strata.engine.protocol import PoolState, Ready, Token
from strata.errors import EngineError
from strata.server.process import EngineProcess


def lines_of(code: str) -> list[Any]:
    """What is read after READY, up to the end of the program's output."""

    async def main() -> list[Any]:
        program = f"import sys, time\ndef say(text):\n    sys.stdout.write(text)\n    sys.stdout.flush()\n{code}"
        process = await EngineProcess.start([sys.executable, "-S", "-c", program])
        try:
            async with asyncio.timeout(20):
                await process.wait_ready(10)
                assert process.max_context == 512
                return [report async for report in process.reports()]
        finally:
            await process.quit(1)

    return asyncio.run(main())


def test_lines_behind_ready_are_not_lost() -> None:
    found = lines_of(r"say('INFO a=1\nREADY 512 stop\nT 5\nT 6\nPOOL 9 8 0 -\nhello\n')")
    assert [type(report) for report in found] == [Token, Token, PoolState, type(None)]


def test_lines_in_pieces_with_carriage_returns_and_without_a_last_end() -> None:
    code = r"""
for piece in ('REA', 'DY 512 st', 'op\r\nT ', '7', '\r', '\nT 8\nT', ' 9'):
    say(piece)
    time.sleep(0.02)
"""
    assert [report.id for report in lines_of(code)] == [7, 8, 9]


def test_thousands_of_lines_at_once() -> None:
    found = lines_of(r"say('READY 512 stop\n' + ''.join(f'T {n}\n' for n in range(50_000)))")
    assert [report.id for report in found] == list(range(50_000))
    assert not any(isinstance(report, Ready) for report in found)


@pytest.mark.parametrize("end", ["", r"\n"])
def test_a_line_without_end_is_an_error(end: str) -> None:
    with pytest.raises(EngineError, match="a line of more than 1048576 bytes"):
        lines_of(f"say('READY 512 stop\\n' + 'T ' + '1' * 2_000_000 + '{end}')\ntime.sleep(60)")
