// Gated delta net layers; docs/arithmetic.md, sections 8 and 9.
#include <algorithm>

#include "kernels.h"
#include "model.h"

namespace strata {

void Model::delta(const DeltaWeights& w, const float* x, std::size_t rows, std::size_t slot,
                  const std::vector<Span>& spans, float* out) {
    const DeltaSpec& d = spec_->delta;
    const WindowKernels& run = kernels().window;
    float* qkv = at_.qkv.get<float>(rows * d.conv_width());
    float* gate = at_.gate.get<float>(rows * d.value_width());
    float* beta = at_.beta.get<float>(rows * d.value_heads);
    float* decay = at_.decay.get<float>(rows * d.value_heads);
    float* heads = at_.heads.get<float>(rows * d.value_width());
    {
        const Timed timed(profile, Op::dense);
        products(x, rows, {{w.qkv, qkv}, {w.gate, gate}, {w.beta, beta}, {w.alpha, decay}});
    }
    delta_inputs(w, qkv, slot, spans);
    {
        const Timed timed(profile, Op::delta);
        run.sigmoid(beta, rows * d.value_heads);
        for (std::size_t r = 0; r < rows; ++r)
            run.decay(decay + r * d.value_heads, w.dt, w.a, decay + r * d.value_heads, d.value_heads);
        recurrence(slot, spans, heads);
        keep_delta(qkv, slot, spans);
        each_row(rows, 4 * d.value_width(), [&](std::size_t r) {
            for (std::size_t h = 0; h < d.value_heads; ++h) {
                const std::size_t at = r * d.value_width() + h * d.value_dim;
                run.gated_norm(heads + at, gate + at, w.gamma, heads + at, d.value_dim, spec_->eps, d.silu_gate);
            }
        });
    }
    const Timed timed(profile, Op::dense);
    products(heads, rows, {{w.out, out}});
}

// The convolution's rows, queries and keys normed in place: (rows, C).
void Model::delta_inputs(const DeltaWeights& w, const float* qkv, std::size_t slot, const std::vector<Span>& spans) {
    const Timed timed(profile, Op::convolution);
    const DeltaSpec& d = spec_->delta;
    const WindowKernels& run = kernels().window;
    const std::size_t width = d.conv_width(), before = d.conv_taps - 1;
    std::size_t rows = 0;
    for (const Span& span : spans) rows += span.count;
    float* conv = at_.conv.get<float>(rows * width);
    for (const Span& span : spans) {
        const float* tail = span.lane->delta[slot].tail.data();
        const float* fresh = qkv + span.first * width;
        each_row(span.count, 4 * width, [&](std::size_t r) {
            const float* taps[max_taps];
            for (std::size_t tap = 0; tap < d.conv_taps; ++tap)
                taps[tap] = r + tap < before ? tail + (r + tap) * width : fresh + (r + tap - before) * width;
            float* y = conv + (span.first + r) * width;
            run.conv_silu(taps, d.conv_taps, w.conv, y, width);
            for (std::size_t h = 0; h < d.key_heads; ++h) {
                float* q = y + h * d.key_dim;
                float* k = q + d.key_width();
                run.l2_norm(q, q, d.key_dim, d.query_scale);
                run.l2_norm(k, k, d.key_dim, 1.0f);
            }
        });
    }
}

// heads (rows, Hv*Dv) from the inputs of the window and the states, which move on by what is decided.
void Model::recurrence(std::size_t slot, const std::vector<Span>& spans, float* heads) {
    const DeltaSpec& d = spec_->delta;
    const std::size_t width = d.conv_width(), size = d.value_heads * d.key_dim * d.value_dim;
    const float* conv = static_cast<const float*>(at_.conv.current());
    const float* beta = static_cast<const float*>(at_.beta.current());
    const float* decay = static_cast<const float*>(at_.decay.current());
    std::vector<std::shared_ptr<float[]>> after;
    for (const Span& span : spans) {
        DeltaState& state = span.lane->delta[slot];
        const bool moves = state.replay > 0 || span.count > span.tentative;
        if (!moves)
            after.emplace_back();
        else if (state.state.use_count() == 1)
            after.push_back(state.state);
        else  // a checkpoint holds it too
            after.emplace_back(aligned<float>(size).release(), Free());
    }
    // Single rows read a state's rows as they lie; else a block of columns stays in the nearest cache.
    const bool single = std::all_of(spans.begin(), spans.end(), [&](const Span& span) {
        return span.count == 1 && span.lane->delta[slot].replay == 0;
    });
    const std::size_t columns = single ? d.value_dim : delta_columns, parts = (d.value_dim + columns - 1) / columns;
    pool_.each([&](int thread, int threads) {
        float* scratch = thread_scratch_[std::size_t(thread)].get<float>(delta_scratch(d.key_dim));
        const Part mine = part_of(spans.size() * d.value_heads * parts, thread, threads);
        for (std::size_t item = mine.begin; item < mine.end; ++item) {
            const std::size_t part = item % parts, head = item / parts % d.value_heads, s = item / parts / d.value_heads;
            const Span& span = spans[s];
            const DeltaState& state = span.lane->delta[slot];
            const std::size_t key = head % d.key_heads, first = span.first;
            DeltaWork work{};
            work.from = state.state.get() + head * d.key_dim * d.value_dim;
            work.to = after[s] ? after[s].get() + head * d.key_dim * d.value_dim : nullptr;
            work.dk = d.key_dim;
            work.dv = d.value_dim;
            work.first = part * columns;
            work.last = std::min(work.first + columns, d.value_dim);
            work.replayed = state.replay;
            if (work.replayed > 0) {
                const DeltaState::Rows& kept = *state.rows;
                work.replay = {nullptr, kept.k.data() + key * d.key_dim, kept.v.data() + head * d.value_dim,
                               kept.decay.data() + head, kept.beta.data() + head, 0, d.key_width(), d.value_width(),
                               d.value_heads};
            }
            const float* row = conv + first * width;
            work.rows = {row + key * d.key_dim, row + d.key_width() + key * d.key_dim,
                         row + 2 * d.key_width() + head * d.value_dim, decay + first * d.value_heads + head,
                         beta + first * d.value_heads + head, width, width, width, d.value_heads};
            work.committed = span.count - span.tentative;
            work.count = span.count;
            work.out = heads + first * d.value_width() + head * d.value_dim;
            work.out_stride = d.value_width();
            work.scratch = scratch;
            kernels().window.delta_rule(work);
        }
    });
    for (std::size_t s = 0; s < spans.size(); ++s) {
        DeltaState& state = spans[s].lane->delta[slot];
        if (after[s]) state.state = after[s];
        state.replay = 0;
        state.rows.reset();
    }
}

// Move the convolutions' tails on by the decided rows, and keep the inputs of the undecided ones.
void Model::keep_delta(const float* qkv, std::size_t slot, const std::vector<Span>& spans) {
    const DeltaSpec& d = spec_->delta;
    const std::size_t width = d.conv_width();
    const float* conv = static_cast<const float*>(at_.conv.current());
    const float* beta = static_cast<const float*>(at_.beta.current());
    const float* decay = static_cast<const float*>(at_.decay.current());
    for (const Span& span : spans) {
        DeltaState& state = span.lane->delta[slot];
        const std::size_t committed = span.count - span.tentative;
        move_tail(state.tail, qkv + span.first * width, committed, width);
        if (span.tentative == 0) continue;
        auto rows = std::make_shared<DeltaState::Rows>();
        const std::size_t first = span.first + committed, last = span.first + span.count;
        rows->count = span.tentative;
        rows->qkv.assign(qkv + first * width, qkv + last * width);
        rows->decay.assign(decay + first * d.value_heads, decay + last * d.value_heads);
        rows->beta.assign(beta + first * d.value_heads, beta + last * d.value_heads);
        for (std::size_t r = first; r < last; ++r) {
            const float* k = conv + r * width + d.key_width();
            rows->k.insert(rows->k.end(), k, k + d.key_width());
            rows->v.insert(rows->v.end(), k + d.key_width(), k + d.key_width() + d.value_width());
        }
        state.rows = std::move(rows);
    }
}

void Model::replay(Lane& lane) {
    const Denormals ieee;
    for (std::size_t slot = 0; slot < lane.delta.size(); ++slot)
        if (lane.delta[slot].replay > 0) recurrence(slot, {{&lane, 0, 0, 0}}, at_.heads.get<float>(spec_->delta.value_width()));
}

}  // namespace strata
