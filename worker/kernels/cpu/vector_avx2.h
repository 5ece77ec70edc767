// Eight floats in AVX2 with FMA.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace headrace {

using Vec = __m256;
constexpr int kWidth = 8;
constexpr int kRowsPerPass = 6;  // 6 rows of 2 vectors: 12 of the 16 registers hold sums

// How many panels to compute side by side: enough sums to hide the latency of an addition, as far as registers reach.
constexpr int panels_for(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec broadcast(float x) { return _mm256_set1_ps(x); }
inline Vec broadcast_from(const float* at) { return _mm256_broadcast_ss(at); }
inline Vec load(const float* at) { return _mm256_loadu_ps(at); }
inline void store(float* at, Vec x) { _mm256_storeu_ps(at, x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
// The second operand where either is NaN.
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec round_to_int(Vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Vec power_of_two(Vec n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline float first(Vec x) { return _mm256_cvtss_f32(x); }

inline float sum_of(Vec x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
inline float max_of(Vec x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

// `x` in lanes whose number is in [low, high), `other` elsewhere.
inline Vec within(Vec x, Vec other, int low, int high) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i outside =
      _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), lane),
                      _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(high - 1)));
  return _mm256_blendv_ps(x, other, _mm256_castsi256_ps(outside));
}

// `value` in lanes where `x` is at least `bound`, 0 elsewhere and where `x` is NaN.
inline Vec where_at_least(Vec x, Vec bound, Vec value) {
  return _mm256_and_ps(_mm256_cmp_ps(x, bound, _CMP_GE_OQ), value);
}

// For each set of lanes: their numbers in order, and then any.
struct LaneOrders {
  constexpr LaneOrders() : lanes() {
    for (int set = 0; set < 256; set++) {
      for (int lane = 0, place = 0; lane < 8; lane++) {
        if (set >> lane & 1) lanes[set][place++] = lane;
      }
    }
  }
  int32_t lanes[256][8];
};
inline constexpr LaneOrders kLaneOrders;

// Stores the lanes of `x` in [low, high) side by side and says how many they are. What follows them is overwritten too,
// as far as a whole vector reaches.
inline int store_between(float* at, Vec x, Vec low, Vec high) {
  const int set = _mm256_movemask_ps(_mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GE_OQ), _mm256_cmp_ps(x, high, _CMP_LT_OQ)));
  if (set == 0) return 0;
  const __m256i order = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneOrders.lanes[set]));
  store(at, _mm256_permutevar8x32_ps(x, order));
  return __builtin_popcount(static_cast<unsigned>(set));
}

// Two vectors from 2 * kWidth bf16 values stored in pairs: the low halves of the words are the first vector.
inline void load_bf16_pairs(const uint8_t* at, Vec& low, Vec& high) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  low = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  high = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

inline Vec from_int8(const uint8_t* at) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}

// From 2 * kWidth bytes, the four bits of each that start at `shift`.
template <int shift>
inline void load_nibbles(const uint8_t* at, Vec (&numbers)[2]) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m128i nibbles = _mm_and_si128(_mm_srli_epi16(bytes, shift), _mm_set1_epi8(15));
  numbers[0] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(nibbles));
  numbers[1] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(nibbles, nibbles)));
}

}  // namespace headrace
