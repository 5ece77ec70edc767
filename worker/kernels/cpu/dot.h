// Dot products of bf16 pairs in AVX512-BF16.
#pragma once

#include <string.h>

#include "vector.h"

namespace headrace {

using Pairs = __m512i;  // sixteen pairs of bf16

inline Pairs load_pairs(const uint8_t* at) { return _mm512_loadu_si512(at); }
inline Pairs broadcast_pair(const uint8_t* at) {
  int32_t pair;
  memcpy(&pair, at, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

// sum + a[1] * b[1] + a[0] * b[0] for each pair, in this order, rounded after each addition; denormals count as zero.
inline Vec dot(Pairs a, Pairs b, Vec sum) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

// Rounds 2 * kWidth floats to bf16, to nearest even; denormals become zero.
inline void round_to_bf16(const float* from, uint8_t* to) {
  _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(load(from + kWidth), load(from)));
}

}  // namespace headrace
