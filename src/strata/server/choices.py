"""Several replies to one request, as one stream of events: what `n` and lists of prompts ask for."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from strata.server.generation import Ask, End, Event, Generator, Prepared, Reading

Choice = tuple[int, Event]
"""The number of a reply, and an event of it."""


async def prepare_all(generator: Generator, asks: Sequence[Ask]) -> list[Prepared]:
    """All of them; nothing is generated where one cannot be. Raises as `Generator.prepare` does."""
    return [await generator.prepare(ask) for ask in asks]


async def merged(generator: Generator, replies: Sequence[Prepared]) -> AsyncGenerator[Choice, None]:
    """The events of all replies as they come; each reply ends with End. Raises the first error of any.

    Of replies to the same prompt one reads it, and the others begin when it has: they find it in the engine's cache.
    """
    arrived: asyncio.Queue[Choice | Exception] = asyncio.Queue()
    read: dict[tuple[int, ...], asyncio.Event] = {}

    async def run(index: int, one: Prepared, first: asyncio.Event | None, mine: asyncio.Event) -> None:
        if first is not None:
            await first.wait()
        try:
            async with contextlib.aclosing(generator.events(one)) as events:
                async for event in events:
                    if not isinstance(event, Reading):
                        mine.set()
                    arrived.put_nowait((index, event))
        except Exception as error:
            arrived.put_nowait(error)

    tasks = []
    for index, one in enumerate(replies):
        first, mine = read.get(one.stages.first.ids), asyncio.Event()
        read.setdefault(one.stages.first.ids, mine)
        tasks.append(asyncio.create_task(run(index, one, first, mine)))
    left = len(replies)
    try:
        while left:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            left -= isinstance(item[1], End)
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
