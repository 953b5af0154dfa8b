"""`strata tokenizer`: a model's tokenizer as a directory of plain files, for programs that read no model file.

vocab.json (token -> id), merges.txt (`a b` a line, no header, no line feed at the end), token_type.json (a number an
id, as in GGUF), tokenizer.json (`pre`, the ids of bos and eos), chat_template.jinja where the model has one.
`strata.text.Tokenizer.from_directory` reads it.
"""

import argparse
import json
from pathlib import Path

from strata.cli.model import read_card
from strata.errors import UsageError
from strata.text.vocabulary import Vocabulary
from strata.units import count_text


def run(options: argparse.Namespace) -> int:
    """Write the files and say so."""
    vocabulary = read_card(Path(options.file)).tokenizer.vocabulary
    names = write_directory(vocabulary, Path(options.directory))
    print(f"{options.directory}: {', '.join(names)} ({count_text(len(vocabulary.tokens))} tokens)")
    return 0


def write_directory(vocabulary: Vocabulary, directory: Path) -> list[str]:
    """Write the files of a vocabulary; their names.

    Raises UsageError, and then has written nothing, if the directory cannot be written or has one of them already with
    another content: a checkpoint's tokenizer.json is a file of the same name that holds more.
    """
    files = {name: text.encode("utf-8") for name, text in _texts(vocabulary).items()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            path = directory / name
            if path.exists() and path.read_bytes() != data:
                raise UsageError(f"{path} exists and is another tokenizer's: name another directory.")
        for name, data in files.items():
            (directory / name).write_bytes(data)
    except OSError as error:
        raise UsageError(f"Cannot write {error.filename or directory}: {error.strerror}.") from None
    return list(files)


def _texts(vocabulary: Vocabulary) -> dict[str, str]:
    info = {"pre": vocabulary.pre, "add_bos_token": vocabulary.add_bos}
    info |= {name: number for name, number in (
        ("bos_token_id", vocabulary.bos_id), ("eos_token_id", vocabulary.eos_id)
    ) if number is not None}  # fmt: skip
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    texts = {
        "vocab.json": json.dumps(ids),
        "merges.txt": "\n".join(f"{left} {right}" for left, right in vocabulary.merges),
        "token_type.json": json.dumps([int(kind) for kind in vocabulary.types]),
        "tokenizer.json": json.dumps(info),
    }
    if vocabulary.chat_template is not None:
        texts["chat_template.jinja"] = vocabulary.chat_template
    return texts
