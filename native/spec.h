// The facts of a model as strata.families gives them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata {

enum class KvType { f32, bf16, f16 };
inline std::size_t kv_bytes(KvType type) { return type == KvType::f32 ? 4 : 2; }

struct AttentionSpec {
    std::size_t heads, kv_heads, head_dim, rope_dim, index_heads, index_dim, index_budget;
    float scale;  // 1/sqrt(head_dim)
};

struct DeltaSpec {
    std::size_t key_heads, value_heads, key_dim, value_dim, conv_taps;
    bool silu_gate;
    float query_scale;  // 1/sqrt(key_dim)

    std::size_t key_width() const { return key_heads * key_dim; }
    std::size_t value_width() const { return value_heads * value_dim; }
    std::size_t conv_width() const { return 2 * key_width() + value_width(); }
};

struct ExpertSpec {
    std::size_t count, used, width, shared_width;
};

struct NgramSpec {
    std::size_t layer, order, heads, row_width, conv_taps;
    std::int64_t eos;
    std::vector<std::int64_t> multipliers, offsets, sizes;

    std::size_t rows_a_token() const { return heads * (order - 1); }
    std::size_t tail_rows() const { return (conv_taps - 1) * order; }
};

struct Spec {
    std::size_t vocabulary, hidden, streams, rank;
    float eps;
    std::vector<bool> delta_layers;    // one a trunk layer
    std::vector<std::size_t> ratios;   // of every block, MTP included
    bool has_ngram, has_mtp;
    KvType kv;
    AttentionSpec attention;
    DeltaSpec delta;
    ExpertSpec experts;
    NgramSpec ngram;

    std::size_t layers() const { return delta_layers.size(); }
    std::size_t wide() const { return streams * hidden; }
};

}  // namespace strata
