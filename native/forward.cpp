// The window: embedding, layers behind their hyper-connections, head.
#include <algorithm>

#include "kernels.h"
#include "load.h"
#include "model.h"
#include "rows.h"

namespace strata {
namespace {

constexpr std::size_t mix_rows = 128;  // rows mixed at a time, to bound memory: streams are wide

}  // namespace

Model::Model(std::shared_ptr<const Spec> spec, Weights weights, std::size_t largest_k, int threads)
    : spec_(std::move(spec)), weights_(std::move(weights)), pool_(threads) {
    std::size_t deltas = 0, attentions = 0;
    for (const bool is_delta : spec_->delta_layers) slot_.push_back(is_delta ? deltas++ : attentions++);
    for (int thread = 0; thread < pool_.threads(); ++thread)
        product_scratch_.push_back(aligned<std::uint8_t>(product_scratch_bytes(largest_k)));
    thread_scratch_.resize(std::size_t(pool_.threads()));
    if (weights_.embedding != weights_.output) expect_gathers(*weights_.embedding);
    if (spec_->has_ngram) expect_gathers(*weights_.ngram.table);
}

void Model::set_rope(const float* cos, const float* sin, std::size_t positions) {
    cos_ = cos;
    sin_ = sin;
    positions_ = positions;
}

void Model::forward(const std::vector<Segment>& segments, float* logits, float* streams) {
    const Denormals ieee;
    const std::uint64_t start = profile.on ? Profile::now() : 0;
    read_ahead(segments);
    std::vector<Segment> part;
    std::size_t rows = 0;
    const auto flush = [&] {
        if (!part.empty()) window(part, logits, streams);
        part.clear();
        rows = 0;
    };
    for (Segment left : segments) {
        while (left.count > 0) {
            std::size_t take = std::min(left.count, window_rows - rows);
            // Undecided rows stay together: a cut lies before them.
            if (take < left.count) take = std::min(take, left.count - left.tentative);
            if (take == 0) {
                flush();
                continue;
            }
            const bool last = take == left.count;
            part.push_back({left.lane, left.tokens, take, last ? left.tentative : 0, std::min(left.logits_from, take)});
            rows += take;
            left.tokens += take;
            left.count -= take;
            left.logits_from -= std::min(left.logits_from, take);
            if (!last || rows == window_rows) flush();
        }
    }
    flush();
    if (profile.on) profile.total += Profile::now() - start;
}

// One part of a window; `logits` and `streams` move on past what was written.
void Model::window(const std::vector<Segment>& segments, float*& logits, float*& streams) {
    std::vector<Span> spans;
    std::size_t rows = 0;
    for (const Segment& s : segments) {
        spans.push_back({s.lane, rows, s.count, s.tentative});
        rows += s.count;
        if (s.lane->drafts) meet(*s.lane, s.tokens[0]);
    }
    std::int64_t* tokens = at_.tokens.get<std::int64_t>(rows);
    for (std::size_t i = 0; i < spans.size(); ++i)
        std::copy_n(segments[i].tokens, spans[i].count, tokens + spans[i].first);
    const std::size_t wide = spec_->wide();
    float* x = at_.streams.get<float>(rows * wide);
    embed(tokens, rows, x);
    for (std::size_t number = 0; number < spec_->layers(); ++number) {
        if (spec_->has_ngram && number == spec_->ngram.layer) ngram(tokens, rows, spans, x);
        layer(number, x, rows, spans);
    }
    settle(spans);
    std::size_t wanted = 0;
    for (const Segment& s : segments) wanted += s.count - s.logits_from;
    if (wanted > 0) {
        float* picked = at_.wanted.get<float>(wanted * wide);
        float* to = picked;
        for (std::size_t i = 0; i < spans.size(); ++i)
            to = std::copy(x + (spans[i].first + segments[i].logits_from) * wide,
                           x + (spans[i].first + spans[i].count) * wide, to);
        head(weights_.head, picked, wanted, logits);
        logits += wanted * spec_->vocabulary;
    }
    if (streams) streams = std::copy_n(x, rows * wide, streams);
    follow(spans, tokens, x);
    if (profile.on) ++profile.windows;
}

void Model::settle(const std::vector<Span>& spans) {
    for (const Span& span : spans) {
        const std::size_t committed = span.count - span.tentative;
        for (AttentionCache& cache : span.lane->attention) cache.commit(committed);
        span.lane->length += committed;
        span.lane->undecided = span.tentative;
    }
}

void Model::embed(const std::int64_t* tokens, std::size_t rows, float* streams) {
    const Timed timed(profile, Op::embed);
    const std::size_t hidden = spec_->hidden, wide = spec_->wide();
    each_row(rows, wide, [&](std::size_t r) {
        float* first = streams + r * wide;
        dequantize_rows(*weights_.embedding, tokens + r, 1, first, hidden);
        for (std::size_t s = 1; s < spec_->streams; ++s) std::copy_n(first, hidden, first + s * hidden);
    });
}

void Model::layer(std::size_t number, float* streams, std::size_t rows, const std::vector<Span>& spans) {
    const Block& w = weights_.blocks[number];
    block(w, streams, rows, 0, [&](const float* input, float* output) {
        if (spec_->delta_layers[number]) return delta(w.delta, input, rows, slot_[number], spans, output);
        std::vector<CacheSpan> caches;
        for (const Span& s : spans) caches.push_back({&s.lane->attention[slot_[number]], s.first, s.count});
        attention(w.attention, input, rows, 0, caches, output);
    });
}

void Model::block(const Block& w, float* streams, std::size_t rows, std::size_t silent, const Mixer& mixer) {
    const std::size_t hidden = spec_->hidden;
    float* mixed = at_.mixed.get<float>(rows * hidden);
    float* weights = at_.weights.get<float>(rows * spec_->streams);
    float* output = at_.output.get<float>(rows * hidden);
    mix(w.attention_site, streams, rows, mixed, weights);
    mixer(mixed, output);
    rows -= silent;
    if (rows == 0) return;
    streams += silent * spec_->wide();
    inject(streams, output + silent * hidden, weights + silent * spec_->streams, rows);
    mix(w.expert_site, streams, rows, mixed, weights);
    experts(w.experts, mixed, rows, output);
    inject(streams, output, weights, rows);
}

void Model::mix(const Site& site, const float* streams, std::size_t rows, float* mixed, float* weights) {
    const Timed timed(profile, Op::hyper);
    const WindowKernels& run = kernels().window;
    const std::size_t count = spec_->streams, hidden = spec_->hidden, wide = spec_->wide(), rank = spec_->rank;
    const float share = float(count);
    for (std::size_t first = 0; first < rows; first += mix_rows) {
        const std::size_t some = std::min(mix_rows, rows - first);
        const float* x = streams + first * wide;
        float* flat = at_.flat.get<float>(some * wide);
        float* low = at_.low.get<float>(some * rank);
        float* mask = at_.mask.get<float>(some * wide);
        each_row(some, wide, [&](std::size_t r) {
            run.rms_norm(x + r * wide, site.gamma, flat + r * wide, wide, hidden, spec_->eps);
        });
        if (site.inject)
            products(flat, some, {{site.down, low}, {site.inject, weights + first * count}});
        else
            products(flat, some, {{site.down, low}});
        run.silu_share(low, some * rank, share);
        products(low, some, {{site.up, mask}});
        each_row(some, 4 * wide, [&](std::size_t r) {
            run.mix_streams(mask + r * wide, flat + r * wide, mixed + (first + r) * hidden, count, hidden);
        });
    }
    if (site.inject) run.inject_weights(weights, rows * count, share);
}

void Model::inject(float* streams, const float* output, const float* weights, std::size_t rows) {
    const Timed timed(profile, Op::hyper);
    const std::size_t count = spec_->streams, hidden = spec_->hidden, wide = spec_->wide();
    each_row(rows, wide, [&](std::size_t r) {
        kernels().window.inject(streams + r * wide, output + r * hidden, weights + r * count, count, hidden);
    });
}

void Model::head(const Site& site, const float* streams, std::size_t rows, float* logits) {
    float* mixed = at_.mixed.get<float>(rows * spec_->hidden);
    mix(site, streams, rows, mixed, nullptr);
    const Timed timed(profile, Op::head);
    products(mixed, rows, {{weights_.output, logits}});
}

}  // namespace strata
