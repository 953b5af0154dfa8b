// Binding of what happens to weights when a model is loaded.
#include <nanobind/stl/vector.h>

#include "bind_forward.h"
#include "bind_product.h"
#include "load.h"
#include "memory.h"

namespace nb = nanobind;

namespace strata {
namespace {

// Repack these matrices with the model's threads, into one piece of memory; bytes of the tiles. Those that have tiles,
// and float ones, stay as they are. No window may run meanwhile.
std::size_t repack_all(ModelHandle& self, const std::vector<MatrixHandle*>& matrices) {
    std::vector<MatrixHandle*> wanted;
    std::size_t bytes = 0;
    for (MatrixHandle* w : matrices) {
        const std::size_t size = w->matrix.tiles ? 0 : repacked_bytes(w->matrix.format, w->matrix.n, w->matrix.k);
        if (size == 0) continue;
        wanted.push_back(w);
        bytes += round_up(size, cache_line);
    }
    const auto arena = std::make_shared<Arena>(bytes);
    std::vector<Repacking> list;
    std::uint8_t* at = arena->data();
    for (MatrixHandle* w : wanted) {
        list.push_back({w->matrix, at, w->mapped});
        at += round_up(repacked_bytes(w->matrix.format, w->matrix.n, w->matrix.k), cache_line);
    }
    {
        nb::gil_scoped_release free_gil;
        repack_all(self.model->pool(), list);
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        wanted[i]->matrix.tiles = list[i].tiles;
        wanted[i]->memory = arena;
    }
    return bytes;
}

}  // namespace

void bind_load(nb::module_& m) {
    m.def("repack_all", static_cast<std::size_t (*)(ModelHandle&, const std::vector<MatrixHandle*>&)>(&repack_all),
          nb::arg("model"), nb::arg("matrices"),
          "Repack matrices with the model's threads, giving back the file's pages; bytes of the tiles.");
}

}  // namespace strata
