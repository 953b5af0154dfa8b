// Router, experts and the shared expert; docs/arithmetic.md, section 12. Rows that share an expert are computed
// together: its weights are read once for all of them.
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "model.h"
#include "select.h"

namespace strata {
namespace {

// Rows that one feed-forward net computes: pairs [first, first + count) of the list, and its share of the work.
struct Group {
    const FeedForward* net;
    const std::uint32_t* rows;  // of x; null: all of them, in order
    std::size_t first, count;
};

// Tiles [begin, end) of a group that a thread computes.
struct Slice {
    std::size_t begin, end;
};

// Split the tiles of all groups by what they cost: reading the weights, and computing each row. `tiles` of one group.
class Split {
public:
    explicit Split(std::size_t count) : starts_(count + 1, 0) {}
    void add(std::size_t group, std::size_t tiles, std::size_t rows) {
        starts_[group + 1] = starts_[group] + tiles * (read_cost + rows);
    }
    Slice slice(std::size_t group, std::size_t tiles, std::size_t rows, int thread, int threads) const {
        const std::size_t all = starts_.back(), from = all * std::size_t(thread) / std::size_t(threads);
        const std::size_t to = all * std::size_t(thread + 1) / std::size_t(threads), unit = read_cost + rows;
        const auto cut = [&](std::size_t at) {
            return at <= starts_[group] ? 0 : std::min(tiles, (at - starts_[group] + unit - 1) / unit);
        };
        return {cut(from), cut(to)};
    }

private:
    static constexpr std::size_t read_cost = 3;  // reading a tile costs about as much as computing three rows
    std::vector<std::size_t> starts_;
};

}  // namespace

// What run_experts left of every row, summed with its weights, and the shared expert's part that `shared(row)` gives.
template <typename F>
void Model::mix_results(std::size_t rows, std::size_t used, const float* weights, F&& shared, float* out) {
    const std::size_t hidden = spec_->hidden;
    const float* results = static_cast<const float*>(at_.pairs.current());
    const std::uint32_t* place = static_cast<const std::uint32_t*>(at_.place.current());
    each_row(rows, (used + 2) * hidden, [&](std::size_t r) {
        const float* parts[max_used];
        for (std::size_t i = 0; i < used; ++i) parts[i] = results + place[r * used + i] * hidden;
        const Shared own = shared(r);
        kernels().window.mix_experts(parts, weights + r * used, used, own.row, own.gate, out + r * hidden, hidden);
    });
}

void Model::experts(const ExpertWeights& w, const float* x, std::size_t rows, float* out) {
    const ExpertSpec& e = spec_->experts;
    const WindowKernels& run = kernels().window;
    const std::size_t pairs = rows * e.used, hidden = spec_->hidden;
    const Activations a = activations(x, rows, hidden, at_.activations, true);
    float* gates = at_.gates.get<float>(rows);
    std::uint32_t* ids = at_.ids.get<std::uint32_t>(pairs);
    float* weights = at_.route.get<float>(pairs);
    {
        const Timed timed(profile, Op::router);
        float* logits = at_.logits.get<float>(rows * e.count);
        multiply(a, {{w.router, logits}, {w.shared_gate, gates}});
        each_row(rows, 2 * e.count, [&](std::size_t r) {
            const float* of_row = logits + r * e.count;
            std::uint32_t* chosen = ids + r * e.used;
            float* weight = weights + r * e.used;
            rank_largest(of_row, e.count, e.used, chosen);
            for (std::size_t i = 0; i < e.used; ++i) weight[i] = of_row[chosen[i]];
            run.exp_minus(weight, weight[0], weight, e.used);
            float sum = 0.0f;
            for (std::size_t i = 0; i < e.used; ++i) sum = sum + weight[i];
            for (std::size_t i = 0; i < e.used; ++i) weight[i] = weight[i] / sum;
        });
    }
    const Timed timed(profile, Op::experts);
    run_experts(w.experts, &w.shared, a, ids, e.used);
    const float* shared = static_cast<const float*>(at_.pairs.current()) + pairs * hidden;
    mix_results(rows, e.used, weights, [&](std::size_t r) { return Shared{shared + r * hidden, gates[r]}; }, out);
}

// at_.pairs: the rows of every (row, expert) pair, ordered by expert, then the shared expert's row of every row;
// at_.place: where each pair lies.
void Model::run_experts(const std::vector<FeedForward>& experts, const FeedForward* shared, const Activations& a,
                        const std::uint32_t* ids, std::size_t used) {
    const ExpertSpec& e = spec_->experts;
    const WindowKernels& run = kernels().window;
    const std::size_t rows = a.rows, pairs = rows * used, hidden = spec_->hidden;
    std::uint32_t* place = at_.place.get<std::uint32_t>(2 * pairs);
    std::uint32_t* row_of = place + pairs;
    std::vector<std::size_t> start(experts.size() + 1, 0);
    for (std::size_t p = 0; p < pairs; ++p) ++start[ids[p] + 1];
    std::vector<Group> groups;
    for (std::size_t i = 0; i < experts.size(); ++i) {
        if (start[i + 1] > 0) groups.push_back({&experts[i], row_of + start[i], start[i], start[i + 1]});
        start[i + 1] += start[i];
    }
    for (std::size_t p = 0; p < pairs; ++p) {
        place[p] = std::uint32_t(start[ids[p]]++);
        row_of[place[p]] = std::uint32_t(p / used);
    }
    if (shared) groups.push_back({shared, nullptr, pairs, rows});

    // Hidden rows: those of the experts (width), then those of the shared expert (its own width).
    float* gate = at_.gated.get<float>(pairs * e.width + rows * e.shared_width);
    float* up = at_.up.get<float>(pairs * e.width + rows * e.shared_width);
    const auto hidden_row = [&](const Group& g) { return g.first == pairs ? pairs * e.width : g.first * e.width; };
    Split first(groups.size()), second(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
        first.add(g, tiles_of(*groups[g].net->gate), groups[g].count);
        second.add(g, tiles_of(*groups[g].net->down), groups[g].count);
    }
    const auto gate_and_up = [&](int thread, int threads) {
        void* scratch = product_scratch_[std::size_t(thread)].get();
        for (std::size_t i = 0; i < groups.size(); ++i) {
            const Group& g = groups[i];
            const std::size_t n = g.net->gate->n;
            const Slice s = first.slice(i, tiles_of(*g.net->gate), g.count, thread, threads);
            if (s.begin >= s.end) continue;
            float *to_gate = gate + hidden_row(g), *to_up = up + hidden_row(g);
            product(*g.net->gate, a, g.rows, g.count, s.begin, s.end, to_gate, n, scratch);
            product(*g.net->up, a, g.rows, g.count, s.begin, s.end, to_up, n, scratch);
            const std::size_t from = s.begin * tile_rows, some = std::min(n, s.end * tile_rows) - from;
            for (std::size_t r = 0; r < g.count; ++r)
                run.silu_times(to_gate + r * n + from, to_up + r * n + from, to_gate + r * n + from, some);
        }
    };
    {
        const TimedProducts timed(profile);
        pool_.each(gate_and_up);
    }
    const Activations inner = activations(gate, pairs, e.width, at_.inner, true);
    Activations of_shared{};
    if (shared) of_shared = activations(gate + pairs * e.width, rows, e.shared_width, at_.shared, true);
    float* results = at_.pairs.get<float>((pairs + rows) * hidden);
    const TimedProducts timed(profile);
    pool_.each([&](int thread, int threads) {
        void* scratch = product_scratch_[std::size_t(thread)].get();
        for (std::size_t i = 0; i < groups.size(); ++i) {
            const Group& g = groups[i];
            const Slice s = second.slice(i, tiles_of(*g.net->down), g.count, thread, threads);
            if (s.begin >= s.end) continue;
            const Activations& from = g.rows ? inner : of_shared;
            product(*g.net->down, rows_from(from, g.rows ? g.first : 0), nullptr, g.count, s.begin, s.end,
                    results + g.first * hidden, hidden, scratch);
        }
    });
}

void Model::expert_layer(const std::vector<FeedForward>& experts, const float* x, std::size_t rows, const std::uint32_t* ids,
                         const float* weights, std::size_t used, float* out) {
    const Denormals ieee;
    const std::size_t hidden = spec_->hidden;
    run_experts(experts, nullptr, activations(x, rows, hidden, at_.activations, true), ids, used);
    float* nothing = at_.mixed.get<float>(hidden);
    std::fill_n(nothing, hidden, 0.0f);
    mix_results(rows, used, weights, [&](std::size_t) { return Shared{nothing, 0.0f}; }, out);
}

}  // namespace strata
