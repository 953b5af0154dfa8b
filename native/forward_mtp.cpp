// The MTP block and the drafts that it makes; docs/arithmetic.md, section 16. Row p of its cache takes the trunk's streams
// at position p and the token at p + 1, so the last position waits until the next token is known.
#include <algorithm>

#include "kernels.h"
#include "model.h"
#include "rows.h"
#include "sampling.h"

namespace strata {
namespace {

constexpr std::size_t part_rows = 256;  // rows of the block computed at a time while it follows a prompt
constexpr std::size_t lag = 8;          // rows that may wait for the next draft

}  // namespace

void Model::mtp(const std::vector<CacheSpan>& spans, const float* streams, const std::int64_t* tokens, float* logits,
                float* out) {
    const Denormals ieee;
    std::size_t rows = 0;
    for (const CacheSpan& span : spans) rows += span.count;
    mtp_block(spans, streams, tokens, out);
    for (const CacheSpan& span : spans) span.cache->commit(span.count);
    if (logits) head(weights_.mtp.head, out, rows, logits);
}

// The rows become undecided rows of their caches. `out` (R, S*D) may be `streams`.
void Model::mtp_block(const std::vector<CacheSpan>& spans, const float* streams, const std::int64_t* tokens, float* out) {
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
    block(w.block, out, rows,
          [&](const float* input, float* output) { attention(w.block.attention, input, rows, spans, output); });
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
        catch_up(lane);
    }
}

void Model::catch_up(Lane& lane) {
    const Timed timed(profile, Op::mtp);
    const std::size_t wide = spec_->wide(), decided = lane.waiting.size() / wide - lane.undecided;
    if (decided <= lag) return;
    const std::size_t ready = decided - 1;
    for (std::size_t first = 0; first < ready; first += part_rows) {
        const std::size_t some = std::min(part_rows, ready - first);
        float* out = at_.mtp_streams.get<float>(some * wide);
        mtp_block({{&lane.mtp[0], 0, some}}, lane.waiting.data() + first * wide, lane.following.data() + first, out);
        lane.mtp[0].commit(some);
    }
    lane.waiting.erase(lane.waiting.begin(), lane.waiting.begin() + std::ptrdiff_t(ready * wide));
    lane.following.erase(lane.following.begin(), lane.following.begin() + std::ptrdiff_t(ready));
}

void Model::draft(const std::vector<Draft>& lanes, std::size_t depth, std::int64_t* drafts) {
    if (lanes.empty() || depth == 0) return;
    const Denormals ieee;
    const std::uint64_t start = profile.on ? Profile::now() : 0;
    const std::size_t wide = spec_->wide(), vocabulary = spec_->vocabulary, count = lanes.size();
    std::vector<CacheSpan> spans;
    std::vector<std::int64_t> tokens;
    std::size_t rows = 0;
    for (const Draft& d : lanes) {
        if (d.lane->drafted_after >= 0) d.lane->mtp[0].accept(0);
        const std::size_t some = d.lane->waiting.size() / wide;
        spans.push_back({&d.lane->mtp[0], rows, some});
        tokens.insert(tokens.end(), d.lane->following.begin(), d.lane->following.end());
        tokens.push_back(d.token);
        rows += some;
    }
    float* x = at_.mtp_streams.get<float>(rows * wide);
    for (std::size_t i = 0; i < count; ++i)
        std::copy(lanes[i].lane->waiting.begin(), lanes[i].lane->waiting.end(), x + spans[i].first * wide);
    mtp_block(spans, x, tokens.data(), x);
    float* last = at_.mtp_next.get<float>(count * wide);
    for (std::size_t i = 0; i < count; ++i) {
        Lane& lane = *lanes[i].lane;
        const std::size_t settled = spans[i].count - 1;
        std::copy_n(x + (spans[i].first + settled) * wide, wide, last + i * wide);
        lane.mtp[0].commit(settled);
        lane.waiting.erase(lane.waiting.begin(), lane.waiting.begin() + std::ptrdiff_t(settled * wide));
        lane.following.clear();
        lane.drafted_after = lanes[i].token;
        spans[i] = {&lane.mtp[0], i, 1};
    }
    std::vector<std::int64_t> drawn(count);
    for (std::size_t d = 0;; ++d) {
        float* logits = at_.logits.get<float>(count * vocabulary);
        head(weights_.mtp.head, last, count, logits);
        for (std::size_t i = 0; i < count; ++i)
            drafts[i * depth + d] = drawn[i] = std::int64_t(argmax(logits + i * vocabulary, vocabulary));
        if (d + 1 == depth) break;
        mtp_block(spans, last, drawn.data(), last);
    }
    if (profile.on) profile.nanoseconds[std::size_t(Op::mtp)] += Profile::now() - start;
}

}  // namespace strata
