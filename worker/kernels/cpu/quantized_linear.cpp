#include "quantized_linear.h"

#include <algorithm>
#include <cstring>

#include "linear_finish.h"
#include "quantized_panel.h"

namespace headrace {
namespace {

constexpr int64_t kRowsPerChunk = 4;
constexpr float kLargest = 32767.0f;  // times 128 times a group: no sum of a group leaves 32 bits

// A row's record: its integers, then each group's scale, then each group's sum of what the integers stand for.
template <class Format>
struct Record {
  Record(float* at, int64_t groups)
      : integers(reinterpret_cast<uint8_t*>(at)), scales(at + groups * Format::kGroup / 2), sums(scales + groups) {}
  static int64_t floats(int64_t groups) { return groups * (Format::kGroup / 2 + 2); }

  uint8_t* integers;
  float* scales;
  float* sums;
};

// The power of two that brings numbers up to `largest` just below 2^15, and its inverse.
struct PowerOfTwo {
  explicit PowerOfTwo(float largest) {
    uint32_t bits;
    std::memcpy(&bits, &largest, sizeof(bits));
    const uint32_t exponent = std::max(bits >> 23, 15u);  // below, the scale would be no normal number
    const uint32_t up_bits = (268 - exponent) << 23, down_bits = (exponent - 14) << 23;
    std::memcpy(&up, &up_bits, sizeof(up));
    std::memcpy(&down, &down_bits, sizeof(down));
  }
  float up, down;
};

// Integers, scale and sum of the `size` numbers at `x`. A number that is not finite makes the scale NaN.
template <int size>
void convert_group(const float* x, uint8_t* integers, float& scale, float& sum) {
  Vec largest = zero(), probe = zero();
  for (int i = 0; i < size; i += kWidth) {
    const Vec numbers = load(x + i);
    largest = max(largest, max(numbers, sub(zero(), numbers)));
    probe = fma(numbers, zero(), probe);
  }
  const PowerOfTwo power(max_of(largest));
  Vec total = zero();
  for (int i = 0; i < size; i += 2 * kWidth) {
    Vec rounded[2];
    repeat<2>([&](auto half) {
      const Vec scaled = round_to_int(mul(load(x + i + half * kWidth), broadcast(power.up)));
      rounded[half] = max(broadcast(-kLargest), min(broadcast(kLargest), scaled));
      total = add(total, rounded[half]);
    });
    store_int16(integers + 2 * i, rounded[0], rounded[1]);
  }
  scale = power.down + sum_of(probe);
  sum = scale * sum_of(total);
}

template <class Format>
void convert_row(const float* x, int64_t in_size, const Record<Format>& to) {
  constexpr int kGroup = Format::kGroup;
  for (int64_t group = 0; group < groups_of<Format>(in_size); group++) {
    const int64_t k = group * kGroup;
    float last[kGroup] = {};
    const float* from = x + k;
    if (k + kGroup > in_size) {
      std::copy(from, x + in_size, last);
      from = last;
    }
    convert_group<kGroup>(from, to.integers + 2 * k, to.scales[group], to.sums[group]);
  }
}

// Rows from one on, beside some panels.
template <class Format>
struct Place {
  Record<Format> first;
  int64_t stride;  // floats between records
  const uint8_t* weights;
  size_t panel_bytes;
};

// The sums of the products of one group.
template <class Format, int R, int P>
[[gnu::always_inline]] inline void sum_group(const Place<Format>& place, int64_t group, const uint8_t* ahead,
                                             size_t step_ahead, IntPairs (&totals)[P][R][2]) {
  const size_t row_bytes = place.stride * sizeof(float);
  const uint8_t* integers = place.first.integers + group * Format::kGroup * 2;
  const uint8_t* at = place.weights + group * Format::kGroupBytes + Format::kHeaderBytes;
  repeat<P>([&](auto p) { repeat<R>([&](auto r) { totals[p][r][0] = totals[p][r][1] = no_pairs(); }); });
  for (int step = 0; step < Format::kGroup / Format::kStepK; step++) {
    repeat<P>([&](auto p) {
      __builtin_prefetch(ahead + p * place.panel_bytes, 0, 3);
      repeat<Format::kStepK / 2>([&](auto j) {
        IntPairs pairs[2];
        Format::template load<j>(at + p * place.panel_bytes, pairs);
        repeat<R>([&](auto r) { add_dots(integers + r * row_bytes + 4 * j, pairs, totals[p][r]); });
      });
    });
    at += Format::kStepBytes;
    integers += 2 * Format::kStepK;
    ahead += step_ahead;
  }
}

// sums[r] += the group's products with one panel, and what its offsets add.
template <class Format, int R>
[[gnu::always_inline]] inline void add_scaled(const Place<Format>& place, int64_t group, const uint8_t* header,
                                              const IntPairs (&totals)[R][2], Vec (&sums)[R][2]) {
  Vec scales[2], offsets[2];
  load_bf16_pairs(header, scales[0], scales[1]);
  if constexpr (Format::kHasOffsets) load_bf16_pairs(header + kPanelWidth * 2, offsets[0], offsets[1]);
  repeat<R>([&](auto r) {
    const int64_t at = r * place.stride + group;
    const Vec scale = broadcast_from(place.first.scales + at);
    repeat<2>([&](auto half) {
      sums[r][half] = fma(float_of(totals[r][half]), mul(scale, scales[half]), sums[r][half]);
      if constexpr (Format::kHasOffsets)
        sums[r][half] = fma(broadcast_from(place.first.sums + at), offsets[half], sums[r][half]);
    });
  });
}

template <class Format, int R, int P>
void compute_panels(const LinearJob& job, int64_t row, int64_t panel, Fetch fetch) {
  const int64_t groups = groups_of<Format>(job.linear->in_size);
  const size_t panel_bytes = groups * Format::kGroupBytes;
  const Place<Format> place{Record<Format>(const_cast<float*>(job.x) + row * job.x_stride, groups), job.x_stride,
                            job.linear->panels + panel * panel_bytes, panel_bytes};
  const size_t step_ahead = fetch.step / (Format::kGroup / Format::kStepK);
  Vec sums[P][R][2];
  repeat<P>([&](auto p) { repeat<R>([&](auto r) { sums[p][r][0] = sums[p][r][1] = zero(); }); });
  for (int64_t group = 0; group < groups; group++, fetch.offset += fetch.step) {
    // Local, so that they live in registers while the sums over all groups wait in memory.
    IntPairs totals[P][R][2];
    sum_group<Format, R, P>(place, group, place.weights + fetch.offset, step_ahead, totals);
    repeat<P>([&](auto p) {
      const uint8_t* header = place.weights + p * panel_bytes + group * Format::kGroupBytes;
      add_scaled<Format, R>(place, group, header, totals[p], sums[p]);
    });
  }
  repeat<P>([&](auto p) {
    repeat<R>([&](auto r) { finish_panel(job, row + r, panel + p, sums[p][r][0], sums[p][r][1]); });
  });
}

template <class Format>
struct QuantizedPass {
  const LinearJob& job;
  int64_t first_panel, last_panel;

  // Several panels side by side where rows are few: one alone is not fetched from memory as fast.
  template <int R>
  void operator()(int64_t row, int64_t pass, int64_t passes) const {
    constexpr int P = panels_for(R);
    const int64_t groups = groups_of<Format>(job.linear->in_size);
    const int64_t chunk_bytes = (last_panel - first_panel) * groups * Format::kGroupBytes;
    const Fetch fetch = fetch_for(Format::kGroupBytes, groups, chunk_bytes, pass, passes);
    int64_t panel = first_panel;
    for (; panel + P <= last_panel; panel += P) compute_panels<Format, R, P>(job, row, panel, fetch);
    if constexpr (P > 1)
      for (; panel < last_panel; panel++) compute_panels<Format, R, 1>(job, row, panel, fetch);
  }
};

}  // namespace

template <class Format>
LinearJob with_integer_rows(Crew& crew, const LinearJob& job) {
  static thread_local Scratch memory;
  const int64_t groups = groups_of<Format>(job.linear->in_size), stride = Record<Format>::floats(groups);
  memory.reset();
  float* records = memory.floats(job.rows * stride);
  crew.run((job.rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk) {
    const int64_t last = std::min(job.rows, (chunk + 1) * kRowsPerChunk);
    for (int64_t row = chunk * kRowsPerChunk; row < last; row++)
      convert_row(job.x + row * job.x_stride, job.linear->in_size, Record<Format>(records + row * stride, groups));
  });
  LinearJob converted = job;
  converted.x = records;
  converted.x_stride = stride;
  return converted;
}

template <class Format>
void compute_quantized_chunk(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel,
                             int64_t last_panel) {
  for_row_passes(first_row, last_row, QuantizedPass<Format>{job, first_panel, last_panel});
  if (job.gated != nullptr) gate(job, first_row, last_row, first_panel, last_panel);
}

template LinearJob with_integer_rows<Int8>(Crew&, const LinearJob&);
template LinearJob with_integer_rows<Int4>(Crew&, const LinearJob&);
template void compute_quantized_chunk<Int8>(const LinearJob&, int64_t, int64_t, int64_t, int64_t);
template void compute_quantized_chunk<Int4>(const LinearJob&, int64_t, int64_t, int64_t, int64_t);

}  // namespace headrace
