// A model and its forward pass over a window of rows of several lanes; docs/arithmetic.md has every op's order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "memory.h"
#include "pool.h"
#include "product.h"
#include "profile.h"
#include "spec.h"
#include "state.h"

namespace strata {

// Weights as the ops take them. Pointers are the owner's (the binding keeps them alive); matrices are looked at when a
// window runs, so that repacking may change them in between.
struct Site {
    const float* gamma;
    const Matrix *down, *up, *inject;  // inject: null at a final mixer
};

struct DeltaWeights {
    const Matrix *qkv, *gate, *alpha, *beta, *out;
    const float *a, *dt, *conv, *gamma;  // conv: (taps, C)
};

struct AttentionWeights {
    const Matrix *q, *k, *v, *out, *index_q, *index_k;  // no indexer: null
    const float *q_gamma, *k_gamma, *index_q_gamma, *index_k_gamma;
    std::size_t ratio;
};

struct FeedForward {
    const Matrix *gate, *up, *down;
};

struct ExpertWeights {
    const Matrix *router, *shared_gate;
    std::vector<FeedForward> experts;
    FeedForward shared;
};

struct NgramWeights {
    const Matrix *table, *key, *value;
    const float *conv, *key_gamma, *query_gamma, *conv_gamma;  // conv: (taps, S*D)
};

struct Block {
    Site attention_site, expert_site;
    DeltaWeights delta;          // one of these two
    AttentionWeights attention;
    ExpertWeights experts;
};

struct MtpWeights {
    const float *embedding_gamma, *hidden_gamma;
    const Matrix* project;
    Block block;
    Site head;
};

struct Weights {
    const Matrix *embedding, *output;
    std::vector<Block> blocks;
    Site head;
    NgramWeights ngram;
    MtpWeights mtp;
};

constexpr std::size_t max_taps = 16, max_used = 64;  // of a convolution, of experts a row

// Rows [first, ...) of `a`.
inline Activations rows_from(const Activations& a, std::size_t first) {
    return {a.x + first * a.k, a.records + first * a.stride, a.transposed + first * a.stride * block,
            a.rows - first, a.k, a.blocks, a.stride};
}

// New tokens of one lane. The last `tentative` are drafts: they stay undecided. Logits are wanted from row `logits_from`.
struct Segment {
    Lane* lane;
    const std::int64_t* tokens;
    std::size_t count, tentative, logits_from;
};

// A lane to draft for: `token` is the one after its last position. Its chain ends before the first draft of which the
// block says that the chance of it and all before it is below `least`.
struct Draft {
    Lane* lane;
    std::int64_t token;
    float least;
};

class Model {
public:
    // `largest_k`: columns of the widest matrix.
    Model(std::shared_ptr<const Spec> spec, Weights weights, std::size_t largest_k, int threads);

    // cos and sin, (positions, rope_dim/2) each; they have to reach past every position of a window.
    void set_rope(const float* cos, const float* sin, std::size_t positions);

    // Advance the lanes; `logits` has a row (vocabulary) for every row wanted, in order. `streams`: null, or (rows, S*D)
    // after the last layer.
    void forward(const std::vector<Segment>& segments, float* logits, float* streams);

    struct CacheSpan {  // rows of one attention cache in the window
        AttentionCache* cache;
        std::size_t first, count;
    };
    // The MTP block on rows of several caches: `streams` (R, S*D) and the tokens after them. The rows are committed.
    // Logits (R, vocabulary) and the block's own streams (R, S*D).
    void mtp(const std::vector<CacheSpan>& spans, const float* streams, const std::int64_t* tokens, float* logits,
             float* out);

    // At most `depth` greedy drafts for each lane, drafts[i * depth + d], -1 past a chain's end, and what the block says of
    // the chance that they all stand up to there (0 past the end). The lanes must keep drafts and be decided.
    void draft(const std::vector<Draft>& lanes, std::size_t depth, std::int64_t* drafts, float* chances);

    // The routed experts alone: out (rows, D) = sum over `used` of weight * expert, in order, for x (rows, D), ids and weights
    // (rows, used). Uses nothing of the model but its threads and the spec's sizes of experts.
    void expert_layer(const std::vector<FeedForward>& experts, const float* x, std::size_t rows, const std::uint32_t* ids,
                      const float* weights, std::size_t used, float* out);

    // Bring the recurrent states up to the accepted rows, as the next window would do.
    void replay(Lane& lane);
    // Let the MTP block read every decided position whose next token is known: the last alone waits.
    void catch_up(Lane& lane);

    std::size_t positions() const { return positions_; }
    const Spec& spec() const { return *spec_; }
    const std::shared_ptr<const Spec>& shared_spec() const { return spec_; }
    Pool& pool() { return pool_; }
    Profile profile;

    static constexpr std::size_t window_rows = 1024;  // a larger window is computed in parts, which changes no bit

private:
    struct Span {  // rows of one lane in the window
        Lane* lane;
        std::size_t first, count, tentative;
    };
    struct Products {  // matrices that the same rows meet
        const Matrix* w;
        float* y;
    };

    // forward.cpp
    void window(const std::vector<Segment>& segments, float*& logits, float*& streams);
    void settle(const std::vector<Span>& spans);
    void embed(const std::int64_t* tokens, std::size_t rows, float* streams);
    void layer(std::size_t number, float* streams, std::size_t rows, const std::vector<Span>& spans);
    // A block around its mixer: mixer(input, output), rows of the hidden size. The first `silent` rows end there.
    using Mixer = std::function<void(const float*, float*)>;
    void block(const Block& w, float* streams, std::size_t rows, std::size_t silent, const Mixer& mixer);
    void head(const Site& site, const float* streams, std::size_t rows, float* logits);
    // Streams (rows, S*D) to the block's input (rows, D) and the injection weights (rows, S).
    void mix(const Site& site, const float* streams, std::size_t rows, float* mixed, float* weights);
    void inject(float* streams, const float* output, const float* weights, std::size_t rows);

    // multiply.cpp
    // x (rows, k) times each matrix: y (rows, n).
    void products(const float* x, std::size_t rows, std::initializer_list<Products> list);
    // The rows ready for products; quantized if one of the matrices needs it.
    Activations activations(const float* x, std::size_t rows, std::size_t k, Scratch& memory, bool quantize);
    void multiply(const Activations& a, std::initializer_list<Products> list);
    // f(row) for each row; by all threads where `work` floats a row are worth it.
    template <typename F>
    void each_row(std::size_t rows, std::size_t work, F&& f) {
        if (rows == 1 || rows * work < 16384) {
            for (std::size_t r = 0; r < rows; ++r) f(r);
            return;
        }
        pool_.items(rows, f);
    }

    // forward_delta.cpp
    void delta(const DeltaWeights& w, const float* x, std::size_t rows, std::size_t slot, const std::vector<Span>& spans,
               float* out);
    void delta_inputs(const DeltaWeights& w, const float* qkv, std::size_t slot, const std::vector<Span>& spans);
    void recurrence(std::size_t slot, const std::vector<Span>& spans, float* heads);
    void keep_delta(const float* qkv, std::size_t slot, const std::vector<Span>& spans);

    // forward_attention.cpp
    // The first `silent` rows only enter their caches: of them `out` is not written.
    void attention(const AttentionWeights& w, const float* x, std::size_t rows, std::size_t silent,
                   const std::vector<CacheSpan>& spans, float* out);
    void cache_rows(const AttentionWeights& w, const CacheSpan& span, std::size_t silent);
    void index_rows(const AttentionWeights& w, const CacheSpan& span, std::size_t silent, float* queries);
    void attend_row(const AttentionCache& cache, std::size_t position, std::size_t group, const float* q,
                    const float* index_q, float* out, int thread);

    // forward_experts.cpp
    void experts(const ExpertWeights& w, const float* x, std::size_t rows, float* out);
    struct Shared {  // a row of the shared expert, and its gate before the sigmoid
        const float* row;
        float gate;
    };
    template <typename F>
    void mix_results(std::size_t rows, std::size_t used, const float* weights, F&& shared, float* out);
    // `shared`: null, or the net that every row meets.
    void run_experts(const std::vector<FeedForward>& experts, const FeedForward* shared, const Activations& a,
                     const std::uint32_t* ids, std::size_t used);

    // forward_ngram.cpp
    // Ask for the rows of the embedding and of the n-gram table that the tokens will gather.
    void read_ahead(const std::vector<Segment>& segments);
    // Table rows of new tokens of a lane: (count, rows_a_token).
    void table_rows(const Lane& lane, const std::int64_t* tokens, std::size_t count, std::int64_t* rows) const;
    void ngram(const std::int64_t* tokens, std::size_t rows, const std::vector<Span>& spans, float* streams);

    // forward_mtp.cpp
    void meet(Lane& lane, std::int64_t token);
    void follow(const std::vector<Span>& spans, const std::int64_t* tokens, const float* streams);
    void mtp_block(const std::vector<CacheSpan>& spans, std::size_t silent, const float* streams,
                   const std::int64_t* tokens, float* out);
    void guess(const float* streams, std::size_t rows, std::int64_t* tokens, float* chances);

    std::shared_ptr<const Spec> spec_;
    Weights weights_;
    Pool pool_;
    const float *cos_ = nullptr, *sin_ = nullptr;
    std::size_t positions_ = 0;
    std::vector<std::size_t> slot_;  // of each layer among those of its kind

    // Memory of the window, by what it holds.
    struct Buffers {
        Scratch tokens, streams, wanted, mixed, output, weights;                      // the window
        Scratch flat, low, mask, activations;                                         // hyper-connections, products
        Scratch qkv, conv, gate, beta, decay, heads;                                  // delta rule
        Scratch both, q, k, v, index_q, raw, pooled;                                  // attention
        Scratch logits, ids, route, place, gated, up, pairs, inner, shared;           // experts
        Scratch gathered, key, value, gates, normed;                                  // n-gram layer
        Scratch mtp_in, mtp_streams, mtp_next;                                        // MTP block
    } at_;
    std::vector<Aligned<std::uint8_t>> product_scratch_;  // one a thread
    std::vector<Scratch> thread_scratch_;
};

}  // namespace strata
