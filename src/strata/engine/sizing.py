"""What the options come to with this model and this much memory: drafts, the pool, lanes, and what INFO says. Pure.

Of the available bytes a reserve stays free. Parked conversations, the KV pool and the states share the rest, and the
states' share is shared by the lanes that run and the states that are kept: each time, who needs less than half of it
takes what it needs, and the other gets the remainder.
"""

from dataclasses import dataclass

import strata
from strata.engine.options import MOST_LANES, Options
from strata.engine.reading import LARGEST_CHUNK
from strata.engine.scheduler import Policy
from strata.errors import UsageError
from strata.families import Spec
from strata.memory import MemoryLimits, ParkingLimits, Sizes, pool_tokens
from strata.memory.pool import CHUNK, chunks
from strata.memory.sizes import CONTEXTS
from strata.units import bytes_text

MTP_DRAFTS = 4
LOOKUP_DRAFTS = 8
CONVERSATIONS = 32
"""Idle conversations that are kept where no option asks for more."""
RESERVED_PART = 10
LEAST_RESERVE = 512 << 20
LARGEST_RESERVE = 4 << 30
_MIB = 1 << 20


def policy(options: Options, can_draft: bool, decode_share: float) -> Policy:
    """The bounds of the scheduler's windows. `can_draft`: the model has an MTP block."""
    mtp = MTP_DRAFTS if options.spec is None else options.spec
    return Policy(
        decode_share,
        mtp_depth=mtp if can_draft and options.mtp else 0,
        lookup_depth=LOOKUP_DRAFTS if options.lookup is None else options.lookup,
        least_chance=options.spec_min_p,
        chunk=options.chunk,
        largest_chunk=options.largest_chunk,
        most_rows=max(LARGEST_CHUNK, options.chunk or options.largest_chunk),
    )


def draft_notes(options: Options, can_draft: bool) -> tuple[str, ...]:
    """What the log has to say of options for the MTP block that come to nothing."""
    if not options.spec or (can_draft and options.mtp):
        return ()
    reason = "--mtp off" if can_draft else "the model has no MTP block"
    return (f"without effect: --spec {options.spec} ({reason})",)


@dataclass(frozen=True, slots=True)
class Sizing:
    """How the memory is used. `context` and `pool_tokens` in positions, `max_lanes` requests at a time.

    `sizes` are those of a chunk and of a kept state, `lane_bytes` those of a running one, `state_bytes` of all running
    and kept ones; `limits` bounds the kept ones alone. `summary` is one line for the log, `notes` are sentences about
    what was asked for and is less.
    """

    context: int
    pool_tokens: int
    max_lanes: int
    state_bytes: int
    lane_bytes: int
    sizes: Sizes
    limits: MemoryLimits
    summary: str
    notes: tuple[str, ...] = ()

    @property
    def pool_bytes(self) -> int:
        return chunks(self.pool_tokens) * self.sizes.chunk

    @property
    def total_bytes(self) -> int:
        """What the pool, all states and parked conversations take when they are full."""
        return self.pool_bytes + self.state_bytes + self.limits.parking.ram_bytes


def choose_memory(options: Options, spec: Spec, context_limit: int, available: int) -> Sizing:
    """Share `available` bytes (weights loaded). `context_limit`: positions that the model itself allows.

    Raises UsageError with the numbers where one conversation does not fit, or not what was asked for.
    """
    if options.max_context is not None and options.max_context > context_limit:
        raise UsageError(f"--max-context {options.max_context}: the model has {context_limit} positions; ask for less.")
    need = _Need.of(options, spec, context_limit)
    budget = max(0, available - reserve(available))
    _check(options, need, available, budget)
    asked_ram = options.cache_mib * _MIB
    ram = min(_share(budget, asked_ram, need.pool + need.states), budget - need.least)
    rest = budget - ram
    room = rest - need.least_states
    pool_bytes = min(max(_share(rest, need.pool, need.states), need.least_pool), room)
    tokens, context = _pool(options, need, pool_bytes, context_limit)
    states = min(rest - pool_bytes, need.states)
    lanes_bytes = min(max(_share(states, need.lanes * need.lane, need.kept), need.lane), states - need.sizes.state)
    lanes = min(need.lanes, lanes_bytes // need.lane, tokens // CHUNK)
    kept = min(states - lanes_bytes, need.kept)
    parking = ParkingLimits(
        ram, options.cache_slots, options.cache_min_free_mib * _MIB, options.spill_dir, options.disk_mib * _MIB
    )
    limits = MemoryLimits(tokens, options.prompt_cache, kept, need.conversations, parking)
    summary = (
        f"memory: {bytes_text(chunks(tokens) * need.sizes.chunk)} for keys and values ({tokens} tokens), "
        f"{bytes_text(lanes * need.lane)} for requests (at most {lanes} at a time), {bytes_text(kept)} for kept states "
        f"({kept // need.sizes.state}), {bytes_text(ram)} for parked conversations"
    )
    notes = tuple(_notes(options, context_limit, context, lanes, ram))
    return Sizing(context, tokens, lanes, lanes * need.lane + kept, need.lane, need.sizes, limits, summary, notes)


def info(options: Options, sizing: Sizing, policy: Policy, threads: int) -> dict[str, int | str]:
    """The values of INFO, in the order of docs/protocol.md; nothing is on a graphics card. `threads` compute."""
    parking = sizing.limits.parking
    values: dict[str, int | str] = {"context": sizing.context, "kv": options.kv, "kv_resident": 0}
    values |= {"expert_slots": 0, "expert_cache_mib": 0}
    values |= {"spec": policy.mtp_depth, "mtp_max": policy.mtp_depth, "lookup": policy.lookup_depth, "cvec": 0}
    values |= {"pool_tokens": sizing.pool_tokens, "pool_workers": threads}
    values |= {
        "conversation_cache_mib": parking.ram_bytes // _MIB,
        "conversation_cache_slots": parking.slots if parking.ram_bytes else 0,
        "conversation_cache_min_free_mib": parking.min_free_bytes // _MIB,
    }
    values |= {"tail_role_token": -1, "vram_elastic": 0}
    if options.batch:
        values |= {"batch_slots": options.batch, "slot_cache": int(options.prompt_cache > 0)}
    return values | {"lanes": 1, "grammar": 1, "engine": strata.__version__}


def reserve(available: int) -> int:
    """Bytes that stay free for everything else: a tenth within limits, but never more than half of what there is."""
    return min(max(available // RESERVED_PART, LEAST_RESERVE), LARGEST_RESERVE, available // 2)


def _available_for(budget: int) -> int:
    """The least that has to be available for `budget` bytes beside the reserve."""
    return min(
        max(-(-budget * RESERVED_PART // (RESERVED_PART - 1)), budget + LEAST_RESERVE),
        budget + LARGEST_RESERVE,
        2 * budget,
    )


def undecided_bytes(spec: Spec) -> int:
    """Bytes that a running lane keeps of one draft row until it is decided: inputs of the recurrence, fp32 all."""
    d, wide = spec.delta, spec.streams * spec.hidden
    delta = d.key_width + d.value_width + 2 * d.value_heads + d.conv_width
    total = spec.kinds.count("delta") * delta + (wide if spec.ngram is not None else 0) + spec.mtp_layers * wide
    return (total + sum(ratio > 0 for ratio in spec.ratios) * spec.attention.index_dim) * 4


@dataclass(frozen=True, slots=True)
class _Need:
    """What could be used, in bytes where it is no count: `lane` of a running request, `kept` states, all `states`,
    the `pool`; and `least_...`, without which nothing can be served as asked."""

    sizes: Sizes
    lane: int
    lanes: int
    conversations: int
    kept: int
    pool: int
    least_pool: int

    @classmethod
    def of(cls, options: Options, spec: Spec, context_limit: int) -> "_Need":
        sizes = Sizes.of(spec, options.kv)
        bounds = policy(options, bool(spec.mtp_layers), 0.0)
        lane = sizes.state + max(bounds.mtp_depth, bounds.lookup_depth) * undecided_bytes(spec)
        conversations = max(CONVERSATIONS, options.batch + 1, options.max_lanes)
        kept = conversations * (options.prompt_cache + 1) * sizes.state
        asked, context = options.pool_tokens, options.max_context
        pool = chunks(asked or CONTEXTS * (context or context_limit)) * sizes.chunk
        least_pool = chunks(asked or context or 1) * sizes.chunk
        return cls(sizes, lane, options.max_lanes or MOST_LANES, conversations, kept, pool, least_pool)

    @property
    def states(self) -> int:
        return self.lanes * self.lane + self.kept

    @property
    def least_states(self) -> int:
        return self.lane + self.sizes.state

    @property
    def least(self) -> int:
        return self.least_states + self.least_pool


def _share(total: int, mine: int, other: int) -> int:
    """Of `total` bytes: what `mine` needs, at most half of it or what the `other` leaves, whichever is more."""
    return min(mine, max(total // 2, total - other))


def _check(options: Options, need: _Need, available: int, budget: int) -> None:
    """Raises UsageError where the budget does not hold the least that is needed."""
    room = budget - need.least_states
    fits = max(0, room) // need.sizes.chunk * CHUNK
    if budget >= need.least:
        return
    left = (
        f"Of {bytes_text(available)} of available memory {bytes_text(available - budget)} stay free and "
        f"{bytes_text(need.least_states)} hold the state of one request and a kept one"
    )
    if not fits:
        wanted = bytes_text(_available_for(need.least_states + need.sizes.chunk))
        raise UsageError(f"{left}: nothing is left for keys and values. At least {wanted} have to be available.")
    if options.pool_tokens:
        asked = f"--kv-pool-tokens {options.pool_tokens} takes {bytes_text(need.least_pool)}"
        raise UsageError(f"{left}: {asked}, more than is left; ask for {fits} or less.")
    raise UsageError(
        f"{left}: what is left holds the keys and values of {fits} tokens, less than one context of "
        f"{options.max_context}; use --max-context {fits} or less."
    )


def _pool(options: Options, need: _Need, pool_bytes: int, context_limit: int) -> tuple[int, int]:
    """Tokens of the pool, in whole chunks, and positions of a conversation."""
    whole = chunks(options.pool_tokens) * CHUNK
    context = options.max_context or min(context_limit, whole or pool_bytes // need.sizes.chunk * CHUNK)
    asked = options.pool_tokens if options.max_context else whole
    return chunks(pool_tokens(need.sizes, pool_bytes, context, asked)) * CHUNK, context


def _notes(options: Options, context_limit: int, context: int, lanes: int, ram: int) -> list[str]:
    """What is less than it was asked to be, or than the model allows."""
    notes = []
    if options.max_context is None and context < context_limit:
        why = f"--kv-pool-tokens {options.pool_tokens} hold no more"
        if not options.pool_tokens:
            why = "its share of the memory holds no more; --max-context may take more of it"
        notes.append(f"a conversation may have {context} of the model's {context_limit} positions: {why}")
    if lanes < options.max_lanes:
        notes.append(f"--max-lanes {options.max_lanes}: there is room for {lanes} at a time, other requests wait")
    elif lanes < options.batch:
        notes.append(f"--batch {options.batch}: {lanes} run at a time, other requests wait")
    if ram < options.cache_mib * _MIB:
        notes.append(f"--conversation-cache-mib {options.cache_mib}: there is room for {ram // _MIB}")
    return notes
