// Bindings of the products and of the choice of an instruction set.
#include "bind_product.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "bind_arrays.h"
#include "bind_weights.h"
#include "codebooks.h"
#include "dispatch.h"
#include "kernels.h"
#include "memory.h"

namespace nb = nanobind;

namespace strata {
namespace {

void init(MatrixHandle* self, int format, std::size_t n, std::size_t k, MatrixHandle::Bytes raw,
          std::optional<std::pair<std::uintptr_t, std::size_t>> map) {
    MatrixHandle made;  // what is refused leaves nothing behind
    made.matrix = matrix_at(format, n, k, raw.data());
    const std::size_t wanted = n * made.matrix.row_bytes;
    need(raw.size() == wanted, "raw is " + std::to_string(raw.size()) + " bytes; " + std::to_string(wanted) + " are needed");
    made.raw = raw;
    if (map) {
        made.map_begin = reinterpret_cast<const std::uint8_t*>(map->first);
        made.map_end = made.map_begin + map->second;
        need(raw.data() >= made.map_begin && raw.data() + raw.size() <= made.map_end, "raw does not lie in the map");
    }
    new (self) MatrixHandle(std::move(made));
}

void run_product(const MatrixHandle& w, In<float, 2> x, Out<float, 2> y, std::optional<In<std::uint32_t, 1>> row_index,
                 std::size_t first_tile, std::size_t last_tile) {
    const Matrix& m = w.matrix;
    const std::size_t rows = x.shape(0), count = row_index ? row_index->shape(0) : rows;
    need(x.shape(1) == m.k, "x's K is " + std::to_string(x.shape(1)) + "; " + std::to_string(m.k) + " is needed");
    need(y.shape(0) == count && y.shape(1) == m.n, "y has to be (" + std::to_string(count) + ", " + std::to_string(m.n) + ")");
    for (std::size_t i = 0; row_index && i < count; ++i)
        if (row_index->data()[i] >= rows)
            throw std::invalid_argument("row " + std::to_string(row_index->data()[i]) + " of " + std::to_string(rows));
    const std::size_t tiles = tiles_of(m);
    nb::gil_scoped_release free_gil;
    const auto memory = aligned<std::uint8_t>(activation_bytes(rows, m.k));
    const auto scratch = aligned<std::uint8_t>(product_scratch_bytes(m.k));
    const Activations a = activations_at(memory.get(), x.data(), rows, m.k);
    quantize_rows(a, 0, rows);
    product(m, a, row_index ? row_index->data() : nullptr, count, first_tile, last_tile < tiles ? last_tile : tiles,
            y.data(), m.n, scratch.get());
}

void run_quantize(In<float, 2> x, Out<std::int8_t, 2> q, Out<float, 2> scale) {
    const std::size_t rows = x.shape(0), k = x.shape(1), blocks = (k + block - 1) / block;
    need(q.shape(0) == rows && q.shape(1) == blocks * block, "q does not fit x");
    need(scale.shape(0) == rows && scale.shape(1) == blocks, "scale does not fit x");
    nb::gil_scoped_release free_gil;
    const auto memory = aligned<std::uint8_t>(activation_bytes(rows, k));
    const Activations a = activations_at(memory.get(), x.data(), rows, k);
    quantize_rows(a, 0, rows);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t b = 0; b < blocks; ++b) {
            const Record& record = a.records[r * a.stride + b];
            scale.data()[r * blocks + b] = record.scale;
            for (std::size_t i = 0; i < block; ++i) q.data()[(r * blocks + b) * block + i] = record.q[i];
        }
}

int run_read(In<std::uint8_t, 1> memory) {
    nb::gil_scoped_release free_gil;
    return kernels().read_memory(memory.data(), memory.size());
}

int run_dots(std::size_t steps) {
    nb::gil_scoped_release free_gil;
    return kernels().dot_registers(steps);
}

// The codebooks have one home, the Python module that the reference reads.
void read_codebooks() {
    const nb::module_ grids = nb::module_::import_("strata.formats.grids");
    std::vector<nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>> kept;
    const auto rows = [&](const char* name, std::size_t bytes) {
        kept.push_back(nb::cast<nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>>(grids.attr(name)));
        need(kept.back().nbytes() == bytes, std::string("codebook ") + name + " has another size");
        return static_cast<const std::int8_t*>(kept.back().data());
    };
    set_codebooks({rows("IQ1", 2048 * 8), rows("IQ2_XXS", 256 * 8), rows("IQ2_XS", 512 * 8), rows("IQ2_S", 1024 * 8),
                   rows("IQ3_XXS", 256 * 4), rows("IQ3_S", 512 * 4)});
}

}  // namespace

void bind_product(nb::module_& m) {
    read_codebooks();
    nb::class_<MatrixHandle>(m, "Matrix", "A weight matrix (n, k) of a ggml type: bytes of the file, and repacked tiles.")
        .def("__init__", &init, nb::arg("format"), nb::arg("n"), nb::arg("k"), nb::arg("raw"),
             nb::arg("map").none() = nb::none())
        .def("repack", [](MatrixHandle& w) { Pool alone(1); repack_handles(alone, {&w}); },
             "Rearrange the weights for the kernels, as a model does at load; nothing for float formats.")
        .def_prop_ro("format", [](const MatrixHandle& w) { return w.matrix.format; })
        .def_prop_ro("n", [](const MatrixHandle& w) { return w.matrix.n; })
        .def_prop_ro("k", [](const MatrixHandle& w) { return w.matrix.k; })
        .def_prop_ro("tiles", [](const MatrixHandle& w) { return tiles_of(w.matrix); })
        .def_prop_ro("repacked", [](const MatrixHandle& w) { return w.matrix.tiles != nullptr; });
    m.def("product", &run_product, nb::arg("w"), nb::arg("x"), nb::arg("y"), nb::arg("row_index").none() = nb::none(),
          nb::arg("first_tile") = 0, nb::arg("last_tile") = std::size_t(-1),
          "y (count, n) = rows of x (R, k), or those at row_index, times w; only the columns of the tiles asked for.");
    m.def("repacked_bytes", &repacked_bytes, nb::arg("format"), nb::arg("n"), nb::arg("k"),
          "Bytes of a repacked matrix; 0 for float formats.");
    m.def("quantize_rows", &run_quantize, nb::arg("x"), nb::arg("q"), nb::arg("scale"),
          "Rows x (R, K) as int8 blocks q (R, B * 32) and scales (R, B).");
    m.def("read_memory", &run_read, nb::arg("memory"), "Read the bytes once (a multiple of 512); for benchmarks.");
    m.def("dot_registers", &run_dots, nb::arg("steps"), "steps * 12 dots of 64 int8 products in registers; for benchmarks.");
    m.def("available_isas", &available_isas, "Instruction sets of this build that this machine runs, slowest first.");
    m.def("select_isa", &select_isa, nb::arg("name"), "Choose an instruction set by name, or the best (auto).");
    m.def("selected_isa", &selected_isa, "The instruction set in use.");
}

}  // namespace strata
