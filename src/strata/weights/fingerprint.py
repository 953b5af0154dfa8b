"""What tells one model from another, so that a conversation never goes on with a model that did not make it."""

from hashlib import blake2b

from strata.weights.checkpoint import Checkpoint

_SAMPLE = 4096


def fingerprint(checkpoint: Checkpoint) -> str:
    """A name of the weights, 32 hexadecimal digits: of every tensor its name, shape, format, first and last 4 KiB.

    The samples tell quantizations and fine-tunes apart without reading a file that is larger than the memory.
    """
    digest = blake2b(digest_size=16)
    for name in sorted(checkpoint.tensors):
        info = checkpoint.tensors[name]
        digest.update(f"{name} {info.shape} {info.format};".encode())
        span = checkpoint.span(name)
        digest.update(span[:_SAMPLE].data)
        digest.update(span[-_SAMPLE:].data)
    return digest.hexdigest()
