// The running softmax of attention rows: over the tiles of a split, and over the splits of a sequence.
#pragma once

#include <algorithm>
#include <limits>

#include "headrace.h"
#include "vector.h"

namespace headrace {

constexpr int64_t kTileScores = 64;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Which scores of a tile a row sees.
struct SeenKeys {
  int first, last;
};

// What the rows have seen so far: the largest score, the sum of weights relative to it, and the weighted values.
struct Partial {
  static constexpr int64_t kMaxRows = 4 * kRowsPerPass;
  static constexpr int64_t kHeaderFloats = (2 * kMaxRows + 15) / 16 * 16;

  Partial(float* memory, int64_t value_size)
      : largest(memory), total(memory + kMaxRows), values(memory + kHeaderFloats), value_size(value_size) {}

  void clear(int64_t rows) {
    std::fill(largest, largest + rows, kNothing);
    std::fill(total, total + rows, 0.0f);
    std::fill(values, values + rows * value_size, 0.0f);
  }

  // Adds what the same rows have seen further on.
  void merge(const Partial& later, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) {
      if (later.largest[row] == kNothing) continue;
      const float most = std::max(largest[row], later.largest[row]);
      const Vec ours = exp(broadcast(largest[row] - most)), theirs = exp(broadcast(later.largest[row] - most));
      largest[row] = most;
      total[row] = first(fma(broadcast(total[row]), ours, mul(broadcast(later.total[row]), theirs)));
      float* to = values + row * value_size;
      const float* from = later.values + row * value_size;
      for (int64_t d = 0; d < value_size; d += kWidth) store(to + d, fma(load(to + d), ours, mul(load(from + d), theirs)));
    }
  }

  // What a row's values are multiplied with in the end. A sink takes weight without adding a value.
  float final_factor(int64_t row, const float* sink) const {
    if (sink == nullptr) return 1.0f / total[row];
    const float most = std::max(largest[row], *sink);
    const float ours = exp(largest[row] - most), theirs = exp(*sink - most);
    return ours / (total[row] * ours + theirs);
  }

  float* largest;
  float* total;
  float* values;
  int64_t value_size;
};

// Turns a row's scores of one tile into weights, 0 where the row does not see the key, and adds them to its total.
// Returns the factor that what was seen before must be multiplied with.
inline float weigh_scores(float* scores, SeenKeys seen, const hr_attention& attention, Partial& partial, int64_t row) {
  if (seen.first >= seen.last) {
    std::fill(scores, scores + kTileScores, 0.0f);
    return 1.0f;
  }
  const Vec nothing = broadcast(kNothing), scaling = broadcast(attention.scaling);
  Vec largest = nothing;
  for (int i = 0; i < kTileScores; i += kWidth) {
    Vec x = mul(load(scores + i), scaling);
    if (attention.softcap > 0.0f)
      x = mul(broadcast(attention.softcap), tanh(div(x, broadcast(attention.softcap))));
    // Whatever stands in slots not seen, NaN included, goes no further.
    x = within(x, nothing, seen.first - i, seen.last - i);
    store(scores + i, x);
    largest = max(largest, x);
  }
  const float before = partial.largest[row], most = std::max(before, max_of(largest));
  const Vec subtrahend = broadcast(most);
  Vec sum = zero();
  for (int i = 0; i < kTileScores; i += kWidth) {
    const Vec weight = within(exp(sub(load(scores + i), subtrahend)), zero(), seen.first - i, seen.last - i);
    store(scores + i, weight);
    sum = add(sum, weight);
  }
  const Vec correction = exp(broadcast(before - most));
  partial.largest[row] = most;
  partial.total[row] = first(fma(broadcast(partial.total[row]), correction, broadcast(sum_of(sum))));
  return first(correction);
}

}  // namespace headrace
