// Binding of lanes: copies, decisions, and every array of the state out and in.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "bind_arrays.h"
#include "bind_forward.h"
#include "checksum.h"

namespace nb = nanobind;

namespace strata {
namespace {

void decided(const Lane& lane) {
    if (lane.undecided > 0)
        throw std::invalid_argument("The conversation has " + std::to_string(lane.undecided) +
                                    " undecided rows; accept has to say first how many are kept.");
}

void init(Lane* self, const ModelHandle& model, bool drafts) {
    need(!drafts || model.model->spec().has_mtp, "the model has no MTP block to draft with");
    new (self) Lane(model.model->shared_spec(), drafts);
}

Lane copy(const Lane& self) {
    decided(self);
    return self;
}

void accept(Lane& self, std::size_t count) {
    if (count > self.undecided)
        throw std::invalid_argument(std::to_string(count) + " rows were accepted, but only " +
                                    std::to_string(self.undecided) + " are undecided.");
    self.accept(count);
}

AttentionCache& cache_of(Lane& lane, std::size_t slot) {
    return slot < lane.attention.size() ? lane.attention[slot] : lane.mtp.at(slot - lane.attention.size());
}

// The memory of rows [0, count), a piece for every group and chunk, groups first; a piece keeps its chunk.
template <typename Byte>
nb::list pieces_of(const ChunkedRows& rows, std::size_t count) {
    nb::list found;
    for (std::size_t group = 0; group < rows.groups(); ++group)
        for (std::size_t first = 0; first < count; first += ChunkedRows::chunk_rows) {
            using Holder = std::shared_ptr<std::uint8_t[]>;
            const nb::capsule owner(new Holder(rows.chunk(first / ChunkedRows::chunk_rows)),
                                    [](void* p) noexcept { delete static_cast<Holder*>(p); });
            Byte* const data = const_cast<std::uint8_t*>(rows.row(group, first));
            const std::size_t size = std::min(ChunkedRows::chunk_rows, count - first) * rows.row_bytes();
            found.append(nb::cast(nb::ndarray<nb::numpy, Byte, nb::ndim<1>>(data, {size}, owner)));
        }
    return found;
}

void read_delta(Lane& self, const ModelHandle& model, std::size_t slot, Out<float, 1> state, Out<float, 1> tail) {
    decided(self);
    model.model->replay(self);
    const DeltaState& from = self.delta.at(slot);
    const DeltaSpec& d = self.spec->delta;
    need(state.size() == d.value_heads * d.key_dim * d.value_dim && tail.size() == from.tail.size(), "arrays do not fit");
    std::copy_n(from.state.get(), state.size(), state.data());
    std::copy(from.tail.begin(), from.tail.end(), tail.data());
}

void write_delta(Lane& self, std::size_t slot, In<float, 1> state, In<float, 1> tail) {
    DeltaState fresh(self.spec->delta);
    const DeltaSpec& d = self.spec->delta;
    need(state.size() == d.value_heads * d.key_dim * d.value_dim && tail.size() == fresh.tail.size(), "arrays do not fit");
    std::copy_n(state.data(), state.size(), fresh.state.get());
    fresh.tail.assign(tail.data(), tail.data() + tail.size());
    self.delta.at(slot) = std::move(fresh);
}

nb::tuple cache_lengths(Lane& self, std::size_t slot) {
    decided(self);
    const AttentionCache& c = cache_of(self, slot);
    const std::size_t blocks = c.ratio ? c.length / c.ratio : 0;
    return nb::make_tuple(c.length, blocks, c.ratio ? c.length - blocks * c.ratio : 0);
}

// Keys (0), values (1) or pooled index keys (2) of the decided rows.
nb::list cache_rows(Lane& self, std::size_t slot, std::size_t which) {
    decided(self);
    const AttentionCache& c = cache_of(self, slot);
    if (which == 2) return pieces_of<const std::uint8_t>(c.index, c.ratio ? c.length / c.ratio : 0);
    return pieces_of<const std::uint8_t>(which == 0 ? c.k : c.v, c.length);
}

void read_open(Lane& self, std::size_t slot, Out<float, 1> open) {
    const AttentionCache& c = cache_of(self, slot);
    need(open.size() <= c.open.size(), "open keys do not fit");
    std::copy_n(c.open.data(), open.size(), open.data());
}

// A cache of `length` rows to be filled: the memory of its keys, values and pooled index keys.
nb::tuple fresh_cache(Lane& self, std::size_t slot, std::size_t length, In<float, 1> open) {
    AttentionCache& c = cache_of(self, slot);
    const std::size_t blocks = c.ratio ? length / c.ratio : 0;
    need(open.size() == (c.ratio ? length % c.ratio * c.index_dim : 0), "open keys do not fit");
    AttentionCache fresh(*self.spec, c.ratio);
    fresh.k.prepare(0, length);
    fresh.v.prepare(0, length);
    fresh.index.prepare(0, blocks);
    fresh.open.assign(open.data(), open.data() + open.size());
    fresh.length = length;
    c = std::move(fresh);
    return nb::make_tuple(pieces_of<std::uint8_t>(c.k, length), pieces_of<std::uint8_t>(c.v, length),
                          pieces_of<std::uint8_t>(c.index, blocks));
}

// The cache of a checkpoint on a longer conversation's path: its rows are the longer one's, shared.
void share_cache(Lane& self, std::size_t slot, Lane& longer, std::size_t count, In<float, 1> open) {
    decided(self);
    decided(longer);
    AttentionCache& to = cache_of(self, slot);
    const AttentionCache& from = cache_of(longer, slot);
    need(count <= from.length, "the longer conversation has fewer rows");
    need(open.size() == (to.ratio ? count % to.ratio : 0) * to.index_dim, "arrays do not fit");
    to.share(from, count, open.data());
}

// What the last window left to compute into the states is computed: from here on reading changes nothing.
void settle(Lane& self, const ModelHandle& model) {
    decided(self);
    model.model->replay(self);
    model.model->catch_up(self);
}

std::vector<std::uintptr_t> chunks(Lane& self, std::size_t slot) { return cache_of(self, slot).k.identities(); }

void read_ngram(const Lane& self, Out<std::int64_t, 1> tokens, Out<float, 1> tail) {
    decided(self);
    const NgramState& n = self.ngram.at(0);
    need(tokens.size() == n.tokens.size() && tail.size() == n.tail.size(), "arrays do not fit");
    std::copy(n.tokens.begin(), n.tokens.end(), tokens.data());
    std::copy(n.tail.begin(), n.tail.end(), tail.data());
}

void write_ngram(Lane& self, In<std::int64_t, 1> tokens, In<float, 1> tail) {
    NgramState& n = self.ngram.at(0);
    need(tokens.size() == n.tokens.size() && tail.size() == n.tail.size(), "arrays do not fit");
    std::copy_n(tokens.data(), tokens.size(), n.tokens.begin());
    std::copy_n(tail.data(), tail.size(), n.tail.begin());
}

std::size_t waiting_rows(const Lane& self) { return self.waiting.size() / self.spec->wide(); }

void read_waiting(const Lane& self, Out<float, 1> streams, Out<std::int64_t, 1> following) {
    decided(self);
    need(streams.size() == self.waiting.size() && following.size() == self.following.size(), "arrays do not fit");
    std::copy(self.waiting.begin(), self.waiting.end(), streams.data());
    std::copy(self.following.begin(), self.following.end(), following.data());
}

void write_rest(Lane& self, std::size_t length, In<float, 1> streams, In<std::int64_t, 1> following) {
    need(streams.size() % self.spec->wide() == 0, "arrays do not fit");
    self.length = length;
    self.undecided = 0;
    self.drafted_after = -1;
    self.waiting.assign(streams.data(), streams.data() + streams.size());
    self.following.assign(following.data(), following.data() + following.size());
}

// Bytes of keys and values that nobody else holds, and of all.
nb::tuple cache_bytes(const Lane& self) {
    std::size_t own = 0, all = 0;
    const auto add = [&](const ChunkedRows& rows) {
        const std::size_t chunk = rows.groups() * ChunkedRows::chunk_rows * rows.row_bytes();
        own += rows.own_chunks() * chunk;
        all += rows.bytes();
    };
    for (const std::vector<AttentionCache>* caches : {&self.attention, &self.mtp})
        for (const AttentionCache& c : *caches) {
            add(c.k);
            add(c.v);
            add(c.index);
        }
    return nb::make_tuple(own, all);
}

// The CRC-32 of pieces of memory, one after the other.
std::uint32_t crc32_of(const std::vector<In<std::uint8_t, 1>>& pieces) {
    const nb::gil_scoped_release free_gil;
    std::uint32_t crc = 0;
    for (const In<std::uint8_t, 1>& piece : pieces) crc = crc32(crc, piece.data(), piece.size());
    return crc;
}

}  // namespace

void bind_state(nb::module_& m) {
    nb::class_<Lane>(m, "Lane", "The state of one conversation.")
        .def("__init__", &init, nb::arg("model"), nb::arg("drafts"))
        .def("copy", &copy)
        .def("accept", &accept, nb::arg("count"))
        .def_ro("length", &Lane::length)
        .def_ro("undecided", &Lane::undecided)
        .def_ro("drafts", &Lane::drafts)
        .def("cache_bytes", &cache_bytes)
        .def("chunks", &chunks, nb::arg("slot"))
        .def("settle", &settle, nb::arg("model"))
        .def("share_cache", &share_cache, nb::arg("slot"), nb::arg("longer"), nb::arg("count"), nb::arg("open"))
        .def("read_delta", &read_delta, nb::arg("model"), nb::arg("slot"), nb::arg("state"), nb::arg("tail"))
        .def("write_delta", &write_delta, nb::arg("slot"), nb::arg("state"), nb::arg("tail"))
        .def("cache_lengths", &cache_lengths, nb::arg("slot"))
        .def("cache_rows", &cache_rows, nb::arg("slot"), nb::arg("which"))
        .def("read_open", &read_open, nb::arg("slot"), nb::arg("open"))
        .def("fresh_cache", &fresh_cache, nb::arg("slot"), nb::arg("length"), nb::arg("open"))
        .def("read_ngram", &read_ngram, nb::arg("tokens"), nb::arg("tail"))
        .def("write_ngram", &write_ngram, nb::arg("tokens"), nb::arg("tail"))
        .def("waiting_rows", &waiting_rows)
        .def("following_tokens", [](const Lane& self) { return self.following.size(); })
        .def("read_waiting", &read_waiting, nb::arg("streams"), nb::arg("following"))
        .def("write_rest", &write_rest, nb::arg("length"), nb::arg("streams"), nb::arg("following"));
    m.def("live_chunk_bytes", &ChunkedRows::live_bytes);
    m.def("crc32", &crc32_of, nb::arg("pieces"));
    m.def("has_fast_crc32", &has_fast_crc32);
}

}  // namespace strata
