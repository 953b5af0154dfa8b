// The n-gram layer; docs/arithmetic.md, section 14.
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "model.h"
#include "rows.h"

namespace strata {
namespace {

// numpy's remainder: the sign of the divisor.
std::int64_t modulo(std::int64_t a, std::int64_t size) {
    const std::int64_t r = a % size;
    return r < 0 ? r + size : r;
}

std::int64_t times(std::int64_t a, std::int64_t b) { return std::int64_t(std::uint64_t(a) * std::uint64_t(b)); }

// Table rows of the token history[at]: rows_a_token.
void hash_rows(const NgramSpec& spec, const std::int64_t* history, std::int64_t* rows) {
    std::int64_t mixed = times(history[0], spec.multipliers[0]);
    bool cut = false;
    for (std::size_t shift = 1; shift < spec.order; ++shift) {
        const std::int64_t before = *(history - shift);
        cut = cut || before == spec.eos;
        mixed ^= times(cut ? spec.eos : before, spec.multipliers[shift]);
        for (std::size_t h = 0; h < spec.heads; ++h) {
            const std::size_t i = (shift - 1) * spec.heads + h;
            rows[i] = modulo(mixed, spec.sizes[i]) + spec.offsets[i];
        }
    }
}

}  // namespace

void Model::table_rows(const Lane& lane, const std::int64_t* tokens, std::size_t count, std::int64_t* rows) const {
    const NgramSpec& n = spec_->ngram;
    std::vector<std::int64_t> history = lane.ngram[0].tokens;
    history.insert(history.end(), tokens, tokens + count);
    for (std::size_t i = 0; i < count; ++i) hash_rows(n, history.data() + n.order - 1 + i, rows + i * n.rows_a_token());
}

void Model::read_ahead(const std::vector<Segment>& segments) {
    const Timed timed(profile, Op::ngram);
    const std::size_t some = spec_->has_ngram ? spec_->ngram.rows_a_token() : 0;
    for (const Segment& s : segments) {
        strata::read_ahead(*weights_.embedding, s.tokens, s.count);
        if (some == 0) continue;
        std::int64_t* rows = at_.ids.get<std::int64_t>(s.count * some);
        table_rows(*s.lane, s.tokens, s.count, rows);
        strata::read_ahead(*weights_.ngram.table, rows, s.count * some);
    }
}

void Model::ngram(const std::int64_t* tokens, std::size_t rows, const std::vector<Span>& spans, float* streams) {
    const Timed timed(profile, Op::ngram);
    const NgramSpec& n = spec_->ngram;
    const NgramWeights& w = weights_.ngram;
    const WindowKernels& run = kernels().window;
    const std::size_t some = n.rows_a_token(), hidden = spec_->hidden, wide = spec_->wide(), count = spec_->streams;
    std::int64_t* ids = at_.ids.get<std::int64_t>(rows * some);
    for (const Span& span : spans) table_rows(*span.lane, tokens + span.first, span.count, ids + span.first * some);
    float* gathered = at_.gathered.get<float>(rows * some * n.row_width);
    each_row(rows, 4 * some * n.row_width, [&](std::size_t r) {
        dequantize_rows(*w.table, ids + r * some, some, gathered + r * some * n.row_width, n.row_width);
    });
    float* value = at_.value.get<float>(rows * hidden);
    float* key = at_.key.get<float>(rows * wide);
    products(gathered, rows, {{w.value, value}, {w.key, key}});
    float* normed = at_.normed.get<float>(rows * wide);
    const float root = std::sqrt(float(hidden));
    // key: normed keys, then the gated values u; normed: queries, then the convolution's inputs.
    each_row(rows, 8 * wide, [&](std::size_t r) {
        float *k = key + r * wide, *q = normed + r * wide;
        run.rms_norm(k, w.key_gamma, k, wide, hidden, spec_->eps);
        run.rms_norm(streams + r * wide, w.query_gamma, q, wide, hidden, spec_->eps);
        for (std::size_t s = 0; s < count; ++s) {
            const float g = run.lane_dot(k + s * hidden, q + s * hidden, hidden) / root;
            run.ngram_gate(g, value + r * hidden, k + s * hidden, hidden);
        }
        run.rms_norm(k, w.conv_gamma, q, wide, hidden, spec_->eps);
    });
    float* mixed = at_.flat.get<float>(rows * wide);
    for (const Span& span : spans) {
        const float *tail = span.lane->ngram[0].tail.data(), *fresh = normed + span.first * wide;
        each_row(span.count, 8 * wide, [&](std::size_t i) {
            const float* taps[max_taps];
            for (std::size_t tap = 0; tap < n.conv_taps; ++tap) {
                const std::size_t at = i + tap * n.order;
                taps[tap] = at < n.tail_rows() ? tail + at * wide : fresh + (at - n.tail_rows()) * wide;
            }
            const std::size_t r = span.first + i;
            run.conv_silu(taps, n.conv_taps, w.conv, mixed + r * wide, wide);
            run.add_ngram(streams + r * wide, key + r * wide, mixed + r * wide, wide);
        });
    }
    for (const Span& span : spans) {
        NgramState& state = span.lane->ngram[0];
        const std::size_t committed = span.count - span.tentative;
        state.advance(tokens + span.first, normed + span.first * wide, committed);
        const std::int64_t* drafts = tokens + span.first + committed;
        state.undecided_tokens.assign(drafts, drafts + span.tentative);
        state.undecided_rows.assign(normed + (span.first + committed) * wide, normed + (span.first + span.count) * wide);
    }
}

}  // namespace strata
