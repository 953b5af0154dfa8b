"""API keys: where they come from, and whether one that a client sent is among them. None is ever logged or shown."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from strata.errors import UsageError

LONGEST_FILE = 2**20


class Keys:
    """Keys as digests: the time of a comparison tells nothing of them, and no dump of this object shows one."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def match(self, given: str) -> bool:
        """Whether it is one of them."""
        digest = _digest(given)
        # Every key is compared, also after a match: which one it was tells the time no more than whether it was one.
        return any([hmac.compare_digest(digest, known) for known in self._digests])  # noqa: C419


def split_keys(text: str) -> tuple[str, ...]:
    """Keys from a list separated by commas or lines."""
    return tuple(key for part in re.split(r"[,\n]", text) if (key := part.strip()))


def read_key_file(path: Path) -> tuple[str, ...]:
    """The keys of a file, one a line; empty lines and those that begin with `#` are none. Raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_FILE + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: the file of API keys cannot be read: {error.strerror} (--api-key-file).") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: the file of API keys is not a text in UTF-8 (--api-key-file).") from None
    if len(data) > LONGEST_FILE:
        raise UsageError(f"{path}: more than {LONGEST_FILE} bytes are no file of API keys (--api-key-file).")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    found = [(number, line) for number, line in lines if line and not line.startswith("#")]
    for number, line in found:
        if not is_usable(line):
            raise UsageError(f"{path}, line {number}: an API key must be printable ASCII without blanks.")
    if not found:
        raise UsageError(f"{path}: the file of API keys holds none; write one key a line (--api-key-file).")
    return tuple(key for _, key in found)


def is_usable(key: str) -> bool:
    """Whether a key can be sent in a header."""
    return bool(key) and key.isascii() and key.isprintable() and " " not in key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
