// The MTP block and the drafts that it makes; docs/arithmetic.md, section 16. Row p of its cache takes the trunk's streams
// at position p and the token at p + 1, so the last position waits until the next token is known.
#include <algorithm>
#include <numeric>

#include "kernels.h"
#include "model.h"
#include "rows.h"
#include "sampling.h"

namespace strata {
namespace {

constexpr std::size_t part_rows = 256;  // rows of the block computed at a time while it follows a prompt
constexpr std::size_t lag = 8;  // rows that may wait: more would make the first draft after a pause seem dear

}  // namespace

void Model::mtp(const std::vector<CacheSpan>& spans, const float* streams, const std::int64_t* tokens, float* logits,
                float* out) {
    const Denormals ieee;
    std::size_t rows = 0;
    for (const CacheSpan& span : spans) rows += span.count;
    mtp_block(spans, 0, streams, tokens, out);
    for (const CacheSpan& span : spans) span.cache->commit(span.count);
    if (logits) head(weights_.mtp.head, out, rows, logits);
}

// The rows become undecided rows of their caches; the first `silent` of them do no more, and their rows of `out` are lost.
// `out` (R, S*D) may be `streams`.
void Model::mtp_block(const std::vector<CacheSpan>& spans, std::size_t silent, const float* streams,
                      const std::int64_t* tokens, float* out) {
    const MtpWeights& w = weights_.mtp;
    const WindowKernels& run = kernels().window;
    const std::size_t hidden = spec_->hidden, wide = spec_->wide(), count = spec_->streams;
    std::size_t rows = 0;
    for (const CacheSpan& span : spans) rows += span.count;
    float* both = at_.mtp_in.get<float>(rows * 2 * wide);
    each_row(rows, 8 * wide, [&](std::size_t r) {
        float* row = both + r * 2 * wide;
        dequantize_rows(*weights_.embedding, tokens + r, 1, row, hidden);
        run.rms_norm(row, w.embedding_gamma, row, hidden, hidden, spec_->eps);
        for (std::size_t s = count; s-- > 0;) {
            float* to = row + s * 2 * hidden;
            if (s > 0) std::copy_n(row, hidden, to);
            run.rms_norm(streams + r * wide + s * hidden, w.hidden_gamma + s * hidden, to + hidden, hidden, hidden,
                         spec_->eps);
        }
    });
    products(both, rows * count, {{w.project, out}});
    block(w.block, out, rows, silent, [&](const float* input, float* output) {
        attention(w.block.attention, input, rows, silent, spans, output);
    });
}

// The lane's next token is known: was it the one that the last draft took for granted?
void Model::meet(Lane& lane, std::int64_t token) {
    if (lane.drafted_after < 0) return;
    const bool right = lane.drafted_after == token;
    lane.mtp[0].accept(right ? 1 : 0);
    if (right) lane.waiting.erase(lane.waiting.begin(), lane.waiting.begin() + std::ptrdiff_t(spec_->wide()));
    lane.drafted_after = -1;
}

// Lanes that draft keep the window's streams for the MTP block, and let it follow a prompt.
void Model::follow(const std::vector<Span>& spans, const std::int64_t* tokens, const float* streams) {
    const std::size_t wide = spec_->wide();
    for (const Span& span : spans) {
        Lane& lane = *span.lane;
        if (!lane.drafts) continue;
        const std::size_t known = lane.waiting.empty() ? 1 : 0;  // nothing waits for the first token
        lane.following.insert(lane.following.end(), tokens + span.first + known, tokens + span.first + span.count);
        lane.waiting.insert(lane.waiting.end(), streams + span.first * wide, streams + (span.first + span.count) * wide);
        if (lane.waiting.size() / wide - lane.undecided > lag) {
            const Timed timed(profile, Op::mtp);
            catch_up(lane);
        }
    }
}

void Model::catch_up(Lane& lane) {
    if (lane.waiting.empty()) return;
    const std::size_t wide = spec_->wide(), decided = lane.waiting.size() / wide - lane.undecided;
    if (decided <= 1) return;
    const Denormals ieee;
    const std::size_t ready = decided - 1;
    for (std::size_t first = 0; first < ready; first += part_rows) {
        const std::size_t some = std::min(part_rows, ready - first);
        float* out = at_.mtp_streams.get<float>(some * wide);
        mtp_block({{&lane.mtp[0], 0, some}}, some, lane.waiting.data() + first * wide, lane.following.data() + first, out);
        lane.mtp[0].commit(some);
    }
    lane.waiting.erase(lane.waiting.begin(), lane.waiting.begin() + std::ptrdiff_t(ready * wide));
    lane.following.erase(lane.following.begin(), lane.following.begin() + std::ptrdiff_t(ready));
}

// The block's drafts after `rows` of its streams, and what it says of their chances.
void Model::guess(const float* streams, std::size_t rows, std::int64_t* tokens, float* chances) {
    const std::size_t some = spec_->vocabulary;
    float* logits = at_.logits.get<float>(rows * some);
    head(weights_.mtp.head, streams, rows, logits);
    each_row(rows, 4 * some, [&](std::size_t r) {
        float* row = logits + r * some;
        const std::size_t best = argmax(row, some);
        kernels().window.exp_minus(row, row[best], row, some);
        float sums[16] = {};
        for (std::size_t i = 0; i + 16 <= some; i += 16)
            for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] += row[i + lane];
        for (std::size_t i = some / 16 * 16; i < some; ++i) sums[0] += row[i];
        tokens[r] = std::int64_t(best);
        chances[r] = 1.0f / std::accumulate(sums, sums + 16, 0.0f);
    });
}

void Model::draft(const std::vector<Draft>& lanes, std::size_t depth, std::int64_t* drafts, float* chances) {
    std::fill_n(drafts, lanes.size() * depth, -1);
    std::fill_n(chances, lanes.size() * depth, 0.0f);
    if (lanes.empty() || depth == 0) return;
    const Denormals ieee;
    const std::uint64_t start = profile.on ? Profile::now() : 0;
    const std::size_t wide = spec_->wide(), count = lanes.size();
    // First the rows that stand by now, which only enter the caches; then one a lane that drafts.
    std::vector<CacheSpan> spans;
    std::vector<std::int64_t> tokens;
    std::size_t settled = 0;
    for (const Draft& d : lanes) {
        if (d.lane->drafted_after >= 0) d.lane->mtp[0].accept(0);
        const std::size_t some = d.lane->waiting.size() / wide - 1;
        if (some > 0) spans.push_back({&d.lane->mtp[0], settled, some});
        tokens.insert(tokens.end(), d.lane->following.begin(), d.lane->following.end());
        settled += some;
    }
    float* x = at_.mtp_streams.get<float>((settled + count) * wide);
    float *to = x, *last = x + settled * wide;
    for (std::size_t i = 0; i < count; ++i) {
        const std::vector<float>& waiting = lanes[i].lane->waiting;
        to = std::copy(waiting.begin(), waiting.end() - std::ptrdiff_t(wide), to);
        std::copy(waiting.end() - std::ptrdiff_t(wide), waiting.end(), last + i * wide);
        spans.push_back({&lanes[i].lane->mtp[0], settled + i, 1});
        tokens.push_back(lanes[i].token);
    }
    mtp_block(spans, settled, x, tokens.data(), x);
    std::vector<std::size_t> alive(count);
    std::iota(alive.begin(), alive.end(), std::size_t(0));
    for (const Draft& d : lanes) {
        Lane& lane = *d.lane;
        const std::size_t some = lane.waiting.size() / wide - 1;
        lane.mtp[0].commit(some);
        lane.waiting.erase(lane.waiting.begin(), lane.waiting.begin() + std::ptrdiff_t(some * wide));
        lane.following.clear();
        lane.drafted_after = d.token;
    }
    std::vector<std::int64_t> drawn(count);
    std::vector<float> chance(count), chain(count, 1.0f);
    for (std::size_t d = 0;; ++d) {
        guess(last, alive.size(), drawn.data(), chance.data());
        std::size_t kept = 0;
        for (std::size_t at = 0; at < alive.size(); ++at) {
            const std::size_t i = alive[at];
            chain[i] *= chance[at];
            if (chain[i] < lanes[i].least) continue;
            drafts[i * depth + d] = drawn[at];
            chances[i * depth + d] = chain[i];
            if (kept < at) std::copy_n(last + at * wide, wide, last + kept * wide);
            drawn[kept] = drawn[at];
            alive[kept++] = i;
        }
        alive.resize(kept);
        if (kept == 0 || d + 1 == depth) break;
        spans.clear();
        for (std::size_t at = 0; at < kept; ++at) spans.push_back({&lanes[alive[at]].lane->mtp[0], at, 1});
        mtp_block(spans, 0, last, drawn.data(), last);
    }
    if (profile.on) profile.nanoseconds[std::size_t(Op::mtp)] += Profile::now() - start;
}

}  // namespace strata
