// Weight panels: kPanelWidth output columns, stored k by k, as floats or bf16; and the one loop that multiplies rows
// with them. Quantized ones are in quantized_panel.h.
//
// Every sum runs over k in ascending order in a register of its own, one fused multiply-add after another, however
// many rows and panels are computed side by side. That is what keeps a row's result the same in every batch.
#pragma once

#include <stddef.h>

#include <utility>

#include "headrace.h"
#include "vector.h"

namespace headrace {

struct F32 {
  static constexpr size_t kBytesPerK = kPanelWidth * 4;
  static size_t panel_bytes(int64_t in_size) { return in_size * kBytesPerK; }
  static void load(const uint8_t* at, Vec& low, Vec& high) {
    low = headrace::load(reinterpret_cast<const float*>(at));
    high = headrace::load(reinterpret_cast<const float*>(at) + kWidth);
  }
};

// Column c < kWidth is the low half of word c, column kWidth + c the high half: widening is a shift and a mask.
struct Bf16 {
  static constexpr size_t kBytesPerK = kPanelWidth * 2;
  static size_t panel_bytes(int64_t in_size) { return in_size * kBytesPerK; }
  static void load(const uint8_t* at, Vec& low, Vec& high) { load_bf16_pairs(at, low, high); }
};

// Where a lane of a pair-interleaved bf16 row stands.
inline int pair_place(int column) { return column < kWidth ? 2 * column : 2 * (column - kWidth) + 1; }

inline uint16_t bf16_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN, kept one
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline float float_of_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// Calls body(index) for each index from 0 to N, as constants: an array so indexed can live in registers.
template <class Body, int... Index>
[[gnu::always_inline]] inline void repeat_indexed(Body&& body, std::integer_sequence<int, Index...>) {
  (body(std::integral_constant<int, Index>{}), ...);
}
template <int N, class Body>
[[gnu::always_inline]] inline void repeat(Body&& body) {
  repeat_indexed(body, std::make_integer_sequence<int, N>{});
}

template <int R, int P>
using Sums = Vec[R][P][2];

template <int R, int P>
inline void clear(Sums<R, P>& sums) {
  repeat<R>([&](auto r) { repeat<P>([&](auto p) { sums[r][p][0] = sums[r][p][1] = zero(); }); });
}

template <int R, int P>
[[gnu::always_inline]] inline void add_products(const float* x, size_t x_stride, const Vec (&weights)[P][2],
                                                Sums<R, P>& sums) {
  repeat<R>([&](auto r) {
    const Vec factor = broadcast_from(x + r * x_stride);
    repeat<P>([&](auto p) {
      sums[r][p][0] = fma(factor, weights[p][0], sums[r][p][0]);
      sums[r][p][1] = fma(factor, weights[p][1], sums[r][p][1]);
    });
  });
}

// What to bring into the cache while the loop runs: `offset` bytes from each panel's start, `step` bytes on with each
// k, or group of k. Addresses beyond the end do no harm.
struct Fetch {
  size_t offset, step;
};
constexpr size_t kFetchAhead = 1024;

// A single pass reads its panels from memory and fetches a little ahead. Several passes find theirs in the cache,
// where those over the panels before have brought them: each does its part for the next chunk, which is chunk_bytes on.
// A panel is `steps` times `step_bytes`.
inline Fetch fetch_for(size_t step_bytes, int64_t steps, int64_t chunk_bytes, int64_t pass, int64_t passes) {
  if (passes == 1) return {kFetchAhead, step_bytes};
  const int64_t parts = passes < 4 ? 2 : passes < 8 ? 4 : 8;
  if (pass >= parts) return {0, 0};
  const size_t step = step_bytes / parts;
  return {chunk_bytes + pass * steps * step, step};
}

// Other memory to bring into the cache while a loop runs: `step` bytes with each k.
struct Stream {
  const uint8_t* at;
  size_t step;
};

// sums[r][p] += x[r][0..count) times panel p, whose rows are `k_bytes` apart.
template <class Format, int R, int P>
[[gnu::always_inline]] inline void multiply(const float* x, size_t x_stride, const uint8_t* const (&panels)[P],
                                            size_t k_bytes, int64_t count, Stream stream, Sums<R, P>& sums) {
  for (int64_t k = 0; k < count; k++, stream.at += stream.step) {
    __builtin_prefetch(stream.at, 0, 3);
    Vec weights[P][2];
    repeat<P>([&](auto p) { Format::load(panels[p] + k * k_bytes, weights[p][0], weights[p][1]); });
    add_products<R, P>(x + k, x_stride, weights, sums);
  }
}

// sums[r][p] = row r times panel p of a packed linear layer.
template <class Format, int R, int P>
[[gnu::always_inline]] inline void multiply_panels(const float* x, size_t x_stride, const uint8_t* const (&panels)[P],
                                                   int64_t count, Fetch fetch, Sums<R, P>& sums) {
  clear<R, P>(sums);
  for (int64_t k = 0; k < count; k++) {
    Vec weights[P][2];
    repeat<P>([&](auto p) {
      __builtin_prefetch(panels[p] + fetch.offset, 0, 3);
      Format::load(panels[p] + k * Format::kBytesPerK, weights[p][0], weights[p][1]);
    });
    fetch.offset += fetch.step;
    add_products<R, P>(x + k, x_stride, weights, sums);
  }
}

// Calls visit.template operator()<R>(row, pass, passes) for passes of at most kRowsPerPass rows that cover [first, last), evenly.
template <class Visit>
inline void for_row_passes(int64_t first, int64_t last, Visit&& visit) {
  const int64_t passes = (last - first + kRowsPerPass - 1) / kRowsPerPass;
  for (int64_t pass = 0; pass < passes; pass++) {
    const int64_t row = first + (last - first) * pass / passes;
    const int64_t rows = first + (last - first) * (pass + 1) / passes - row;
    switch (rows) {
      case 1: visit.template operator()<1>(row, pass, passes); break;
      case 2: visit.template operator()<2>(row, pass, passes); break;
      case 3: visit.template operator()<3>(row, pass, passes); break;
      case 4: visit.template operator()<4>(row, pass, passes); break;
      case 5: visit.template operator()<5>(row, pass, passes); break;
      case 6: visit.template operator()<6>(row, pass, passes); break;
#if defined(HEADRACE_AVX512)
      case 7: visit.template operator()<7>(row, pass, passes); break;
      case 8: visit.template operator()<8>(row, pass, passes); break;
      case 9: visit.template operator()<9>(row, pass, passes); break;
      case 10: visit.template operator()<10>(row, pass, passes); break;
      case 11: visit.template operator()<11>(row, pass, passes); break;
      case 12: visit.template operator()<12>(row, pass, passes); break;
#endif
    }
  }
}

}  // namespace headrace
