// Binding of lanes: copies, decisions, and every array of the state out and in.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "bind_arrays.h"
#include "bind_forward.h"

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

void rows_out(const ChunkedRows& from, std::size_t count, Out<std::uint8_t, 3> to) {
    need(to.shape(0) == count && to.shape(1) == from.groups() && to.shape(2) == from.row_bytes(), "rows do not fit");
    std::uint8_t* p = to.data();
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t g = 0; g < from.groups(); ++g, p += from.row_bytes()) std::memcpy(p, from.row(g, i), from.row_bytes());
}

void rows_in(In<std::uint8_t, 3> from, ChunkedRows& to) {
    need(from.shape(1) == to.groups() && from.shape(2) == to.row_bytes(), "rows do not fit");
    to.prepare(0, from.shape(0));
    const std::uint8_t* p = from.data();
    for (std::size_t i = 0; i < from.shape(0); ++i)
        for (std::size_t g = 0; g < to.groups(); ++g, p += to.row_bytes()) std::memcpy(to.row(g, i), p, to.row_bytes());
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

void read_cache(Lane& self, std::size_t slot, Out<std::uint8_t, 3> k, Out<std::uint8_t, 3> v,
                Out<std::uint8_t, 3> index, Out<float, 1> open) {
    const AttentionCache& c = cache_of(self, slot);
    if (k.shape(0) + v.shape(0) + index.shape(0) > 0) {  // none: only the open keys are asked for
        rows_out(c.k, c.length, k);
        rows_out(c.v, c.length, v);
        rows_out(c.index, c.ratio ? c.length / c.ratio : 0, index);
    }
    need(open.size() <= c.open.size(), "open keys do not fit");
    std::copy_n(c.open.data(), open.size(), open.data());
}

void write_cache(Lane& self, std::size_t slot, In<std::uint8_t, 3> k, In<std::uint8_t, 3> v,
                 In<std::uint8_t, 3> index, In<float, 1> open) {
    AttentionCache& c = cache_of(self, slot);
    AttentionCache fresh(*self.spec, c.ratio);
    need(k.shape(0) == v.shape(0) && index.shape(0) == (c.ratio ? k.shape(0) / c.ratio : 0), "rows do not fit");
    need(open.size() == (c.ratio ? k.shape(0) % c.ratio * c.index_dim : 0), "open keys do not fit");
    rows_in(k, fresh.k);
    rows_in(v, fresh.v);
    rows_in(index, fresh.index);
    fresh.open.assign(open.data(), open.data() + open.size());
    fresh.length = k.shape(0);
    c = std::move(fresh);
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
        .def("read_cache", &read_cache, nb::arg("slot"), nb::arg("k"), nb::arg("v"), nb::arg("index"), nb::arg("open"),
             nb::call_guard<nb::gil_scoped_release>())
        .def("write_cache", &write_cache, nb::arg("slot"), nb::arg("k"), nb::arg("v"), nb::arg("index"), nb::arg("open"),
             nb::call_guard<nb::gil_scoped_release>())
        .def("read_ngram", &read_ngram, nb::arg("tokens"), nb::arg("tail"))
        .def("write_ngram", &write_ngram, nb::arg("tokens"), nb::arg("tail"))
        .def("waiting_rows", &waiting_rows)
        .def("following_tokens", [](const Lane& self) { return self.following.size(); })
        .def("read_waiting", &read_waiting, nb::arg("streams"), nb::arg("following"))
        .def("write_rest", &write_rest, nb::arg("length"), nb::arg("streams"), nb::arg("following"));
    m.def("live_chunk_bytes", &ChunkedRows::live_bytes);
}

}  // namespace strata
