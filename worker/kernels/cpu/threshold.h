// Rows of weights over a vocabulary, and the cuts of top_k, top_p and min_p in them, found by bisection over the
// weights themselves: nothing is sorted. A row is worked on in chunks, in order, by one thread: what comes out depends
// on nothing beside it. Chunks sum up to double precision, since a cut may hang on the last of a hundred thousand.
#pragma once

#include <stdint.h>
#include <string.h>

#include <algorithm>

#include "vector.h"

namespace headrace {

constexpr int64_t kChunk = 64;
constexpr int kRoundsPerNarrowing = 4;
constexpr float kFirstLook = 0x1p-3f, kStepOfLooks = 0x1p-3f;  // cuts lie near the top more often than far below it
constexpr float kLeastWeight = 0x1p-126f;

inline int64_t chunks_of(int64_t size) { return (size + kChunk - 1) / kChunk; }

inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t bits_of(float x) {  // ordered as the floats are, as long as these are not negative
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Weights between 0 and 1, the largest of them 1.
struct Weights {
  float* at;           // [num_chunks * kChunk], 0 behind the end
  float* largest;      // [num_chunks] of each chunk
  double* sums;        // [num_chunks] of each chunk
  float* candidates;   // [num_chunks * kChunk] room for a selection
  int64_t num_chunks;
};

enum class By { kNumber, kSum };

// The number or the sum of those of `count` weights, padded with 0 to whole chunks, that are at least `cut` > 0.
template <By by>
double reach(const float* weights, int64_t count, float cut) {
  const Vec cuts = broadcast(cut);
  double total = 0.0;
  for (int64_t i = 0; i < count; i += kChunk) {
    Vec sum = zero();
    for (int j = 0; j < kChunk; j += kWidth) {
      const Vec w = load(weights + i + j);
      sum = add(sum, where_at_least(w, cuts, by == By::kSum ? w : broadcast(1.0f)));
    }
    total += sum_of(sum);
  }
  return total;
}

// The same over a row: chunks without such a weight are passed over.
template <By by>
double reach(const Weights& row, float cut) {
  double total = 0.0;
  for (int64_t c = 0; c < row.num_chunks; c++) {
    if (row.largest[c] >= cut) total += reach<by>(row.at + c * kChunk, kChunk, cut);
  }
  return total;
}

// Moves the weights in [low, high) out of whole chunks to `to`, which may be where they are, from `num_moved` on; how
// many it holds then. There must be room for all.
inline int64_t move(const float* weights, int64_t count, float low, float high, float* to, int64_t num_moved) {
  const Vec from = broadcast(low), below = broadcast(high);
  for (int64_t i = 0; i < chunks_of(count) * kChunk; i += kWidth) {
    num_moved += store_between(to + num_moved, load(weights + i), from, below);
  }
  return num_moved;
}

inline void pad(float* weights, int64_t count) {
  std::fill(weights + count, weights + chunks_of(count) * kChunk, 0.0f);
}

// The largest cut in [low, high) whose reach is at least `wanted`. That of `low` is; `above` is the reach of `high`.
template <By by>
float bisect(const Weights& row, float low, float high, double above, double wanted) {
  float* candidates = row.candidates;
  int64_t count = 0;
  for (int64_t c = 0; c < row.num_chunks; c++) {
    if (row.largest[c] >= low) count = move(row.at + c * kChunk, kChunk, low, high, candidates, count);
  }
  pad(candidates, count);
  uint32_t from = bits_of(low), to = bits_of(high);
  for (int round = 1; to - from > 1; round++) {
    const uint32_t middle = from + (to - from) / 2;
    const bool is_reached = above + reach<by>(candidates, count, float_of(middle)) >= wanted;
    (is_reached ? from : to) = middle;
    if (round % kRoundsPerNarrowing == 0) {
      above += reach<by>(candidates, count, float_of(to));
      count = move(candidates, count, float_of(from), float_of(to), candidates, 0);
      pad(candidates, count);
    }
  }
  return float_of(from);
}

// The largest cut of the row whose reach is at least `wanted`, or `floor` where that is larger.
template <By by>
float largest_cut(const Weights& row, float floor, double wanted) {
  const float least = std::max(floor, kLeastWeight);
  float high = 2.0f;
  double above = 0.0;
  for (float look = kFirstLook; high > least; look *= kStepOfLooks) {
    const float low = std::max(look, least);
    const double reached = reach<by>(row, low);
    if (reached >= wanted) return bisect<by>(row, low, high, above, wanted);
    high = low;
    above = reached;
  }
  return floor;
}

}  // namespace headrace
