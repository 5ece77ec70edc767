// Vectors of floats in the instruction set this file is compiled for. Everything above is written against these few
// operations, so another instruction set is one more file of this kind.
#pragma once

#if defined(HEADRACE_AVX512)
#include "vector_avx512.h"
#else
#include "vector_avx2.h"
#endif

namespace headrace {

constexpr int kPanelWidth = 2 * kWidth;  // columns a weight panel holds, and slots a KV cell holds

// e^x to about one unit in the last place, 0 below float's range. NaN stays NaN.
inline Vec exp(Vec x) {
  const Vec clamped = min(broadcast(88.0f), max(broadcast(-87.33f), x));
  const Vec n = round_to_int(mul(clamped, broadcast(1.44269504088896341f)));
  Vec r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), broadcast(1.0f));
  return mul(p, power_of_two(n));
}

inline float exp(float x) { return first(exp(broadcast(x))); }

inline Vec tanh(Vec x) {
  const Vec e = exp(add(x, x));
  return sub(broadcast(1.0f), div(broadcast(2.0f), add(e, broadcast(1.0f))));
}

inline Vec silu(Vec x) {
  const Vec e = exp(sub(zero(), x));
  return div(x, add(broadcast(1.0f), e));
}

}  // namespace headrace
