#include "state.h"

#include <algorithm>

namespace strata {

bool Scratch::poison = false;

std::atomic<std::size_t> ChunkedRows::live_bytes_{0};

ChunkedRows::Chunk ChunkedRows::fresh(std::size_t bytes) {
    Aligned<std::uint8_t> memory = aligned<std::uint8_t>(bytes);
    live_bytes_ += bytes;
    return Chunk(memory.release(), [bytes](std::uint8_t* p) {
        Free()(p);
        live_bytes_ -= bytes;
    });
}

void move_tail(std::vector<float>& tail, const float* fresh, std::size_t count, std::size_t width) {
    const std::size_t rows = tail.size() / (width ? width : 1);
    if (count >= rows) {
        std::copy(fresh + (count - rows) * width, fresh + count * width, tail.begin());
        return;
    }
    std::move(tail.begin() + std::ptrdiff_t(count * width), tail.end(), tail.begin());
    std::copy(fresh, fresh + count * width, tail.end() - std::ptrdiff_t(count * width));
}

ChunkedRows::ChunkedRows(std::size_t groups, std::size_t width, KvType type)
    : groups_(groups), width_(width), row_bytes_(width * kv_bytes(type)) {}

void ChunkedRows::prepare(std::size_t from, std::size_t to) {
    if (to == from) return;
    chunks_.resize(std::min(chunks_.size(), (to + chunk_rows - 1) / chunk_rows));
    for (std::size_t c = from / chunk_rows; c * chunk_rows < to; ++c) {
        if (c == chunks_.size()) {
            chunks_.push_back(fresh(chunk_bytes()));
        } else if (chunks_[c].use_count() > 1) {
            Chunk own = fresh(chunk_bytes());
            const std::size_t kept = from > c * chunk_rows ? from - c * chunk_rows : 0;
            for (std::size_t g = 0; g < groups_; ++g) {
                const std::size_t start = g * chunk_rows * row_bytes_;
                std::memcpy(own.get() + start, chunks_[c].get() + start, kept * row_bytes_);
            }
            chunks_[c] = std::move(own);
        }
    }
}

void ChunkedRows::keep(std::size_t length) {
    chunks_.resize(std::min(chunks_.size(), (length + chunk_rows - 1) / chunk_rows));
}

void ChunkedRows::share(const ChunkedRows& from, std::size_t length) {
    chunks_ = from.chunks_;
    keep(length);
}

std::vector<std::uintptr_t> ChunkedRows::identities() const {
    std::vector<std::uintptr_t> found;
    for (const Chunk& chunk : chunks_) found.push_back(reinterpret_cast<std::uintptr_t>(chunk.get()));
    return found;
}

std::size_t ChunkedRows::own_chunks() const {
    return std::size_t(std::count_if(chunks_.begin(), chunks_.end(), [](const Chunk& c) { return c.use_count() == 1; }));
}

AttentionCache::AttentionCache(const Spec& spec, std::size_t ratio_)
    : k(spec.attention.kv_heads, spec.attention.head_dim, spec.kv),
      v(spec.attention.kv_heads, spec.attention.head_dim, spec.kv),
      index(1, spec.attention.index_dim, spec.kv),
      ratio(ratio_),
      index_dim(spec.attention.index_dim) {}

void AttentionCache::grow(std::size_t count, const float* raw) {
    k.prepare(total(), total() + count);
    v.prepare(total(), total() + count);
    if (ratio) {
        index.prepare(total() / ratio, (total() + count) / ratio);
        open.insert(open.end(), raw, raw + count * index_dim);
    }
    extra += count;
}

void AttentionCache::commit(std::size_t count) {
    const std::size_t first = ratio ? length / ratio * ratio : 0;
    length += count;
    extra -= count;
    if (ratio) open.erase(open.begin(), open.begin() + std::ptrdiff_t((length / ratio * ratio - first) * index_dim));
}

void AttentionCache::accept(std::size_t count) {
    commit(count);
    extra = 0;
    k.keep(length);
    v.keep(length);
    if (!ratio) return;
    index.keep(length / ratio);
    open.resize((length - length / ratio * ratio) * index_dim);
}

void AttentionCache::share(const AttentionCache& longer, std::size_t count, const float* raw) {
    k.share(longer.k, count);
    v.share(longer.v, count);
    length = count;
    extra = 0;
    if (!ratio) return;
    index.share(longer.index, count / ratio);
    open.assign(raw, raw + count % ratio * index_dim);
}

DeltaState::DeltaState(const DeltaSpec& spec)
    : width(spec.conv_width()), tail_rows(spec.conv_taps - 1), tail(tail_rows * width, 0.0f) {
    const std::size_t size = spec.value_heads * spec.key_dim * spec.value_dim;
    state = std::shared_ptr<float[]>(aligned<float>(size).release(), Free());
    std::fill(state.get(), state.get() + size, 0.0f);
}

void DeltaState::accept(std::size_t count) {
    replay = count;
    if (count == 0)
        rows.reset();
    else
        move_tail(tail, rows->qkv.data(), count, width);
}

NgramState::NgramState(const NgramSpec& spec, std::size_t wide_)
    : wide(wide_), tokens(spec.order - 1, spec.eos), tail(spec.tail_rows() * wide_, 0.0f) {}

void NgramState::advance(const std::int64_t* fresh, const float* rows, std::size_t count) {
    tokens.insert(tokens.end(), fresh, fresh + count);
    tokens.erase(tokens.begin(), tokens.begin() + std::ptrdiff_t(count));
    move_tail(tail, rows, count, wide);
}

void NgramState::accept(std::size_t count) {
    advance(undecided_tokens.data(), undecided_rows.data(), count);
    undecided_tokens.clear();
    undecided_rows.clear();
}

Lane::Lane(std::shared_ptr<const Spec> spec_, bool drafts_) : spec(std::move(spec_)), drafts(drafts_) {
    for (std::size_t layer = 0; layer < spec->layers(); ++layer) {
        if (spec->delta_layers[layer])
            delta.emplace_back(spec->delta);
        else
            attention.emplace_back(*spec, spec->ratios[layer]);
    }
    if (spec->has_ngram) ngram.emplace_back(spec->ngram, spec->wide());
    if (spec->has_mtp) mtp.emplace_back(*spec, spec->ratios[spec->layers()]);
}

void Lane::accept(std::size_t count) {
    for (DeltaState& state : delta) state.accept(count);
    for (AttentionCache& cache : attention) cache.accept(count);
    for (NgramState& state : ngram) state.accept(count);
    if (drafts) {
        const std::size_t dropped = undecided - count;
        waiting.resize(waiting.size() - dropped * spec->wide());
        following.resize(following.size() - dropped);
    }
    length += count;
    undecided = 0;
}

}  // namespace strata
