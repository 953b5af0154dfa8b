"""What the scripts beside this file ask and how they compare: chat prompts as ids, long texts, lists of tokens."""

from collections.abc import Sequence

from strata.text import Tokenizer

REPLY = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
QUESTIONS = (
    "Tell me a long story about a lighthouse keeper and the sea.",
    "Explain how a steam engine works, step by step.",
    "Write a letter to a friend about a journey through the mountains.",
    "Describe the four seasons in detail.",
    "Count up from 1 to 100.",
    "What is a computer program, and how is one written?",
    "Tell me about the history of bread.",
    "Write a poem about the night sky.",
)
_SENTENCES = (
    "The keeper of the tower wrote down the wind and the weather.",
    "In the harbour a grey ship waited for the tide, and nobody spoke.",
    "Every morning the baker carried bread across the market.",
    "The old road goes through the forest and over the bridge.",
    "A letter came from the north, but it was in a language that few could read.",
    "When the lamps were lit, the children went home along the river.",
    "The clock in the hall had stopped at a quarter past nine.",
)


def question(index: int) -> str:
    """One of the fixed questions; from the ninth on they are numbered, so that no two prompts are the same."""
    turn = index // len(QUESTIONS)
    return QUESTIONS[index % len(QUESTIONS)] + (f" This is chapter {turn + 1}." if turn else "")


def first_turn(text: str) -> str:
    """A conversation's first prompt: a user's message, and the reply opened with its thinking left out."""
    return f"<|im_start|>user\n{text}<|im_end|>\n{REPLY}"


def next_turn(tokenizer: Tokenizer, reply: Sequence[int], text: str) -> list[int]:
    """What follows a reply's tokens in the next prompt: the end of its turn if it lacks it, and the next message."""
    ended = bool(reply) and reply[-1] in tokenizer.end_ids
    return encode(tokenizer, ("" if ended else "<|im_end|>") + f"\n{first_turn(text)}")


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text with control tokens in it."""
    return tokenizer.encode(text, parse_special=True)


def long_text(tokenizer: Tokenizer, name: str, tokens: int) -> str:
    """About so many tokens of text (at most that many), of which already the first line tells `name`."""
    parts = [f"Chapter {name}."]
    size = len(encode(tokenizer, parts[0]))
    while True:
        sentence = f"{_SENTENCES[len(parts) % len(_SENTENCES)]} That was day {len(parts)}."
        size += len(encode(tokenizer, "\n" + sentence))
        if size > tokens:
            return "\n".join(parts)
        parts.append(sentence)


def difference(expected: Sequence[int], got: Sequence[int]) -> str:
    """Where two lists of tokens part, in words; empty if they are equal."""
    if list(expected) == list(got):
        return ""
    at = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), min(len(expected), len(got)))
    here = [str(tokens[at]) if at < len(tokens) else "the end" for tokens in (expected, got)]
    return f"token {at} differs: expected {here[0]}, got {here[1]} (of {len(expected)} and {len(got)} tokens)"


class Checks:
    """Prints each check as it is made and remembers whether one failed."""

    def __init__(self) -> None:
        self.failed = 0

    def same(self, name: str, expected: Sequence[int], got: Sequence[int]) -> None:
        """Two lists of tokens must be equal."""
        text = difference(expected, got)
        self.true(not text, f"{name}: {text or f'the same {len(got)} tokens'}")

    def true(self, condition: bool, text: str) -> None:
        """Something must hold; `text` says what was found either way."""
        self.failed += not condition
        print(f"{'ok  ' if condition else 'FAIL'}  {text}")

    @property
    def code(self) -> int:
        """The script's exit code."""
        print(f"{self.failed} checks failed" if self.failed else "all as it should be")
        return 2 if self.failed else 0
