// What happens to one row at a time: norms and rotary positions.
#pragma once

#include <stdint.h>

#include "vector.h"

namespace headrace {

// to = x / rms(x) * weight. `to` may be `x`.
inline void rms_norm(const float* x, const float* weight, int64_t size, float epsilon, float* to) {
  Vec squares = zero();
  int64_t i = 0;
  for (; i + kWidth <= size; i += kWidth) squares = fma(load(x + i), load(x + i), squares);
  float sum = sum_of(squares);
  for (int64_t rest = i; rest < size; rest++) sum = __builtin_fmaf(x[rest], x[rest], sum);
  const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(size) + epsilon);
  const Vec factors = broadcast(factor);
  for (i = 0; i + kWidth <= size; i += kWidth) store(to + i, mul(mul(load(x + i), factors), load(weight + i)));
  for (; i < size; i++) to[i] = x[i] * factor * weight[i];
}

// Rotates element i with element size / 2 + i of a head's first `size` elements.
inline void rotate(float* head, const float* cosines, const float* sines, int64_t size) {
  const int64_t half = size / 2;
  int64_t i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    const Vec a = load(head + i), b = load(head + half + i), c = load(cosines + i), s = load(sines + i);
    store(head + i, sub(mul(a, c), mul(b, s)));
    store(head + half + i, add(mul(b, c), mul(a, s)));
  }
  for (; i < half; i++) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cosines[i] - b * sines[i];
    head[half + i] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace headrace
