// Sixteen floats in AVX-512 (F, BW, DQ, VL).
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace headrace {

using Vec = __m512;
constexpr int kWidth = 16;
constexpr int kRowsPerPass = 12;  // 12 rows of 2 vectors: 24 of the 32 registers hold sums

// How many panels to compute side by side: enough sums to hide the latency of an addition, as far as registers reach.
constexpr int panels_for(int rows) { return rows == 1 ? 4 : rows == 2 ? 3 : rows == 3 ? 2 : 1; }

inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec broadcast(float x) { return _mm512_set1_ps(x); }
inline Vec broadcast_from(const float* at) { return _mm512_set1_ps(*at); }
inline Vec load(const float* at) { return _mm512_loadu_ps(at); }
inline void store(float* at, Vec x) { _mm512_storeu_ps(at, x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
// The second operand where either is NaN.
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec round_to_int(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec power_of_two(Vec n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}
inline float first(Vec x) { return _mm512_cvtss_f32(x); }

inline __m256 low_half(Vec x) { return _mm512_castps512_ps256(x); }
inline __m256 high_half(Vec x) { return _mm512_extractf32x8_ps(x, 1); }

inline float sum_of(Vec x) {
  const __m256 eight = _mm256_add_ps(low_half(x), high_half(x));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
inline float max_of(Vec x) {
  const __m256 eight = _mm256_max_ps(low_half(x), high_half(x));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}

// `x` in lanes whose number is in [low, high), `other` elsewhere.
inline Vec within(Vec x, Vec other, int low, int high) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 inside = static_cast<__mmask16>(_mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(low)) &
                                                  _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(high)));
  return _mm512_mask_blend_ps(inside, other, x);
}

// `value` in lanes where `x` is at least `bound`, 0 elsewhere and where `x` is NaN.
inline Vec where_at_least(Vec x, Vec bound, Vec value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), value);
}

// Stores the lanes of `x` in [low, high) side by side and says how many they are. What follows them may be overwritten,
// as far as a whole vector reaches.
inline int store_between(float* at, Vec x, Vec low, Vec high) {
  const __mmask16 set =
      static_cast<__mmask16>(_mm512_cmp_ps_mask(x, low, _CMP_GE_OQ) & _mm512_cmp_ps_mask(x, high, _CMP_LT_OQ));
  _mm512_mask_compressstoreu_ps(at, set, x);
  return __builtin_popcount(set);
}

// Two vectors from 2 * kWidth bf16 values stored in pairs: the low halves of the words are the first vector.
inline void load_bf16_pairs(const uint8_t* at, Vec& low, Vec& high) {
  const __m512i words = _mm512_loadu_si512(at);
  low = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  high = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Rounds 2 * kWidth whole numbers to 16-bit integers.
inline void store_int16(uint8_t* at, Vec low, Vec high) {
  __m256i* to = reinterpret_cast<__m256i*>(at);
  _mm256_storeu_si256(to, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(low)));
  _mm256_storeu_si256(to + 1, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(high)));
}

// Pairs of 16-bit integers, or the 32-bit sums of their products.
using IntPairs = __m512i;

inline IntPairs no_pairs() { return _mm512_set1_epi32(0); }
inline Vec float_of(IntPairs sums) { return _mm512_cvtepi32_ps(sums); }
inline IntPairs widen_int8(const uint8_t* at) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
// From 16-bit words, the four bits of each that start at `shift`.
template <int shift>
inline IntPairs nibbles(const uint8_t* at) {
  return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(at), shift), _mm512_set1_epi32(0x000f000f));
}

// sums += the products of the pair at `x` with each of `pairs`.
[[gnu::always_inline]] inline void add_dots(const uint8_t* x, const IntPairs (&pairs)[2], IntPairs (&sums)[2]) {
  int32_t pair;
  memcpy(&pair, x, sizeof(pair));
  const IntPairs factor = _mm512_set1_epi32(pair);
  for (int half = 0; half < 2; half++) {
#if defined(HEADRACE_DOT)
    sums[half] = _mm512_dpwssd_epi32(sums[half], pairs[half], factor);
#else
    sums[half] = _mm512_add_epi32(sums[half], _mm512_madd_epi16(pairs[half], factor));
#endif
  }
}

}  // namespace headrace
