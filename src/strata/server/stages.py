"""A reply in stages: where its thinking has a budget or is followed by what the model does not choose itself.

The first stage ends with the thinking; the next goes on from its tokens, which the engine has kept, so the prompt is
not read again. A budget that is not reached changes no token. A reply that the model ends inside of its thinking goes
on too: without an answer it is of no use to anybody.
"""

from dataclasses import dataclass, replace

from strata.engine.protocol import Done, Gen
from strata.server.reply import Reply
from strata.text import Tokenizer
from strata.text.reasoning import CLOSE, OPEN

WRAP_UP = "\n\nThe time for thinking is up: I answer now with what I have.\n"
"""What ends a thinking that has used up its budget."""


@dataclass(frozen=True, slots=True)
class Stages:
    """How a reply is asked for.

    `first`: what the engine is asked first. `limit`: tokens of the whole reply, of which `begun` tokens stand at the
    end of the first prompt already. `rest`: what follows the thinking, but for its prompt and limit; `opening` is how
    that begins.
    """

    first: Gen
    limit: int
    rest: Gen
    opening: str = ""
    begun: tuple[int, ...] = ()
    budget: bool = False

    @property
    def prompt(self) -> tuple[int, ...]:
        """The prompt's tokens, without those with which the reply begins."""
        return self.first.ids[: len(self.first.ids) - len(self.begun)]

    def next(self, reply: Reply, done: Done, tokenizer: Tokenizer) -> tuple[list[int], Gen] | None:
        """After the first stage: tokens to put into the reply, and what to ask next; None if the reply is complete."""
        close = tokenizer.id_of(CLOSE)
        if close is None or done.finish not in ("stop", "length"):
            return None
        spent = done.finish == "length"
        if spent and not (self.budget and len(reply.ids) < self.limit):
            return None
        thought = [number for number in reply.ids if number not in tokenizer.end_ids]
        if reply.thinking:
            text = f"{WRAP_UP if spent else _line_break(thought, tokenizer)}{CLOSE}\n\n{self.opening}"
        elif spent:
            text = ""  # the answer had begun: it goes on
        elif self.first.stop_ids and thought and thought[-1] == close:
            text = f"\n\n{self.opening}" if self.opening else ""
        else:
            return None
        inserted = tokenizer.encode(text, parse_special=True)
        left = self.limit - len(reply.ids) - len(inserted)
        if left < 1:
            return None
        return inserted, replace(self.rest, max_new=left, ids=(*self.prompt, *thought, *inserted))


def staged(
    whole: Gen, rest: Gen, tokenizer: Tokenizer, *, inside: bool, budget: int | None, opening: str
) -> Stages:
    """The stages of a reply that `whole` asks for in one; `rest` is the same behind the thinking.

    `inside`: the prompt leaves the model in its thinking. `budget`: tokens of thinking. `opening`: see Stages.
    """
    limit = whole.max_new
    if opening and not inside:
        begun = tuple(tokenizer.encode(opening, parse_special=True))[: limit - 1]
        return Stages(
            replace(rest, ids=(*whole.ids, *begun), max_new=limit - len(begun)), limit, rest, begun=begun
        )
    close = tokenizer.id_of(CLOSE)
    if close is None or not (opening or (budget and budget < limit)):
        return Stages(whole, limit, rest)
    if inside:
        first = replace(
            rest, grammar=None, grammar_after=None, grammar_optional=False, stop_ids=(*rest.stop_ids, close),
            max_new=min(budget or limit, limit),
        )  # fmt: skip
        return Stages(first, limit, rest, opening, budget=bool(budget))
    opens_itself = tokenizer.id_of(OPEN) is not None and whole.grammar is None and close not in whole.ids[-8:]
    if not opens_itself:
        return Stages(whole, limit, rest)
    return Stages(replace(whole, max_new=min(budget or limit, limit)), limit, rest, budget=bool(budget))


def _line_break(thought: list[int], tokenizer: Tokenizer) -> str:
    return "" if thought and tokenizer.token_bytes(thought[-1]).endswith(b"\n") else "\n"
