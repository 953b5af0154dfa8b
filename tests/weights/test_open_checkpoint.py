"""What `open_checkpoint` makes of a path: files by their content, directories, and things that are no model."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from strata.errors import WeightsError
from strata.weights import open_checkpoint, open_gguf, open_safetensors


def error_of(path: Path | str) -> str:
    with pytest.raises(WeightsError) as caught:
        open_checkpoint(path)
    text = str(caught.value)
    assert text.isprintable()
    for opener in (open_gguf, open_safetensors):
        with pytest.raises(WeightsError):
            opener(path)
    return text


@pytest.fixture
def one_tensor(build: SimpleNamespace) -> bytes:
    return bytes(build.gguf([], [build.tensor_row("norm", [8], 0, 0)], bytes(range(32))))


def test_files_are_recognised_by_content_not_by_name(tmp_path: Path, one_tensor: bytes) -> None:
    misnamed = tmp_path / "model.safetensors"
    misnamed.write_bytes(one_tensor)
    with open_checkpoint(misnamed) as checkpoint:
        assert checkpoint.kind == "gguf"
        assert checkpoint.span("norm").tolist() == list(range(32))
    with pytest.raises(WeightsError, match="this is a GGUF file, not safetensors"):
        open_safetensors(misnamed)
    other = tmp_path / "model.bin"
    save_file({"t": np.ones(2, np.float32)}, other)
    with open_checkpoint(other) as checkpoint:
        assert checkpoint.kind == "safetensors"
        assert checkpoint.span("t").view("<f4").tolist() == [1, 1]
    with pytest.raises(WeightsError, match="this is a safetensors file, not GGUF"):
        open_gguf(other)


def test_directories(tmp_path: Path, one_tensor: bytes) -> None:
    assert error_of(tmp_path) == f"{tmp_path}: there is no .gguf or .safetensors file in this directory (0 files)"
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    assert "(1 files); pytorch_model.bin may be PyTorch weights, convert them to safetensors" in error_of(tmp_path)
    (tmp_path / "a.gguf").write_bytes(one_tensor)
    (tmp_path / "folder.gguf").mkdir()
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.files == (tmp_path / "a.gguf",)
    (tmp_path / "b.gguf").write_bytes(one_tensor)
    with pytest.raises(WeightsError, match=r"there are 2 GGUF models in this directory \(a\.gguf, b\.gguf\); give the"):
        open_checkpoint(tmp_path)
    (tmp_path / "b.gguf").unlink()
    save_file({"t": np.ones(2, np.float32)}, tmp_path / "odd.safetensors")
    with pytest.raises(WeightsError, match=r"both GGUF \(a\.gguf\) and safetensors \(odd\.safetensors\) files in this"):
        open_checkpoint(tmp_path)
    (tmp_path / "a.gguf").unlink()
    with open_checkpoint(tmp_path) as checkpoint:
        assert list(checkpoint.tensors) == ["t"]
    save_file({"t": np.ones(2, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(WeightsError, match=r"2 files \*\.safetensors and no model\.safetensors\.index\.json \(odd"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty (0 bytes)"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 21474836480\n",
            "this is a Git LFS pointer, not the model of 21474836480 bytes; fetch the model with `git lfs pull`",
        ),
        (b"PK\x03\x04....", "this is a PyTorch or zip archive; a GGUF or safetensors file is needed"),
        (b"<!DOCTYPE html><html>", "this is a web page; a GGUF or safetensors file is needed"),
        (b"tjgg....", "this is an old GGML file, from before GGUF; a GGUF or safetensors file is needed"),
        (b"FUGG....", "the magic number is byte-swapped (FUGG), so this is no little-endian GGUF file"),
        (bytes(600), "the first 512 of 600 bytes are zeros: the download is incomplete"),
        (b"hello", "this is neither a GGUF nor a safetensors file (its 5 bytes begin with 68 65 6c 6c 6f)"),
        (b'{"a": 1}', "this JSON file has no weight_map of tensors to files, so it is no safetensors index"),
        (b"GGU", "this is neither a GGUF nor a safetensors file (its 3 bytes begin with 47 47 55)"),
    ],
)
def test_files_that_are_no_model(put: Callable[..., Path], content: bytes, message: str) -> None:
    path = put(content)
    assert error_of(path) == f"{path}: {message}"


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    gone = tmp_path / "gone.gguf"
    assert error_of(gone) == f"{gone}: no such file or directory"
    assert "the file cannot be read (embedded null" in error_of("a\0b")
    assert "the file cannot be read (" in error_of(tmp_path / ("x" * 5000))


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes in directories are a POSIX matter")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "pipe.gguf: this is a pipe, socket or device, not a file" in error_of(tmp_path / "pipe.gguf")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="needs a user whom permissions bind")
def test_a_file_that_may_not_be_read(tmp_path: Path, one_tensor: bytes) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(one_tensor)
    path.chmod(0)
    assert error_of(path) == f"{path}: the file cannot be read (Permission denied)"
