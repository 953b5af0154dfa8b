#include "codebooks.h"

namespace strata {

Codebooks codebooks;

namespace {

template <int entries, class Level>
void fill(Codebook<entries>& book, const std::int8_t* rows, int elements, Level level) {
    const int bits = elements == 8 ? 2 : 4, half = elements / 2;
    for (int i = 0; i < entries; ++i) {
        unsigned plane[2] = {0, 0};
        for (int e = 0; e < elements; ++e) plane[e / half] |= level(rows[i * elements + e]) << e % half * bits;
        book.planes[0][i] = static_cast<std::uint8_t>(plane[0]);
        book.planes[1][i] = static_cast<std::uint8_t>(plane[1]);
        book.words[i] = static_cast<std::uint16_t>(plane[0] | plane[1] << 8);
    }
}

}  // namespace

void set_codebooks(const Grids& grids) {
    const auto iq1 = [](int v) { return unsigned(v + 1); };   // -1 0 1
    const auto iq2 = [](int v) { return unsigned(v / 16); };  // 8 25 43
    fill(codebooks.iq1, grids.iq1, 8, iq1);
    fill(codebooks.iq2_xxs, grids.iq2_xxs, 8, iq2);
    fill(codebooks.iq2_xs, grids.iq2_xs, 8, iq2);
    fill(codebooks.iq2_s, grids.iq2_s, 8, iq2);
    fill(codebooks.iq3_xxs, grids.iq3_xxs, 4, [](int v) { return unsigned(v / 8); });  // 4 12 20 28 36 44 52 62
    fill(codebooks.iq3_s, grids.iq3_s, 4, [](int v) { return unsigned(v / 2); });      // 1 3 ... 15
}

}  // namespace strata
