"""Options of Strata's earlier engines that are no settings of this one, and what is said about them.

MOOT ones have no meaning in this engine and are accepted; LESS ones are not implemented yet, but the engine may run
without: both are named once in the log, with the reason. REFUSED ones would change results or promises, so the start
ends with a sentence. A value in brackets may be left out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# fmt: off
MOOT = (
    ("the model file holds every tensor and is mapped into memory as it is",
     "--pack DIR --ple-gguf FILE --mmap-experts --resident-experts --resident-cpu-experts --resident-budget-gib N "
     "--shared-expert-arena FILE --ple-io MODE --ple-row-cache N --ple-inflight N"),
    ("this engine computes on the CPU and uses no graphics card",
     "--expert-cache N --expert-profile FILE --expert-profile-save FILE --expert-profile-save-every N "
     "--expert-cache-device1 N --expert-cache-device2 N --expert-cache-device3 N --expert-cache-remote-placement MODE "
     "--remote-expert-opt --peer-device N --peer-reserve-mib N --peer-slots N --peer-adapt-swaps N "
     "--peer-prefill-rows N --pcie-frac F --pcie-mode MODE --pcie-balance --adapt-every N --adapt-swaps N "
     "--adapt-decay F --adapt-min-gain F --adapt-async N --vram-reserve-mib N --vram-reserve-later-mib N "
     "--vram-elastic --vram-segment-mib N --no-prefill-borrow --trim-stage-weights --layer-split LIST "
     "--split-device LIST --split-skip-if-fits --head-device N --kv-resident N --kv-grow"),
    ("a prompt is read to its end, and the tail gives the same bits in any chunk", "--short-read N"),
    ("windows hold every conversation; there are no groups", "--batch-groups N --pipeline-windows N"),
    ("every window may hold drafts of every lane, and measured prices decide how many rows it has; --spec and --lookup "
     "bound a lane's drafts",
     "--batch-mtp --batch-spec N --batch-rows N --batch-suffix [N] --batch-adapt [N] --batch-overlap [N]"),
    ("--spec bounds the drafts of the MTP block, --lookup those found in the history", "--mtp-max-t N"),
    ("a lane has drafts from one source in a window, the one that earns more", "--lookup-chain N --lookup-chain-min N"),
    ("the MTP block sees the whole conversation, with the weights of the model file and the whole vocabulary",
     "--mtp-window N --mtp-q4 MODE --mtp-draft-vocab FILE"),
    ("the MTP block is computed as the model defines it, and its likeliest tokens are the drafts",
     "--mtp-hnorm MODE --coupled-draft"),
    ("a checkpoint stands exactly before the prompt's last turn, wherever chunks end", "--prompt-cache-tail"),
    ("a prompt goes on from the deepest kept state of its own beginning, whatever follows there",
     "--conversation-cache-similarity F --conversation-cache-n-min N"),
    ("the cores are chosen by --threads and the system", "--pool-workers N --pool-affinity MODE --pool-tasks N "
     "--host-core WHICH --aux-cpus LIST --no-host-worker --cpu-kernel NAME --pool-drain MODE"),
    ("each request says how to draw", "--max-new N --greedy --seed N --top-k N --top-p F --temperature F"),
    ("it only shapes --rope-scaling yarn", "--yarn-orig-ctx N --yarn-ext-factor F --yarn-attn-factor F "
     "--yarn-beta-fast F --yarn-beta-slow F"),
    ("the log always has one line a request", "--stats"),
)
LESS = (
    ("other drafters than the MTP block and the history are not implemented; drafts change no token",
     "--dflash FILE --dflash-block N"),
    ("a turn before the last one is no boundary of its own yet: what follows it is read again", "--tail-role-token ID"),
    ("a conversation goes to its file when memory is short or the engine ends, not each time it is parked",
     "--conversation-cache-spill-on WHEN"),
    ("when the spill directory is full, the file unused for longest gives way, whatever its age",
     "--conversation-cache-spill-when-full MODE --conversation-cache-spill-max-age-days N"),
    ("states of system prompts are kept in memory only and made again after a start",
     "--system-prompt-cache --system-prompt-cache-dir DIR --system-prompt-cache-mib N --system-prompt-cache-slots N "
     "--system-prompt-cache-max-age-days N --system-prompt-cache-key TEXT"),
    ("SAVE does not look at free disk space beforehand; on a full disk it fails, and the older file stays",
     "--session-min-free-mib N"),
)
REFUSED = (
    ("images are not implemented yet", "--vision"),
    ("control vectors are not implemented yet", "--control-vector FILE --control-vector-scaled FILE:SCALE "
     "--control-vector-layer-range A B --cvec-mode MODE --cvec-dir DIR"),
    ("stretching the context is not implemented yet", "--rope-scaling MODE --rope-scale F --rope-freq-base F "
     "--rope-freq-scale F"),
    ("a limit of memory is not implemented yet, and will not be ignored", "--memory-limit-mib N"),
    ("an engine answers requests; `strata generate` gives a single answer", "--tokens LIST --tokens-file FILE"),
    ("dumps are not implemented", "--dump-logits FILE --dump-routing FILE"),
)
# Values that ask for nothing, or for what happens anyway, and so need no word.
NEUTRAL = frozenset({
    ("--batch-mtp", ""), ("--lookup-chain", "0"), ("--mtp-max-t", "0"), ("--kv-resident", "0"),
    ("--rope-scaling", "none"), ("--rope-scale", "1"), ("--rope-freq-base", "0"), ("--rope-freq-scale", "1"),
    ("--tail-role-token", "-1"), ("--memory-limit-mib", "0"), ("--expert-cache", "0"), ("--session-min-free-mib", "0"),
    ("--conversation-cache-spill-on", "evict"), ("--conversation-cache-spill-when-full", "evict-oldest"),
    ("--conversation-cache-spill-max-age-days", "0"),
})
# fmt: on


@dataclass(frozen=True, slots=True)
class Known:
    """An option that is no setting: how many values it takes (the last may be missing if `optional`), and the reason
    why it is without effect or refused."""

    values: int
    reason: str
    refused: bool = False
    optional: bool = False


def _table() -> Iterator[tuple[str, Known]]:
    for groups, refused in ((MOOT, False), (LESS, False), (REFUSED, True)):
        for reason, text in groups:
            for name, values in re.findall(r"(--[a-z0-9-]+)((?: (?!--)\S+)*)", text):
                yield name, Known(len(values.split()), reason, refused, "[" in values)


KNOWN: Mapping[str, Known] = dict(_table())
