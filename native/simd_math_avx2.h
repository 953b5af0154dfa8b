// Included by simd_math.h inside its namespace: AVX2, two registers a vector.
STRATA_OP Floats load_some(const float* p, std::size_t count) {
    float v[16] = {};
    for (std::size_t i = 0; i < count; ++i) v[i] = p[i];
    return load_floats(v);
}
STRATA_OP Floats div(Floats x, Floats y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
STRATA_OP Floats larger(Floats x, Floats y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
STRATA_OP Floats smaller(Floats x, Floats y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
STRATA_OP Floats zero_where_less(Floats x, Floats limit, Floats y) {
    return {_mm256_and_ps(_mm256_cmp_ps(x.a, limit.a, _CMP_NLT_UQ), y.a),
            _mm256_and_ps(_mm256_cmp_ps(x.b, limit.b, _CMP_NLT_UQ), y.b)};
}
STRATA_OP Floats by_sign(Floats x, Floats yes, Floats no) {
    const __m256 zero = _mm256_setzero_ps();
    return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, zero, _CMP_GE_OQ)),
            _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, zero, _CMP_GE_OQ))};
}
STRATA_OP Floats minus_magnitude(Floats x) {
    const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi32(std::int32_t(0x80000000u)));
    return {_mm256_or_ps(x.a, sign), _mm256_or_ps(x.b, sign)};
}
STRATA_OP __m256 power_of(__m256 shifted) {
    const __m256i e = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4B400000 - 127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}
STRATA_OP Floats power_of(Floats shifted) { return {power_of(shifted.a), power_of(shifted.b)}; }
STRATA_OP float first_of(Floats v) { return _mm256_cvtss_f32(v.a); }
STRATA_OP Floats floats_at(const void* p) {
    const float* at = static_cast<const float*>(p);
    return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)};
}
STRATA_OP std::uint32_t top_magnitude(Floats a, Floats b) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    const auto bits = [=](__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), magnitude); };
    const __m256i top = _mm256_max_epu32(_mm256_max_epu32(bits(a.a), bits(a.b)), _mm256_max_epu32(bits(b.a), bits(b.b)));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
}
STRATA_OP void spread_quarters(const std::int8_t* from, std::int8_t* to) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i order = _mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(v, order));
}
STRATA_OP void store_integers(std::int8_t* p, Floats shifted) {
    const __m256i magic = _mm256_set1_epi32(0x4B400000);
    const __m256i a = _mm256_sub_epi32(_mm256_castps_si256(shifted.a), magic);
    const __m256i b = _mm256_sub_epi32(_mm256_castps_si256(shifted.b), magic);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
STRATA_OP __m256 bfloats8_at(const void* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
STRATA_OP Floats bfloats_at(const void* p) { return {bfloats8_at(p), bfloats8_at(static_cast<const char*>(p) + 16)}; }
STRATA_OP __m256i bfloat_bits(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
STRATA_OP void store_bfloats(void* p, Floats x) {
    const __m256i packed = _mm256_packus_epi32(bfloat_bits(x.a), bfloat_bits(x.b));
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
STRATA_OP void store_halves(void* p, Floats x) {
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    __m128i* out = static_cast<__m128i*>(p);
    _mm_storeu_si128(out, _mm256_cvtps_ph(x.a, nearest));
    _mm_storeu_si128(out + 1, _mm256_cvtps_ph(x.b, nearest));
}
STRATA_OP float tree8(__m256 v) {
    v = _mm256_add_ps(v, _mm256_permute_ps(v, 0xB1));
    v = _mm256_add_ps(v, _mm256_permute_ps(v, 0x4E));
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}
STRATA_OP float tree16(Floats v) { return tree8(v.a) + tree8(v.b); }
// Lanes 0..7: trees of a vector each.
STRATA_OP __m256 eight_trees(__m256 a, __m256 b, __m256 c, __m256 d, __m256 e, __m256 f, __m256 g, __m256 h) {
    const __m256 left = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    const __m256 right = _mm256_hadd_ps(_mm256_hadd_ps(e, f), _mm256_hadd_ps(g, h));
    return _mm256_add_ps(_mm256_permute2f128_ps(left, right, 0x20), _mm256_permute2f128_ps(left, right, 0x31));
}
STRATA_OP __m256 eight_trees(const Floats v[8]) {
    return _mm256_add_ps(eight_trees(v[0].a, v[1].a, v[2].a, v[3].a, v[4].a, v[5].a, v[6].a, v[7].a),
                         eight_trees(v[0].b, v[1].b, v[2].b, v[3].b, v[4].b, v[5].b, v[6].b, v[7].b));
}
STRATA_OP Floats sixteen_trees(const Floats v[16]) { return {eight_trees(v), eight_trees(v + 8)}; }
