// What a conversation is between two windows, docs/arithmetic.md, sections 8 to 11, 14 and 16. A lane may end in
// *undecided* rows (drafts): nothing of them is committed until `accept` says how many are kept.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory.h"
#include "spec.h"

namespace strata {

// Rows (groups, width) of the caches' type in chunks of 256, shared by copies of a conversation. A chunk that somebody
// else holds too is copied before it is written.
class ChunkedRows {
public:
    static constexpr std::size_t chunk_rows = 256;

    ChunkedRows(std::size_t groups, std::size_t width, KvType type);

    // Make room for rows [from, to), all ours to write; rows from `from` on may be lost.
    void prepare(std::size_t from, std::size_t to);
    // A group's row. Rows of one chunk and group follow one another.
    const std::uint8_t* row(std::size_t group, std::size_t at) const { return place(group, at); }
    std::uint8_t* row(std::size_t group, std::size_t at) { return place(group, at); }
    // Drop the chunks that hold no row below `length`.
    void keep(std::size_t length);
    // Become the first `length` rows of another: its chunks, no copy.
    void share(const ChunkedRows& from, std::size_t length);

    std::size_t groups() const { return groups_; }
    std::size_t width() const { return width_; }
    std::size_t row_bytes() const { return row_bytes_; }
    std::size_t bytes() const { return chunks_.size() * chunk_bytes(); }
    // Chunks whose only holder is this.
    std::size_t own_chunks() const;
    // A chunk's memory: rows (groups, 256). Whoever holds it shares it.
    std::shared_ptr<std::uint8_t[]> chunk(std::size_t number) const { return chunks_[number]; }
    // What tells a chunk from all others that live.
    std::vector<std::uintptr_t> identities() const;
    // Bytes of all chunks of all conversations of the process.
    static std::size_t live_bytes() { return live_bytes_.load(); }

private:
    using Chunk = std::shared_ptr<std::uint8_t[]>;

    static Chunk fresh(std::size_t bytes);
    static std::atomic<std::size_t> live_bytes_;

    std::size_t chunk_bytes() const { return groups_ * chunk_rows * row_bytes_; }
    std::uint8_t* place(std::size_t group, std::size_t at) const {
        return chunks_[at / chunk_rows].get() + (group * chunk_rows + at % chunk_rows) * row_bytes_;
    }

    std::size_t groups_, width_, row_bytes_;
    std::vector<Chunk> chunks_;
};

// An attention layer's cache. Rows [length, length + extra) are undecided.
struct AttentionCache {
    AttentionCache(const Spec& spec, std::size_t ratio);

    // Make room for `count` rows after all that are there, and put their raw index keys (count, Di; null without an
    // indexer) behind the open ones.
    void grow(std::size_t count, const float* raw);
    // The first `count` undecided rows are decided: kept for good.
    void commit(std::size_t count);
    // Keep `count` of the undecided rows and forget the others.
    void accept(std::size_t count);
    // Become the first `count` decided rows of a longer cache, without a copy; `raw`: the open index keys there.
    void share(const AttentionCache& longer, std::size_t count, const float* raw);

    std::size_t total() const { return length + extra; }

    ChunkedRows k, v, index;
    std::size_t ratio, index_dim;
    std::size_t length = 0, extra = 0;
    std::vector<float> open;  // raw index keys of positions from length / ratio * ratio on
};

// A gated delta net: the state matrices (shared by copies, replaced or written by their only holder), the convolution's
// last rows, and what undecided or accepted rows need to be replayed.
struct DeltaState {
    explicit DeltaState(const DeltaSpec& spec);

    void accept(std::size_t count);

    struct Rows {  // inputs of the recurrence, one row a token
        std::size_t count = 0;
        std::vector<float> k, v, decay, beta;  // (Hk, Dk), (Hv, Dv), (Hv,), (Hv,)
        std::vector<float> qkv;                // (C,): inputs of the convolution
    };

    std::size_t width, tail_rows;
    std::shared_ptr<float[]> state;      // (Hv, Dk, Dv)
    std::vector<float> tail;             // (taps-1, C)
    std::shared_ptr<const Rows> rows;    // undecided rows, then those accepted of them
    std::size_t replay = 0;              // accepted rows that `state` does not hold yet
};

// The n-gram layer: the last tokens and the convolution's last rows; then the same of undecided rows.
struct NgramState {
    NgramState(const NgramSpec& spec, std::size_t wide);

    void accept(std::size_t count);
    // Move the tails on by `count` rows.
    void advance(const std::int64_t* tokens, const float* rows, std::size_t count);

    std::size_t wide;
    std::vector<std::int64_t> tokens, undecided_tokens;
    std::vector<float> tail, undecided_rows;
};

// One conversation.
class Lane {
public:
    // With `drafts` the MTP block's cache follows the trunk.
    Lane(std::shared_ptr<const Spec> spec, bool drafts);
    Lane(const Lane&) = default;  // a checkpoint: full chunks and state matrices are shared

    // Decide about the undecided rows: keep the first `count`.
    void accept(std::size_t count);

    std::shared_ptr<const Spec> spec;
    bool drafts;
    std::size_t length = 0, undecided = 0;
    std::vector<DeltaState> delta;          // of the delta layers, in order
    std::vector<AttentionCache> attention;  // of the attention layers, in order
    std::vector<NgramState> ngram;          // none or one
    std::vector<AttentionCache> mtp;        // none or one

    // Trunk streams (S*D) of positions from mtp.length on, and the tokens after them as far as they are known.
    std::vector<float> waiting;
    std::vector<std::int64_t> following;
    // The token that the last draft put after the last position: its row is in the MTP cache, undecided.
    std::int64_t drafted_after = -1;
};

// from + shift rows: `tail` (rows, width) moves on by `count` rows of `fresh`.
void move_tail(std::vector<float>& tail, const float* fresh, std::size_t count, std::size_t width);

}  // namespace strata
