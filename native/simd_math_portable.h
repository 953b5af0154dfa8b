// Included by simd_math.h inside its namespace: plain loops.
STRATA_OP Floats load_some(const float* p, std::size_t count) {
    Floats v = zero_floats();
    for (std::size_t i = 0; i < count; ++i) v.v[i] = p[i];
    return v;
}
STRATA_OP std::uint32_t bits_of(float x) {
    std::uint32_t u;
    __builtin_memcpy(&u, &x, 4);
    return u;
}
STRATA_OP float of_bits(std::uint32_t u) {
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}
STRATA_OP Floats div(Floats a, Floats b) { STRATA_FLOAT(a.v[i] / b.v[i]); }
STRATA_OP Floats larger(Floats a, Floats b) { STRATA_FLOAT(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
STRATA_OP Floats smaller(Floats a, Floats b) { STRATA_FLOAT(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
STRATA_OP Floats zero_where_less(Floats x, Floats limit, Floats y) {
    STRATA_FLOAT(x.v[i] < limit.v[i] ? 0.0f : y.v[i]);
}
STRATA_OP Floats by_sign(Floats x, Floats a, Floats b) { STRATA_FLOAT(x.v[i] >= 0.0f ? a.v[i] : b.v[i]); }
STRATA_OP Floats minus_magnitude(Floats x) { STRATA_FLOAT(of_bits(bits_of(x.v[i]) | 0x80000000u)); }
STRATA_OP Floats power_of(Floats shifted) {
    STRATA_FLOAT(of_bits((bits_of(shifted.v[i]) - (0x4B400000u - 127)) << 23));
}
STRATA_OP float first_of(Floats v) { return v.v[0]; }
STRATA_OP Floats floats_at(const void* p) {
    Floats v;
    __builtin_memcpy(&v, p, 64);
    return v;
}
STRATA_OP std::uint32_t top_magnitude(Floats a, Floats b) {
    std::uint32_t top = 0;
    for (int i = 0; i < 16; ++i) {
        const std::uint32_t x = bits_of(a.v[i]) & 0x7FFFFFFF, y = bits_of(b.v[i]) & 0x7FFFFFFF, larger = x > y ? x : y;
        top = larger > top ? larger : top;
    }
    return top;
}
STRATA_OP void spread_quarters(const std::int8_t* from, std::int8_t* to) {
    constexpr int order[4] = {0, 8, 4, 12};
    for (int i = 0; i < 16; ++i) to[i] = from[i / 4 + order[i % 4]];
}
STRATA_OP void store_integers(std::int8_t* p, Floats shifted) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(bits_of(shifted.v[i]) - 0x4B400000u));
}
STRATA_OP Floats bfloats_at(const void* p) {
    std::uint16_t h[16];
    __builtin_memcpy(h, p, 32);
    STRATA_FLOAT(of_bits(std::uint32_t(h[i]) << 16));
}
STRATA_OP void store_bfloats(void* p, Floats x) {
    std::uint16_t h[16];
    for (int i = 0; i < 16; ++i) {
        const std::uint32_t u = bits_of(x.v[i]);
        const bool nan = x.v[i] != x.v[i];
        h[i] = std::uint16_t((nan ? u | 0x400000u : u + 0x7FFF + (u >> 16 & 1)) >> 16);
    }
    __builtin_memcpy(p, h, 32);
}
STRATA_OP std::uint16_t to_half(float x) {
    const std::uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;
    if (a > 0x7F800000) return std::uint16_t(sign | 0x7E00 | (a >> 13 & 0x1FF));
    if (a >= 0x477FF000) return std::uint16_t(sign | 0x7C00);  // 65520 and more: infinity
    if (a < 0x38800000)  // below 2^-14: steps of 2^-24, by the rounding of an addition at 0.5
        return std::uint16_t(sign | (bits_of(of_bits(a) + 0.5f) - 0x3F000000));
    const std::uint32_t rebased = a - 0x38000000;
    return std::uint16_t(sign | (rebased + 0xFFF + (rebased >> 13 & 1)) >> 13);
}
STRATA_OP void store_halves(void* p, Floats x) {
    std::uint16_t h[16];
    for (int i = 0; i < 16; ++i) h[i] = to_half(x.v[i]);
    __builtin_memcpy(p, h, 32);
}
STRATA_OP float tree16(Floats v) {
    for (int size = 8; size > 0; size /= 2)
        for (int i = 0; i < size; ++i) v.v[i] = v.v[2 * i] + v.v[2 * i + 1];
    return v.v[0];
}
STRATA_OP Floats sixteen_trees(const Floats v[16]) { STRATA_FLOAT(tree16(v[i])); }
