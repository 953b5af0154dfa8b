// Binding of the model: shapes and tokens are checked here, the GIL is released while a window runs.
#include "bind_forward.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "bind_arrays.h"
#include "bind_weights.h"

namespace nb = nanobind;

namespace strata {
namespace {

void init(ModelHandle* self, nb::dict spec, nb::dict weights, int threads) {
    ModelHandle made;  // what is refused leaves nothing behind
    Described described = describe(spec, weights, made.kept);
    made.model = std::make_unique<Model>(described.spec, std::move(described.weights), described.largest_k, threads);
    new (self) ModelHandle(std::move(made));
}

void set_rope(ModelHandle& self, In<float, 2> cos, In<float, 2> sin) {
    const std::size_t half = self.model->spec().attention.rope_dim / 2;
    need(cos.shape(1) == half && sin.shape(1) == half && cos.shape(0) == sin.shape(0),
         "cos and sin have to be (positions, " + std::to_string(half) + ")");
    self.model->set_rope(cos.data(), sin.data(), cos.shape(0));
    self.rope = nb::make_tuple(cos, sin);
}

void check_tokens(const Spec& spec, In<std::int64_t, 1> tokens) {
    const std::int64_t *first = tokens.data(), *last = first + tokens.shape(0);
    const auto bad = std::find_if(first, last, [&](std::int64_t t) { return t < 0 || std::size_t(t) >= spec.vocabulary; });
    if (bad != last)
        throw std::invalid_argument("token id " + std::to_string(*bad) + " is outside the vocabulary of " +
                                    std::to_string(spec.vocabulary));
}

void check_lane(const Lane& lane, std::set<const Lane*>& seen) {
    need(seen.insert(&lane).second, "a conversation stands twice in one window");
    need(lane.undecided == 0, "a conversation has " + std::to_string(lane.undecided) +
                                  " undecided rows; accept has to say first how many are kept");
}

void forward(ModelHandle& self, const std::vector<Lane*>& lanes, const std::vector<In<std::int64_t, 1>>& tokens,
             const std::vector<std::size_t>& tentative, const std::vector<std::size_t>& logits_from, Out<float, 2> logits,
             std::optional<Out<float, 2>> streams) {
    const Spec& spec = self.model->spec();
    need(tokens.size() == lanes.size() && tentative.size() == lanes.size() && logits_from.size() == lanes.size(),
         "lanes, tokens, tentative and logits_from differ in length");
    std::vector<Segment> segments;
    std::set<const Lane*> seen;
    std::size_t rows = 0, wanted = 0;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        const std::size_t count = tokens[i].shape(0);
        check_lane(*lanes[i], seen);
        check_tokens(spec, tokens[i]);
        need(tentative[i] <= count && tentative[i] < Model::window_rows && logits_from[i] <= count,
             "a segment of " + std::to_string(count) + " tokens has " + std::to_string(tentative[i]) +
                 " tentative ones, and logits from " + std::to_string(logits_from[i]));
        need(lanes[i]->length + count <= self.model->positions(), "the rope table is too short");
        segments.push_back({lanes[i], tokens[i].data(), count, tentative[i], logits_from[i]});
        rows += count;
        wanted += count - logits_from[i];
    }
    need(logits.shape(0) == wanted && logits.shape(1) == spec.vocabulary, "logits do not fit");
    need(!streams || (streams->shape(0) == rows && streams->shape(1) == spec.wide()), "streams do not fit");
    nb::gil_scoped_release free_gil;
    self.model->forward(segments, logits.data(), streams ? streams->data() : nullptr);
}

void mtp(ModelHandle& self, const std::vector<Lane*>& lanes, const std::vector<std::size_t>& counts, In<float, 2> streams,
         In<std::int64_t, 1> tokens, Out<float, 2> logits, Out<float, 2> out) {
    const Spec& spec = self.model->spec();
    need(spec.has_mtp, "the model has no MTP block");
    check_tokens(spec, tokens);
    std::vector<Model::CacheSpan> spans;
    std::set<const Lane*> seen;
    std::size_t rows = 0;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        check_lane(*lanes[i], seen);
        need(!lanes[i]->drafts, "the MTP cache of a conversation with drafts follows the trunk by itself");
        need(lanes[i]->mtp[0].length + counts[i] <= self.model->positions(), "the rope table is too short");
        spans.push_back({&lanes[i]->mtp[0], rows, counts[i]});
        rows += counts[i];
    }
    need(tokens.shape(0) == rows && streams.shape(0) == rows && streams.shape(1) == spec.wide(), "streams do not fit");
    need(out.shape(0) == rows && out.shape(1) == spec.wide(), "out does not fit");
    need(logits.shape(0) == rows && logits.shape(1) == spec.vocabulary, "logits do not fit");
    nb::gil_scoped_release free_gil;
    if (rows > 0) self.model->mtp(spans, streams.data(), tokens.data(), logits.data(), out.data());
}

void draft(ModelHandle& self, const std::vector<Lane*>& lanes, In<std::int64_t, 1> tokens, In<float, 1> least,
           Out<std::int64_t, 2> drafts, Out<float, 2> chances) {
    std::vector<Draft> wanted;
    std::set<const Lane*> seen;
    check_tokens(self.model->spec(), tokens);
    need(tokens.shape(0) == lanes.size() && least.shape(0) == lanes.size() && drafts.shape(0) == lanes.size() &&
             chances.shape(0) == lanes.size() && chances.shape(1) == drafts.shape(1),
         "drafts do not fit");
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        check_lane(*lanes[i], seen);
        need(lanes[i]->drafts, "the conversation was not made for drafts");
        need(lanes[i]->length > 0, "a conversation without tokens has nothing to draft from");
        need(lanes[i]->length + drafts.shape(1) <= self.model->positions(), "the rope table is too short");
        wanted.push_back({lanes[i], tokens.data()[i], least.data()[i]});
    }
    nb::gil_scoped_release free_gil;
    self.model->draft(wanted, drafts.shape(1), drafts.data(), chances.data());
}

nb::dict profile(const ModelHandle& self) {
    const Profile& p = self.model->profile;
    nb::dict ops, products, result;
    for (std::size_t i = 0; i < p.nanoseconds.size(); ++i) {
        ops[op_names[i]] = p.nanoseconds[i];
        products[op_names[i]] = p.products[i];
    }
    result["ops"] = ops;
    result["products"] = products;
    result["windows"] = p.windows;
    result["total"] = p.total;
    return result;
}

void start_profile(ModelHandle& self, bool on) {
    self.model->profile = Profile{};
    self.model->profile.on = on;
}

}  // namespace

void bind_forward(nb::module_& m) {
    nb::class_<ModelHandle>(m, "Model", "A model's weights and the threads that compute its windows.")
        .def("__init__", &init, nb::arg("spec"), nb::arg("weights"), nb::arg("threads"))
        .def("set_rope", &set_rope, nb::arg("cos"), nb::arg("sin"))
        .def("forward", &forward, nb::arg("lanes"), nb::arg("tokens"), nb::arg("tentative"), nb::arg("logits_from"),
             nb::arg("logits"), nb::arg("streams").none() = nb::none())
        .def("mtp", &mtp, nb::arg("lanes"), nb::arg("counts"), nb::arg("streams"), nb::arg("tokens"), nb::arg("logits"),
             nb::arg("out"))
        .def("draft", &draft, nb::arg("lanes"), nb::arg("tokens"), nb::arg("least"), nb::arg("drafts"), nb::arg("chances"))
        .def("start_profile", &start_profile, nb::arg("on"))
        .def("profile", &profile)
        .def_prop_ro("threads", [](ModelHandle& self) { return self.model->pool().threads(); })
        .def_prop_ro("pinned", [](ModelHandle& self) { return self.model->pool().pinned(); })
        .def_prop_ro("positions", [](const ModelHandle& self) { return self.model->positions(); });
    m.def("available_cores", &available_cores, "Physical cores that this process may use.");
    m.def("poison", [](bool on) { Scratch::poison = on; }, nb::arg("on"),
          "For tests: fill the memory of every op with NaN before it runs.");
}

}  // namespace strata
