"""What a step of a model must do at least: bytes of weights read and multiply-adds, counted from its GGUF file."""

from dataclasses import dataclass
from pathlib import Path

import gguf

from benchmarks.cpu_vs_llamacpp.cases import Case


@dataclass(frozen=True)
class Traffic:
    """Bytes and elements of the weights, MTP blocks left out.

    `dense` is read once a step whatever the rows, `head` once a step that wants logits, an expert where a row chose it.
    """

    layers: int
    experts: int
    used: int
    dense_bytes: int
    dense_weights: int
    head_bytes: int
    head_weights: int
    expert_bytes: float
    expert_weights: float

    @classmethod
    def of(cls, path: Path) -> "Traffic":
        """Count a qwen4exp file."""
        reader = gguf.GGUFReader(path)

        def fact(name: str) -> int:
            found = reader.fields.get(f"qwen4exp.{name}")
            return 0 if found is None else int(found.contents())

        layers = fact("block_count") - fact("nextn_predict_layers")
        dense, experts, head = [0, 0], [0, 0], [0, 0]
        for tensor in reader.tensors:
            name = tensor.name
            if name in ("token_embd.weight", "per_layer_token_embd.weight"):
                continue  # single rows are gathered
            if name.startswith("blk.") and int(name.split(".")[1]) >= layers:
                continue
            kind = experts if name.endswith("_exps.weight") else head if name == "output.weight" else dense
            kind[0] += int(tensor.n_bytes)
            kind[1] += int(tensor.n_elements)
        count = fact("expert_count") * layers
        each = [x / count for x in experts]
        return cls(layers, fact("expert_count"), fact("expert_used_count"), *dense, *head, *each)

    def step_bytes(self, distinct: float) -> float:
        """Bytes of one step with logits whose rows choose `distinct` experts a layer."""
        return self.dense_bytes + self.head_bytes + self.layers * distinct * self.expert_bytes

    def step_macs(self, rows: int, with_logits: int) -> float:
        """Multiply-adds of the products of one step; attention and the delta rule are not counted."""
        each = self.dense_weights + self.layers * self.used * self.expert_weights
        return rows * each + with_logits * self.head_weights


@dataclass(frozen=True)
class Share:
    """How far a case comes towards the machine's limits, and which one it is nearer to."""

    step_bytes: float
    bandwidth: float
    compute: float

    @property
    def bound(self) -> str:
        """A word for what bounds the case."""
        if max(self.bandwidth, self.compute) < 0.4:
            return "neither"
        return "memory" if self.bandwidth >= self.compute else "int8"


def share(
    case: Case, tokens_per_second: float, traffic: Traffic, distinct: dict[str, float], read: float, peak: float
) -> Share:
    """Shares of the read bandwidth (bytes/s) and of the int8 peak (multiply-adds/s) at a measured speed."""
    rows, with_logits = (case.window, 1) if case.kind == "prompt" else (case.lanes, case.lanes)
    key = "prompt" if case.kind == "prompt" else str(case.lanes)
    steps = tokens_per_second / rows
    read_bytes = traffic.step_bytes(distinct[key])
    return Share(read_bytes, read_bytes * steps / read, traffic.step_macs(rows, with_logits) * steps / peak)
