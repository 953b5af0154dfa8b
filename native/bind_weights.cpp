#include "bind_weights.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "bind_product.h"

namespace nb = nanobind;

namespace strata {
namespace {

template <typename T>
T get(nb::dict d, const char* name) {
    return nb::cast<T>(d[name]);
}

class Reader {
public:
    Reader(nb::list kept, std::size_t& largest_k) : kept_(kept), largest_k_(largest_k) {}

    const Matrix* matrix(nb::handle object) {
        if (object.is_none()) return nullptr;
        kept_.append(object);
        const MatrixHandle* handle = nb::cast<const MatrixHandle*>(object);
        largest_k_ = std::max(largest_k_, handle->matrix.k);
        return &handle->matrix;
    }
    const Matrix* matrix(nb::dict d, const char* name) { return matrix(d[name]); }

    const float* floats(nb::dict d, const char* name) {
        nb::object object = d[name];
        if (object.is_none()) return nullptr;
        kept_.append(object);
        return nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(object).data();
    }

    Site site(nb::dict d) { return {floats(d, "gamma"), matrix(d, "down"), matrix(d, "up"), matrix(d, "inject")}; }

    FeedForward net(nb::handle object) {
        const nb::tuple t = nb::cast<nb::tuple>(object);
        return {matrix(t[0]), matrix(t[1]), matrix(t[2])};
    }

    ExpertWeights experts(nb::dict d) {
        ExpertWeights w{matrix(d, "router"), matrix(d, "shared_gate"), {}, net(d["shared"])};
        for (nb::handle expert : nb::cast<nb::list>(d["experts"])) w.experts.push_back(net(expert));
        return w;
    }

    DeltaWeights delta(nb::dict d) {
        return {matrix(d, "qkv"), matrix(d, "gate"), matrix(d, "alpha"), matrix(d, "beta"), matrix(d, "out"),
                floats(d, "a"),   floats(d, "dt"),   floats(d, "conv"),  floats(d, "gamma")};
    }

    AttentionWeights attention(nb::dict d) {
        return {matrix(d, "q"),         matrix(d, "k"),         matrix(d, "v"),
                matrix(d, "out"),       matrix(d, "index_q"),   matrix(d, "index_k"),
                floats(d, "q_gamma"),   floats(d, "k_gamma"),   floats(d, "index_q_gamma"),
                floats(d, "index_k_gamma"), get<std::size_t>(d, "ratio")};
    }

    Block block(nb::dict d) {
        Block w{};
        w.attention_site = site(nb::cast<nb::dict>(d["attention_site"]));
        w.expert_site = site(nb::cast<nb::dict>(d["expert_site"]));
        if (d.contains("delta"))
            w.delta = delta(nb::cast<nb::dict>(d["delta"]));
        else
            w.attention = attention(nb::cast<nb::dict>(d["attention"]));
        w.experts = experts(nb::cast<nb::dict>(d["experts"]));
        return w;
    }

    NgramWeights ngram(nb::dict d) {
        return {matrix(d, "table"),     matrix(d, "key"),        matrix(d, "value"),     floats(d, "conv"),
                floats(d, "key_gamma"), floats(d, "query_gamma"), floats(d, "conv_gamma")};
    }

private:
    nb::list kept_;
    std::size_t& largest_k_;
};

void read_ngram(nb::dict d, NgramSpec& n) {
    n.layer = get<std::size_t>(d, "layer");
    n.order = get<std::size_t>(d, "order");
    n.heads = get<std::size_t>(d, "heads");
    n.row_width = get<std::size_t>(d, "row_width");
    n.conv_taps = get<std::size_t>(d, "conv_taps");
    n.eos = get<std::int64_t>(d, "eos");
    n.multipliers = get<std::vector<std::int64_t>>(d, "multipliers");
    n.offsets = get<std::vector<std::int64_t>>(d, "offsets");
    n.sizes = get<std::vector<std::int64_t>>(d, "sizes");
}

std::shared_ptr<Spec> read_spec(nb::dict d) {
    auto s = std::make_shared<Spec>();
    s->vocabulary = get<std::size_t>(d, "vocabulary");
    s->hidden = get<std::size_t>(d, "hidden");
    s->streams = get<std::size_t>(d, "streams");
    s->rank = get<std::size_t>(d, "rank");
    s->eps = get<float>(d, "eps");
    for (nb::handle kind : nb::cast<nb::list>(d["delta_layers"])) s->delta_layers.push_back(nb::cast<bool>(kind));
    s->ratios = get<std::vector<std::size_t>>(d, "ratios");
    const std::string kv = get<std::string>(d, "kv");
    s->kv = kv == "f32" ? KvType::f32 : kv == "bf16" ? KvType::bf16 : KvType::f16;
    const nb::dict a = nb::cast<nb::dict>(d["attention"]), l = nb::cast<nb::dict>(d["delta"]);
    s->attention = {get<std::size_t>(a, "heads"),       get<std::size_t>(a, "kv_heads"),  get<std::size_t>(a, "head_dim"),
                    get<std::size_t>(a, "rope_dim"),    get<std::size_t>(a, "index_heads"), get<std::size_t>(a, "index_dim"),
                    get<std::size_t>(a, "index_budget"), get<float>(a, "scale")};
    s->delta = {get<std::size_t>(l, "key_heads"), get<std::size_t>(l, "value_heads"), get<std::size_t>(l, "key_dim"),
                get<std::size_t>(l, "value_dim"), get<std::size_t>(l, "conv_taps"),   get<bool>(l, "silu_gate"),
                get<float>(l, "query_scale")};
    const nb::dict e = nb::cast<nb::dict>(d["experts"]);
    s->experts = {get<std::size_t>(e, "count"), get<std::size_t>(e, "used"), get<std::size_t>(e, "width"),
                  get<std::size_t>(e, "shared_width")};
    s->has_ngram = !d["ngram"].is_none();
    if (s->has_ngram) read_ngram(nb::cast<nb::dict>(d["ngram"]), s->ngram);
    s->has_mtp = get<bool>(d, "mtp");
    return s;
}

void check(const Spec& s) {
    if (s.experts.used > max_used)
        throw std::invalid_argument("The model uses " + std::to_string(s.experts.used) + " experts a token; at most " +
                                    std::to_string(max_used) + " are implemented.");
    const std::size_t taps = std::max(s.delta.conv_taps, s.has_ngram ? s.ngram.conv_taps : 0);
    if (taps > max_taps)
        throw std::invalid_argument("The model has a convolution of " + std::to_string(taps) + " taps; at most " +
                                    std::to_string(max_taps) + " are implemented.");
}

}  // namespace

Described describe(nb::dict spec, nb::dict weights, nb::list kept) {
    Described result{read_spec(spec), {}, 1};
    check(*result.spec);
    Reader read(kept, result.largest_k);
    Weights& w = result.weights;
    w.embedding = read.matrix(weights, "embedding");
    w.output = read.matrix(weights, "output");
    for (nb::handle block : nb::cast<nb::list>(weights["blocks"])) w.blocks.push_back(read.block(nb::cast<nb::dict>(block)));
    w.head = read.site(nb::cast<nb::dict>(weights["head"]));
    if (result.spec->has_ngram) w.ngram = read.ngram(nb::cast<nb::dict>(weights["ngram"]));
    if (result.spec->has_mtp) {
        const nb::dict m = nb::cast<nb::dict>(weights["mtp"]);
        w.mtp = {read.floats(m, "embedding_gamma"), read.floats(m, "hidden_gamma"), read.matrix(m, "project"),
                 read.block(nb::cast<nb::dict>(m["block"])), read.site(nb::cast<nb::dict>(m["head"]))};
    }
    return result;
}

}  // namespace strata
