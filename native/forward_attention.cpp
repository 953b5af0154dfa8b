// Attention layers and their indexer; docs/arithmetic.md, sections 10 and 11.
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "model.h"
#include "select.h"

namespace strata {
namespace {

int format_of(KvType kv) { return kv == KvType::f32 ? 0 : kv == KvType::bf16 ? 30 : 1; }

// Memory of one thread that attends.
struct Bench {
    Bench(Scratch& memory, const AttentionSpec& a, std::size_t blocks, std::size_t row_bytes) {
        const std::size_t group = a.heads / a.kv_heads, partial = group * (a.head_dim + 2);
        const std::size_t floats = 2 * partial + group * attend_block + attend_memory(group) + 2 * blocks + a.index_dim;
        const std::size_t gathered = 2 * attend_block * row_bytes, chosen = (blocks + attend_block) * sizeof(std::uint32_t);
        std::uint8_t* at = memory.get<std::uint8_t>(floats * 4 + gathered + 2 * chosen + 8 * cache_line);
        const auto take = [&](std::size_t bytes) {
            std::uint8_t* p = at;
            at += round_up(bytes, cache_line);
            return p;
        };
        columns = reinterpret_cast<float*>(take(attend_memory(group) * 4));
        part = reinterpret_cast<float*>(take(partial * 4));
        whole = reinterpret_cast<float*>(take(partial * 4));
        scores = reinterpret_cast<float*>(take(group * attend_block * 4));
        block_scores = reinterpret_cast<float*>(take(2 * blocks * 4));
        key = reinterpret_cast<float*>(take(a.index_dim * 4));
        k = take(attend_block * row_bytes);
        v = take(attend_block * row_bytes);
        order = reinterpret_cast<std::uint32_t*>(take(2 * chosen));
    }
    float *columns, *part, *whole, *scores, *block_scores, *key;
    std::uint8_t *k, *v;
    std::uint32_t* order;
};

}  // namespace

void Model::attention(const AttentionWeights& w, const float* x, std::size_t rows, std::size_t silent,
                      const std::vector<CacheSpan>& spans, float* out) {
    const AttentionSpec& a = spec_->attention;
    const std::size_t wide = a.heads * a.head_dim, narrow = a.kv_heads * a.head_dim, index = a.index_heads * a.index_dim;
    float* both = at_.both.get<float>(rows * 2 * wide);
    float* k = at_.k.get<float>(rows * narrow);
    float* v = at_.v.get<float>(rows * narrow);
    float* index_q = w.index_q ? at_.index_q.get<float>(rows * index) : nullptr;
    float* raw = w.index_q ? at_.raw.get<float>(rows * a.index_dim) : nullptr;
    {
        const Timed timed(profile, Op::dense);
        if (silent > 0) {
            const std::size_t heard = rows - silent;
            const float* last = x + silent * spec_->hidden;
            if (w.index_q)
                products(x, rows, {{w.k, k}, {w.v, v}, {w.index_k, raw}});
            else
                products(x, rows, {{w.k, k}, {w.v, v}});
            if (heard > 0 && w.index_q)
                products(last, heard, {{w.q, both + silent * 2 * wide}, {w.index_q, index_q + silent * index}});
            else if (heard > 0)
                products(last, heard, {{w.q, both + silent * 2 * wide}});
        } else if (w.index_q) {
            products(x, rows, {{w.q, both}, {w.k, k}, {w.v, v}, {w.index_q, index_q}, {w.index_k, raw}});
        } else {
            products(x, rows, {{w.q, both}, {w.k, k}, {w.v, v}});
        }
    }
    float* q = at_.q.get<float>(rows * wide);
    float* heads = at_.heads.get<float>(rows * wide);
    std::vector<std::pair<const CacheSpan*, std::size_t>> row_of(rows);  // span and position
    for (const CacheSpan& span : spans) {
        const std::size_t position = span.cache->total();
        for (std::size_t i = 0; i < span.count; ++i) row_of[span.first + i] = {&span, position + i};
        span.cache->grow(span.count, raw ? raw + span.first * a.index_dim : nullptr);
        cache_rows(w, span, silent);
        if (w.index_q) index_rows(w, span, silent, index_q);
    }
    if (rows == silent) return;
    {
        const Timed timed(profile, Op::attention);
        pool_.each([&](int thread, int threads) {
            const Part mine = part_of((rows - silent) * a.kv_heads, thread, threads);
            for (std::size_t item = mine.begin; item < mine.end; ++item) {
                const std::size_t r = silent + item / a.kv_heads, group = item % a.kv_heads;
                const AttentionCache& cache = *row_of[r].first->cache;
                attend_row(cache, row_of[r].second, group, q + r * wide, index_q ? index_q + r * index : nullptr,
                           heads + r * wide, thread);
                for (std::size_t h = group * (a.heads / a.kv_heads); h < (group + 1) * (a.heads / a.kv_heads); ++h) {
                    float* head = heads + r * wide + h * a.head_dim;
                    kernels().window.sigmoid_times(head, both + r * 2 * wide + (2 * h + 1) * a.head_dim, head, a.head_dim);
                }
            }
        });
    }
    const Timed timed(profile, Op::dense);
    products(heads + silent * wide, rows - silent, {{w.out, out + silent * spec_->hidden}});
}

// Queries, keys and values of one cache's rows: normed, rotated, rounded where they are kept.
void Model::cache_rows(const AttentionWeights& w, const CacheSpan& span, std::size_t silent) {
    const Timed timed(profile, Op::attention);
    const AttentionSpec& a = spec_->attention;
    const WindowKernels& run = kernels().window;
    const std::size_t wide = a.heads * a.head_dim, half = a.rope_dim / 2;
    const int format = format_of(spec_->kv);
    const float* both = static_cast<const float*>(at_.both.current());
    float* q = static_cast<float*>(at_.q.current());
    float* k = static_cast<float*>(at_.k.current());
    const float* v = static_cast<const float*>(at_.v.current());
    AttentionCache& cache = *span.cache;
    const std::size_t start = cache.total() - span.count;
    each_row(span.count, 8 * wide, [&](std::size_t i) {
        const std::size_t r = span.first + i, position = start + i;
        const float *cos = cos_ + position * half, *sin = sin_ + position * half;
        for (std::size_t h = 0; r >= silent && h < a.heads; ++h) {
            float* head = q + (r * a.heads + h) * a.head_dim;
            run.rms_norm(both + (r * a.heads + h) * 2 * a.head_dim, w.q_gamma, head, a.head_dim, a.head_dim, spec_->eps);
            run.rope(head, cos, sin, half);
        }
        for (std::size_t g = 0; g < a.kv_heads; ++g) {
            float* key = k + (r * a.kv_heads + g) * a.head_dim;
            run.rms_norm(key, w.k_gamma, key, a.head_dim, a.head_dim, spec_->eps);
            run.rope(key, cos, sin, half);
            run.round_row(key, cache.k.row(g, position), a.head_dim, format);
            run.round_row(v + (r * a.kv_heads + g) * a.head_dim, cache.v.row(g, position), a.head_dim, format);
        }
    });
}

// Index queries of one cache's rows, in place, and the keys of the blocks that the rows complete.
void Model::index_rows(const AttentionWeights& w, const CacheSpan& span, std::size_t silent, float* queries) {
    const Timed timed(profile, Op::indexer);
    const AttentionSpec& a = spec_->attention;
    const WindowKernels& run = kernels().window;
    const std::size_t half = a.rope_dim / 2, index = a.index_heads * a.index_dim;
    AttentionCache& cache = *span.cache;
    const std::size_t start = cache.total() - span.count;
    each_row(span.count, 8 * index, [&](std::size_t i) {
        for (std::size_t h = 0; span.first + i >= silent && h < a.index_heads; ++h) {
            float* q = queries + (span.first + i) * index + h * a.index_dim;
            run.rms_norm(q, w.index_q_gamma, q, a.index_dim, a.index_dim, spec_->eps);
            run.rope(q, cos_ + (start + i) * half, sin_ + (start + i) * half, half);
        }
    });
    const std::size_t ratio = cache.ratio, open = cache.length / ratio, done = start / ratio, now = cache.total() / ratio;
    float* key = at_.pooled.get<float>(a.index_dim);
    for (std::size_t b = done; b < now; ++b) {
        run.pool_keys(cache.open.data() + (b - open) * ratio * a.index_dim, ratio, key, a.index_dim);
        run.rms_norm(key, w.index_k_gamma, key, a.index_dim, a.index_dim, spec_->eps);
        run.rope(key, cos_ + b * ratio * half, sin_ + b * ratio * half, half);
        run.round_row(key, cache.index.row(0, b), a.index_dim, format_of(spec_->kv));
    }
}

// The heads of one group of one row: q and out are the row's (heads, dim).
void Model::attend_row(const AttentionCache& cache, std::size_t position, std::size_t group, const float* q,
                       const float* index_q, float* out, int thread) {
    const AttentionSpec& a = spec_->attention;
    const WindowKernels& run = kernels().window;
    const std::size_t heads = a.heads / a.kv_heads, row_bytes = cache.k.row_bytes();
    const std::size_t complete = cache.ratio ? (position + 1) / cache.ratio : 0;
    const std::size_t budget = cache.ratio ? a.index_budget / cache.ratio : 0;
    const bool all = index_q == nullptr || complete <= budget;
    const Bench bench(thread_scratch_[std::size_t(thread)], a, all ? 0 : complete, row_bytes);
    const int format = format_of(spec_->kv);
    std::size_t count = position + 1;
    if (!all) {
        score_blocks(run, a, cache.index, complete, index_q, format, bench.key, bench.block_scores);
        select_largest(bench.block_scores, complete, budget, bench.order);
        count = budget * cache.ratio + (position + 1 - complete * cache.ratio);
    }
    AttendWork work{q + group * heads * a.head_dim, heads, a.head_dim, a.scale, format, bench.part, bench.part + heads,
                    bench.part + 2 * heads, bench.scores, bench.columns};
    float *top = bench.whole, *total = top + heads, *weighted = total + heads;
    for (std::size_t first = 0; first < count; first += attend_block) {
        const std::size_t some = std::min(attend_block, count - first);
        AttendWork::Keys keys{cache.k.row(group, first), cache.v.row(group, first), some};
        if (!all) {
            keys = {bench.k, bench.v, some};
            for (std::size_t i = 0; i < some; ++i) {
                const std::size_t rank = first + i, b = rank / cache.ratio;
                const std::size_t start = b < budget ? bench.order[b] : complete;
                const std::size_t at = start * cache.ratio + rank - std::min(b, budget) * cache.ratio;
                std::memcpy(bench.k + i * row_bytes, cache.k.row(group, at), row_bytes);
                std::memcpy(bench.v + i * row_bytes, cache.v.row(group, at), row_bytes);
            }
        }
        if (first % attend_partial == 0) run.attend_start(work);
        run.attend_block(work, keys);
        const bool ends = first + some == count || (first + some) % attend_partial == 0;
        if (!ends) continue;
        if (first < attend_partial)
            std::memcpy(bench.whole, bench.part, heads * (a.head_dim + 2) * sizeof(float));
        else
            run.attend_merge(top, total, weighted, work);
    }
    run.attend_finish(total, weighted, out + group * heads * a.head_dim, heads, a.head_dim);
}

}  // namespace strata
