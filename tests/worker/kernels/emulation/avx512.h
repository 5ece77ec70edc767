// AVX-512 for processors without it: the instructions that the kernels use, each made of two of AVX2. Included before
// every source, so that the sources stay as they are.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

// In a namespace of their own, so that the kernels' functions are not taken for those below.
namespace emulated {

struct Floats {
  __m256 low, high;
};
struct Words {
  __m256i low, high;
};

}  // namespace emulated

namespace emulation {

using emulated::Floats;
using emulated::Words;
using Mask = uint16_t;

inline Floats broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats zeros() { return broadcast(0.0f); }
inline Floats load(const void* at) {
  const float* floats = static_cast<const float*>(at);
  return {_mm256_loadu_ps(floats), _mm256_loadu_ps(floats + 8)};
}
inline void store(void* at, Floats x) {
  float* floats = static_cast<float*>(at);
  _mm256_storeu_ps(floats, x.low);
  _mm256_storeu_ps(floats + 8, x.high);
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats sub(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats div(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
template <int mode>
inline Floats round(Floats x) {
  return {_mm256_round_ps(x.low, mode), _mm256_round_ps(x.high, mode)};
}
inline float first(Floats x) { return _mm256_cvtss_f32(x.low); }
inline __m256 low_half(Floats x) { return x.low; }
template <int index>
inline __m256 half(Floats x) {
  return index == 0 ? x.low : x.high;
}

inline Words load_words(const void* at) {
  const __m256i* words = static_cast<const __m256i*>(at);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
inline void store_words(void* at, Words x) {
  __m256i* words = static_cast<__m256i*>(at);
  _mm256_storeu_si256(words, x.low);
  _mm256_storeu_si256(words + 1, x.high);
}
inline Words broadcast_word(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
template <class... Numbers>
inline Words words(Numbers... numbers) {
  const int32_t array[16] = {numbers...};
  return load_words(array);
}
inline Words add_words(Words a, Words b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline Words and_words(Words a, Words b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
inline Words shift_left(Words x, int by) { return {_mm256_slli_epi32(x.low, by), _mm256_slli_epi32(x.high, by)}; }
inline Words rounded(Floats x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline Floats as_floats(Words x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }
inline Words as_words(Floats x) { return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)}; }
inline Floats to_floats(Words x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
inline Words widen_signed(__m256i bytes) {
  return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1))};
}
inline Words shift_right_16(Words x, int by) { return {_mm256_srli_epi16(x.low, by), _mm256_srli_epi16(x.high, by)}; }
inline __m256i saturated_16(Words x) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
}
inline Words add_products_of_pairs(Words sums, Words a, Words b) {
  return add_words(sums, {_mm256_madd_epi16(a.low, b.low), _mm256_madd_epi16(a.high, b.high)});
}

inline Mask mask_of(__m256i low, __m256i high) {
  return static_cast<Mask>(_mm256_movemask_ps(_mm256_castsi256_ps(low)) |
                           _mm256_movemask_ps(_mm256_castsi256_ps(high)) << 8);
}
inline Mask is_greater(Words a, Words b) {
  return mask_of(_mm256_cmpgt_epi32(a.low, b.low), _mm256_cmpgt_epi32(a.high, b.high));
}
inline Mask is_at_least(Words a, Words b) { return static_cast<Mask>(~is_greater(b, a)); }
inline Floats blend(Mask mask, Floats unset, Floats set) {
  float result[16], other[16];
  store(result, unset);
  store(other, set);
  for (int lane = 0; lane < 16; lane++)
    if (mask >> lane & 1) result[lane] = other[lane];
  return load(result);
}

template <int order>
inline Mask compare(Floats a, Floats b) {
  return mask_of(_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, order)),
                 _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, order)));
}
inline void store_set_lanes(float* at, Mask mask, Floats x) {
  float lanes[16];
  store(lanes, x);
  for (int lane = 0; lane < 16; lane++)
    if (mask >> lane & 1) *at++ = lanes[lane];
}
inline Floats kept(Mask mask, Floats x) { return blend(mask, zeros(), x); }

}  // namespace emulation

#define __m512 emulated::Floats
#define __m512i emulated::Words

#undef _mm512_setzero_ps
#undef _mm512_set1_ps
#undef _mm512_loadu_ps
#undef _mm512_storeu_ps
#undef _mm512_fmadd_ps
#undef _mm512_add_ps
#undef _mm512_sub_ps
#undef _mm512_mul_ps
#undef _mm512_div_ps
#undef _mm512_max_ps
#undef _mm512_min_ps
#undef _mm512_roundscale_ps
#undef _mm512_cvtss_f32
#undef _mm512_castps512_ps256
#undef _mm512_extractf32x8_ps
#undef _mm512_loadu_si512
#undef _mm512_storeu_si512
#undef _mm512_set1_epi32
#undef _mm512_setr_epi32
#undef _mm512_add_epi32
#undef _mm512_and_si512
#undef _mm512_slli_epi32
#undef _mm512_cvtps_epi32
#undef _mm512_castsi512_ps
#undef _mm512_castps_si512
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepi8_epi16
#undef _mm512_srli_epi16
#undef _mm512_cvtsepi32_epi16
#undef _mm512_dpwssd_epi32
#undef _mm512_cmpge_epi32_mask
#undef _mm512_cmplt_epi32_mask
#undef _mm512_mask_blend_ps
#undef _mm512_maskz_mov_ps
#undef _mm512_mask_compressstoreu_ps
#undef _mm512_cmp_ps_mask

#define _mm512_setzero_ps emulation::zeros
#define _mm512_set1_ps emulation::broadcast
#define _mm512_loadu_ps emulation::load
#define _mm512_storeu_ps emulation::store
#define _mm512_fmadd_ps emulation::fma
#define _mm512_add_ps emulation::add
#define _mm512_sub_ps emulation::sub
#define _mm512_mul_ps emulation::mul
#define _mm512_div_ps emulation::div
#define _mm512_max_ps emulation::max
#define _mm512_min_ps emulation::min
#define _mm512_roundscale_ps(x, mode) emulation::round<mode>(x)
#define _mm512_cvtss_f32 emulation::first
#define _mm512_castps512_ps256 emulation::low_half
#define _mm512_extractf32x8_ps(x, index) emulation::half<index>(x)
#define _mm512_loadu_si512 emulation::load_words
#define _mm512_storeu_si512 emulation::store_words
#define _mm512_set1_epi32 emulation::broadcast_word
#define _mm512_setr_epi32 emulation::words
#define _mm512_add_epi32 emulation::add_words
#define _mm512_and_si512 emulation::and_words
#define _mm512_slli_epi32 emulation::shift_left
#define _mm512_cvtps_epi32 emulation::rounded
#define _mm512_castsi512_ps emulation::as_floats
#define _mm512_castps_si512 emulation::as_words
#define _mm512_cvtepi32_ps emulation::to_floats
#define _mm512_cvtepi8_epi16 emulation::widen_signed
#define _mm512_srli_epi16 emulation::shift_right_16
#define _mm512_cvtsepi32_epi16 emulation::saturated_16
#define _mm512_dpwssd_epi32 emulation::add_products_of_pairs
#define _mm512_cmpge_epi32_mask emulation::is_at_least
#define _mm512_cmplt_epi32_mask(a, b) emulation::is_greater(b, a)
#define _mm512_mask_blend_ps emulation::blend
#define _mm512_maskz_mov_ps emulation::kept
#define _mm512_cmp_ps_mask(a, b, order) emulation::compare<order>(a, b)
#define _mm512_mask_compressstoreu_ps emulation::store_set_lanes
