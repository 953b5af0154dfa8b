// Binding of what happens to weights when a model is loaded.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bind_arrays.h"
#include "bind_forward.h"
#include "bind_product.h"
#include "bind_weights.h"
#include "load.h"
#include "memory.h"

namespace nb = nanobind;

namespace strata {

std::size_t repack_handles(Pool& pool, const std::vector<MatrixHandle*>& matrices) {
    std::vector<MatrixHandle*> wanted;
    std::size_t bytes = 0;
    for (MatrixHandle* w : matrices) {
        const std::size_t size = w->matrix.tiles ? 0 : repacked_bytes(w->matrix.format, w->matrix.n, w->matrix.k);
        if (size == 0) continue;
        wanted.push_back(w);
        bytes += round_up(size, cache_line);
    }
    // In the order of the file, which is then read from one end to the other.
    std::sort(wanted.begin(), wanted.end(), [](const MatrixHandle* a, const MatrixHandle* b) {
        return std::less<const std::uint8_t*>()(a->matrix.raw, b->matrix.raw);
    });
    const auto arena = std::make_shared<Arena>(bytes);
    std::vector<Repacking> list;
    std::uint8_t* at = arena->data();
    for (MatrixHandle* w : wanted) {
        list.push_back({w->matrix, at, w->map_begin, w->map_end});
        at += round_up(repacked_bytes(w->matrix.format, w->matrix.n, w->matrix.k), cache_line);
    }
    {
        nb::gil_scoped_release free_gil;
        repack_all(pool, list);
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        wanted[i]->matrix.tiles = list[i].tiles;
        wanted[i]->memory = arena;
    }
    return bytes;
}

namespace {

using Net = std::tuple<MatrixHandle*, MatrixHandle*, MatrixHandle*>;

// The experts of one layer, without a model around them.
struct ExpertLayer {
    std::unique_ptr<Model> model;
    std::vector<FeedForward> experts;
    nb::list kept;
};

void init(ExpertLayer* self, const std::vector<Net>& nets, std::size_t threads, bool repack) {
    need(!nets.empty(), "a layer needs at least one expert");
    ExpertLayer layer;
    auto spec = std::make_shared<Spec>();
    spec->hidden = std::get<0>(nets[0])->matrix.k;
    spec->experts.width = std::get<0>(nets[0])->matrix.n;
    const std::size_t hidden = spec->hidden, width = spec->experts.width;
    std::vector<MatrixHandle*> all;
    const auto add = [&](MatrixHandle* w, std::size_t n, std::size_t k) {
        need(w->matrix.n == n && w->matrix.k == k, "an expert's matrix is (" + std::to_string(w->matrix.n) + ", " +
             std::to_string(w->matrix.k) + "); (" + std::to_string(n) + ", " + std::to_string(k) + ") is needed");
        all.push_back(w);
        layer.kept.append(nb::cast(w));
        return &w->matrix;
    };
    for (const auto& [gate, up, down] : nets)
        layer.experts.push_back({add(gate, width, hidden), add(up, width, hidden), add(down, hidden, width)});
    layer.model = std::make_unique<Model>(spec, Weights{}, std::max(hidden, width), int(threads));
    if (repack) repack_handles(layer.model->pool(), all);
    new (self) ExpertLayer(std::move(layer));
}

void run(ExpertLayer& self, In<float, 2> x, In<std::uint32_t, 2> ids, In<float, 2> weights, Out<float, 2> out) {
    const std::size_t rows = x.shape(0), used = ids.shape(1), hidden = self.model->spec().hidden;
    need(x.shape(1) == hidden, "x's rows have " + std::to_string(x.shape(1)) + " values; " + std::to_string(hidden) + " are needed");
    need(used <= max_used, "a row uses " + std::to_string(used) + " experts; at most " + std::to_string(max_used) + " are implemented");
    need(ids.shape(0) == rows && weights.shape(0) == rows && weights.shape(1) == used, "ids and weights do not fit x");
    need(out.shape(0) == rows && out.shape(1) == hidden, "out does not fit x");
    const std::uint32_t *first = ids.data(), *last = first + rows * used;
    const auto bad = std::find_if(first, last, [&](std::uint32_t id) { return id >= self.experts.size(); });
    if (bad != last) throw std::invalid_argument("expert " + std::to_string(*bad) + " of " + std::to_string(self.experts.size()));
    nb::gil_scoped_release free_gil;
    if (rows > 0) self.model->expert_layer(self.experts, x.data(), rows, ids.data(), weights.data(), used, out.data());
}

}  // namespace

void bind_load(nb::module_& m) {
    nb::class_<ExpertLayer>(m, "ExpertLayer", "The routed experts of one layer, (gate, up, down) each.")
        .def("__init__", &init, nb::arg("experts"), nb::arg("threads"), nb::arg("repack"))
        .def("run", &run, nb::arg("x"), nb::arg("ids"), nb::arg("weights"), nb::arg("out"));
    m.def("repack_all",
          [](ModelHandle& model, const std::vector<MatrixHandle*>& matrices) {
              return repack_handles(model.model->pool(), matrices);
          },
          nb::arg("model"), nb::arg("matrices"),
          "Repack matrices with the model's threads, giving back the file's pages; bytes of the tiles.");
}

}  // namespace strata
