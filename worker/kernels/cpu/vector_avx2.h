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

// Rounds 2 * kWidth whole numbers to 16-bit integers.
inline void store_int16(uint8_t* at, Vec low, Vec high) {
  const __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_permute4x64_epi64(packed, 0xd8));
}

struct PairBytes {
  uint8_t bytes[4];
};

// Pairs of 16-bit integers, or the 32-bit sums of their products.
using IntPairs = __m256i;

inline IntPairs no_pairs() { return _mm256_setzero_si256(); }
inline Vec float_of(IntPairs sums) { return _mm256_cvtepi32_ps(sums); }
inline IntPairs widen_int8(const uint8_t* at) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
// From 16-bit words, the four bits of each that start at `shift`.
template <int shift>
inline IntPairs nibbles(const uint8_t* at) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return _mm256_and_si256(_mm256_srli_epi16(words, shift), _mm256_set1_epi16(15));
}

// sums += the products of the pair at `x` with each of `pairs`. In assembly because compilers would have all products
// before they add the first, and then too few registers for the sums.
[[gnu::always_inline]] inline void add_dots(const uint8_t* x, const IntPairs (&pairs)[2], IntPairs (&sums)[2]) {
  IntPairs low = sums[0], high = sums[1], product, other;
  asm("vpbroadcastd %[x], %[other]\n\t"
      "vpmaddwd %[other], %[weights0], %[product]\n\t"
      "vpmaddwd %[other], %[weights1], %[other]\n\t"
      "vpaddd %[product], %[low], %[low]\n\t"
      "vpaddd %[other], %[high], %[high]"
      : [low] "+x"(low), [high] "+x"(high), [product] "=&x"(product), [other] "=&x"(other)
      : [x] "m"(*reinterpret_cast<const PairBytes*>(x)), [weights0] "x"(pairs[0]), [weights1] "x"(pairs[1]));
  sums[0] = low;
  sums[1] = high;
}

}  // namespace headrace
