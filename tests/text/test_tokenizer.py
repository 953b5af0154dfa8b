"""Token ids against llama.cpp on the same GGUF and against the `tokenizers` library on an equivalent tokenizer.json."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import RequestError, WeightsError
from strata.text import Tokenizer
from strata.text.bytelevel import ALPHABET, to_bytes
from strata.text.vocabulary import from_directory

TEXTS = [
    "", " ", "Hello, world!", "it's I'M they'Ve we'LL 's", "a  b   c \n\n d\r\n\r\ne\t\tf ", "1234567890 12 3",
    "Größe naïve café cafe\u0301 e\u0301\u0302x", "नमस्ते दुनिया", "日本語のテキスト、中文。", "😀👩\u200d👩\u200d👧🇩🇪",
    "x\u200by\u00a0z\u3000w", "  leading", "trailing  \n", "\n\n\n", "def f(x):\n        return x\n",
    "<|im_start|>user\nhi<|im_end|>\n<think>\n</think>", "<think", "<tool><tool>x<tool>", "<|im_start|<|im_start|>",
    "\u0301\u0302 alone", "ﬁ Ⅷ ² ½ ٣", "\x00\x01\x7f", "-- == !!! ?\n?",
]  # fmt: skip


@pytest.fixture(scope="session")
def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(metadata, "tiny.gguf")


@pytest.fixture(scope="session")
def llama_cpp(gguf_file: Path) -> Iterator[str]:
    """The address of a llama.cpp server that has the GGUF loaded."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf_file)
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads, params.warmup = 256, 1, 1, False
    params.port = 0
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


def _post(address: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        address + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_same_ids_as_llama_cpp(tokenizer: Tokenizer, llama_cpp: str) -> None:
    for text in TEXTS:
        for special in (False, True):
            body = {"content": text, "add_special": False, "parse_special": special}
            expected = _post(llama_cpp, "/tokenize", body)["tokens"]
            assert tokenizer.encode(text, parse_special=special) == expected, (text, special)


def test_same_ids_as_tokenizers_library(
    tokenizer: Tokenizer, trained: tuple[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    trained[1].save(str(path))
    transformers = pytest.importorskip("transformers")
    for oracle in (
        lambda text: tokenizers.Tokenizer.from_file(str(path)).encode(text).ids,
        lambda text: transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))(text)["input_ids"],
    ):
        for text in TEXTS:
            assert tokenizer.encode(text, parse_special=True) == oracle(text), text


def test_combining_marks_tell_the_two_splits_apart() -> None:
    accent = [ALPHABET[byte] for byte in "\u0301".encode()]
    ids = {}
    for pre in ("qwen2", "qwen35"):
        made = Tokenizer.from_metadata({
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": [*ALPHABET, "e" + accent[0]], "tokenizer.ggml.merges": [f"e {accent[0]}"],
        })  # fmt: skip
        ids[pre] = made.encode("e\u0301")
    assert ids == {"qwen2": [0x65, 0xCC, 0x81], "qwen35": [256, 0x81]}


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=60))
def test_decoding_gives_back_every_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, parse_special=True)) == text
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_control_tokens_only_when_asked(tokenizer: Tokenizer) -> None:
    control, own = tokenizer.id_of("<|im_start|>"), tokenizer.id_of("<think>")
    text = "<|im_start|><think>"
    assert tokenizer.encode(text, parse_special=True) == [control, own]
    plain = tokenizer.encode(text)
    assert control not in plain
    assert plain[-1] == own
    assert tokenizer.decode([control, own], special=False) == "<think>"
    assert tokenizer.end_ids == {tokenizer.id_of("<|im_end|>"), tokenizer.id_of("<|endoftext|>")}


def test_quoted_text_holds_no_control_tokens(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        assert tokenizer.encode(tokenizer.quote(text), parse_special=True) == tokenizer.encode(text), text


def test_bos_is_put_first_where_the_model_wants_it(metadata: dict[str, Any]) -> None:
    bos = metadata["tokenizer.ggml.tokens"].index("<|endoftext|>")
    with_bos = Tokenizer.from_metadata(
        {**metadata, "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": bos}
    )
    assert with_bos.encode("a", add_special=True) == [bos, *with_bos.encode("a")]


def test_directory_forms_hold_the_same_tokenizer(
    metadata: dict[str, Any], tokenizer: Tokenizer, trained: tuple[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    tokens = metadata["tokenizer.ggml.tokens"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("\n".join(metadata["tokenizer.ggml.merges"]), encoding="utf-8")
    (tmp_path / "token_type.json").write_text(json.dumps([int(kind) for kind in metadata["tokenizer.ggml.token_type"]]))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"pre": metadata["tokenizer.ggml.pre"]}))
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    trained[1].save(str(checkpoint / "tokenizer.json"))
    for folder in (tmp_path, checkpoint):
        read = Tokenizer.from_directory(folder)
        assert read.vocabulary.pre == tokenizer.vocabulary.pre
        assert read.end_ids == tokenizer.end_ids
        for text in TEXTS:
            assert read.encode(text, parse_special=True) == tokenizer.encode(text, parse_special=True)
    assert from_directory(tmp_path).chat_template == "{{ messages }}"


def test_alphabet_is_that_of_the_library() -> None:
    from tokenizers import pre_tokenizers

    assert sorted(ALPHABET) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert b"".join(to_bytes(character) for character in ALPHABET) == bytes(range(256))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer.ggml.model": "llama"}, "'llama'"),
        ({"tokenizer.ggml.pre": "gpt-2"}, "pre-tokenizer is 'gpt-2'"),
        ({"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.merges": [], "tokenizer.ggml.token_type": [1, 1],
          "tokenizer.ggml.eos_token_id": 0},
         "two ids, 0 and 1"),
        ({"tokenizer.ggml.merges": ["zzz qqq"]}, "outside the vocabulary"),
        ({"tokenizer.ggml.merges": ["abc"]}, "not two tokens"),
        ({"tokenizer.ggml.token_type": [1]}, "1 token types"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "eos_token_id is 1000000"),
        ({"tokenizer.ggml.merges": None}, "no tokenizer.ggml.merges"),
    ],
)
def test_bad_metadata_is_one_sentence(metadata: dict[str, Any], change: dict[str, Any], said: str) -> None:
    with pytest.raises(WeightsError, match="bad.gguf") as caught:
        Tokenizer.from_metadata({**metadata, **change}, "bad.gguf")
    assert said in str(caught.value)


def test_text_that_has_no_tokens_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        tokenizer.encode("a\ud800b")
    few = Tokenizer.from_metadata({
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.merges": [],
    })  # fmt: skip
    assert few.encode("abba") == [0, 1, 1, 0]
    with pytest.raises(RequestError, match="0x63"):
        few.encode("abc")


def test_long_texts_are_tokenized_as_short_ones_and_let_other_threads_go_on(tokenizer: Tokenizer) -> None:
    """Cut at words, which no token crosses, a long text has the tokens of its pieces."""
    words = [f" word{number} né" for number in range(40_000)]
    whole = tokenizer.encode("".join(words))
    assert whole == [token for at in range(0, 40_000, 50) for token in tokenizer.encode("".join(words[at : at + 50]))]
    gaps, done = [0.0], threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = threading.Thread(target=tick)
    ticking.start()
    begun = time.perf_counter()
    tokenizer.encode("lorem ipsum " * 200_000)
    took = time.perf_counter() - begun
    done.set()
    ticking.join()
    assert max(gaps) < took / 2


def test_blanks_without_end_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="too many blanks in a row"):
        tokenizer.encode(" " * 12_000_000)
