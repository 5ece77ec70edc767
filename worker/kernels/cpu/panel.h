// Weight panels: kPanelWidth output columns, stored k by k, in one of four formats; and the one loop that multiplies
// rows with them.
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
  static constexpr bool kIsGrouped = false;
  static constexpr size_t kBytesPerK = kPanelWidth * 4;
  static size_t panel_bytes(int64_t in_size) { return in_size * kBytesPerK; }
  static void load(const uint8_t* at, Vec& low, Vec& high) {
    low = headrace::load(reinterpret_cast<const float*>(at));
    high = headrace::load(reinterpret_cast<const float*>(at) + kWidth);
  }
};

// Column c < kWidth is the low half of word c, column kWidth + c the high half: widening is a shift and a mask.
struct Bf16 {
  static constexpr bool kIsGrouped = false;
  static constexpr size_t kBytesPerK = kPanelWidth * 2;
  static size_t panel_bytes(int64_t in_size) { return in_size * kBytesPerK; }
  static void load(const uint8_t* at, Vec& low, Vec& high) { load_bf16_pairs(at, low, high); }
};

// Quantized weights come in groups of kGroup k, each with its own scales: one scale for a whole row of weights would
// have to span the few huge ones that many models have. A group's products are summed before they are scaled.
// `load<j>` gives the unscaled numbers of the j-th of the kStoredK k that share their bytes.
constexpr int kGroup = 32;

// bf16 scales, then bytes. A weight is byte * scale.
struct Int8 {
  static constexpr bool kIsGrouped = true, kHasOffsets = false;
  static constexpr int kStoredK = 1;
  static constexpr size_t kHeaderBytes = kPanelWidth * 2;
  static constexpr size_t kGroupBytes = kHeaderBytes + kGroup * kPanelWidth;
  static constexpr size_t kBytesPerK = kGroupBytes / kGroup;
  static size_t panel_bytes(int64_t in_size) { return in_size / kGroup * kGroupBytes; }
  template <int j>
  static void load(const uint8_t* at, Vec (&numbers)[2]) {
    numbers[0] = from_int8(at);
    numbers[1] = from_int8(at + kWidth);
  }
};

// bf16 scales, bf16 offsets, then pairs of k as low and high nibbles. A weight is nibble * scale + offset.
struct Int4 {
  static constexpr bool kIsGrouped = true, kHasOffsets = true;
  static constexpr int kStoredK = 2;
  static constexpr size_t kHeaderBytes = 2 * kPanelWidth * 2;
  static constexpr size_t kGroupBytes = kHeaderBytes + kGroup / 2 * kPanelWidth;
  static constexpr size_t kBytesPerK = kGroupBytes / kGroup;
  static size_t panel_bytes(int64_t in_size) { return in_size / kGroup * kGroupBytes; }
  template <int j>
  static void load(const uint8_t* at, Vec (&numbers)[2]) {
    load_nibbles<4 * j>(at, numbers);
  }
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
// k. Addresses beyond the end do no harm.
struct Fetch {
  size_t offset, step;
};
constexpr size_t kFetchAhead = 1024;

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

template <class Format, int R, int P>
[[gnu::always_inline]] inline void multiply_fetching(const float* x, size_t x_stride,
                                                     const uint8_t* const (&panels)[P], int64_t count, Fetch fetch,
                                                     Sums<R, P>& sums) {
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

// The rows of x that meet a panel. Formats with offsets also need the sums of each group of x.
struct Rows {
  const float* x;
  size_t x_stride;
  const float* group_sums;  // [rows, in_size / kGroup] or null
  size_t group_sums_stride;
};

// sums[r][p] += the products of one group of quantized numbers.
template <class Format, int R, int P>
[[gnu::always_inline]] inline void add_group(const Rows& rows, int64_t group, const uint8_t* const (&panels)[P],
                                             Fetch fetch, Sums<R, P>& sums) {
  // Local, so that they live in registers while the sums over all groups wait in memory.
  Sums<R, P> products;
  clear<R, P>(products);
  const float* x = rows.x + group * kGroup;
  const size_t header = group * Format::kGroupBytes;
  size_t offset = header + Format::kHeaderBytes;
  for (int k = 0; k < kGroup; k += Format::kStoredK, offset += kPanelWidth) {
    repeat<P>([&](auto p) { __builtin_prefetch(panels[p] + fetch.offset, 0, 3); });
    fetch.offset += fetch.step * Format::kStoredK;
    repeat<Format::kStoredK>([&](auto j) {
      Vec numbers[P][2];
      repeat<P>([&](auto p) { Format::template load<j>(panels[p] + offset, numbers[p]); });
      add_products<R, P>(x + k + j, rows.x_stride, numbers, products);
    });
  }
  repeat<P>([&](auto p) {
    Vec scales[2];
    load_bf16_pairs(panels[p] + header, scales[0], scales[1]);
    repeat<R>([&](auto r) {
      sums[r][p][0] = fma(products[r][p][0], scales[0], sums[r][p][0]);
      sums[r][p][1] = fma(products[r][p][1], scales[1], sums[r][p][1]);
    });
  });
}

// sums[r][p] += what one group's offsets add.
template <int R, int P>
[[gnu::always_inline]] inline void add_offsets(const Rows& rows, int64_t group, const uint8_t* const (&panels)[P],
                                               size_t at, Sums<R, P>& sums) {
  repeat<P>([&](auto p) {
    Vec offsets[2];
    load_bf16_pairs(panels[p] + at, offsets[0], offsets[1]);
    repeat<R>([&](auto r) {
      const Vec sum_of_x = broadcast_from(rows.group_sums + r * rows.group_sums_stride + group);
      sums[r][p][0] = fma(sum_of_x, offsets[0], sums[r][p][0]);
      sums[r][p][1] = fma(sum_of_x, offsets[1], sums[r][p][1]);
    });
  });
}

template <class Format, int R, int P>
[[gnu::always_inline]] inline void multiply_grouped(const Rows& rows, const uint8_t* const (&panels)[P],
                                                    int64_t in_size, Fetch fetch, Sums<R, P>& sums) {
  for (int64_t group = 0; group < in_size / kGroup; group++, fetch.offset += fetch.step * kGroup) {
    add_group<Format, R, P>(rows, group, panels, fetch, sums);
    if constexpr (Format::kHasOffsets)
      add_offsets<R, P>(rows, group, panels, group * Format::kGroupBytes + kPanelWidth * 2, sums);
  }
}

// sums[r][p] = row r times panel p of a packed linear layer.
template <class Format, int R, int P>
[[gnu::always_inline]] inline void multiply_panels(const Rows& rows, const uint8_t* const (&panels)[P],
                                                   int64_t in_size, Fetch fetch, Sums<R, P>& sums) {
  clear<R, P>(sums);
  if constexpr (Format::kIsGrouped)
    multiply_grouped<Format, R, P>(rows, panels, in_size, fetch, sums);
  else
    multiply_fetching<Format, R, P>(rows.x, rows.x_stride, panels, in_size, fetch, sums);
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
