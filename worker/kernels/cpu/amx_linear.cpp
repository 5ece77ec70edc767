// The chunks of dot_linear.h in AMX tiles. A tile instruction sums 32 k: the even and the odd ones apart, then both
// into the sum. All row counts use the same tiles; rows beyond the last are computed and dropped.
#if defined(HEADRACE_AMX)

#include <algorithm>

#include "amx_tiles.h"
#include "dot_linear.h"
#include "dot_panel.h"
#include "linear_finish.h"

namespace headrace {
namespace {

constexpr int64_t kPairBytes = kPanelWidth * 4;             // of a panel, from one pair of k to the next
constexpr int64_t kStepBytes = kTileRows * kPairBytes;      // of a panel, from one tile to the next
constexpr int64_t kRightBytes = kTileColumns * 4;           // of a panel or of sums, from its left tile to its right
constexpr int64_t kAheadBytes = 2 * kStepBytes;
constexpr int64_t kSumsStride = kPanelWidth * sizeof(float);

using TileSums = float[kTileRows][kPanelWidth];

struct Operands {
  Operands(const LinearJob& job, int64_t row, int64_t panel, bool fetches)
      : x(job.x + row * job.x_stride),
        x_stride_bytes(job.x_stride * 4),
        panel(job.linear->panels + panel * bf16_panel_bytes(job.linear->in_size)),
        steps(stored_k(job.linear->in_size) / kTileK),
        fetches(fetches) {}

  const float* x_at(int64_t step) const { return x + step * kTileK / 2; }
  const uint8_t* weights_at(int64_t step) const {
    const uint8_t* at = panel + step * kStepBytes;
    for (int64_t line = 0; fetches && line < kStepBytes; line += 64) __builtin_prefetch(at + kAheadBytes + line, 0, 3);
    return at;
  }

  const float* x;
  int64_t x_stride_bytes;
  const uint8_t* panel;
  int64_t steps;
  bool fetches;  // the panel comes from memory, not from the cache
};

// The tile numbers are literal: they are part of the instructions' names.
void multiply_16_rows(const Operands& of, TileSums& sums) {
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t step = 0; step < of.steps; step++) {
    const uint8_t* weights = of.weights_at(step);
    _tile_loadd(4, of.x_at(step), of.x_stride_bytes);
    _tile_loadd(6, weights, kPairBytes);
    _tile_loadd(7, weights + kRightBytes, kPairBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  uint8_t* to = reinterpret_cast<uint8_t*>(sums);
  _tile_stored(0, to, kSumsStride);
  _tile_stored(1, to + kRightBytes, kSumsStride);
}

// Twice the rows for the same loads of weights.
void multiply_32_rows(const Operands& of, TileSums& upper, TileSums& lower) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < of.steps; step++) {
    const uint8_t* weights = of.weights_at(step);
    const float* x = of.x_at(step);
    _tile_loadd(4, x, of.x_stride_bytes);
    _tile_loadd(6, weights, kPairBytes);
    _tile_loadd(7, weights + kRightBytes, kPairBytes);
    _tile_loadd(5, x + kTileRows * of.x_stride_bytes / 4, of.x_stride_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  uint8_t *to = reinterpret_cast<uint8_t*>(upper), *below = reinterpret_cast<uint8_t*>(lower);
  _tile_stored(0, to, kSumsStride);
  _tile_stored(1, to + kRightBytes, kSumsStride);
  _tile_stored(2, below, kSumsStride);
  _tile_stored(3, below + kRightBytes, kSumsStride);
}

void finish_rows(const LinearJob& job, int64_t row, int64_t last_row, int64_t panel, const TileSums& sums) {
  for (int64_t r = 0; r < std::min(kTileRows, last_row - row); r++)
    finish_panel(job, row + r, panel, load(sums[r]), load(sums[r] + kWidth));
}

void compute_panel(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t panel) {
  alignas(64) TileSums upper, lower;
  for (int64_t row = first_row; row < last_row; row += 2 * kTileRows) {
    const Operands operands(job, row, panel, row == first_row);
    const bool has_lower = last_row - row > kTileRows;
    if (has_lower)
      multiply_32_rows(operands, upper, lower);
    else
      multiply_16_rows(operands, upper);
    finish_rows(job, row, last_row, panel, upper);
    if (has_lower) finish_rows(job, row + kTileRows, last_row, panel, lower);
  }
}

}  // namespace

void compute_dot_chunk(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel,
                       int64_t last_panel) {
  const TilesInUse tiles;
  for (int64_t panel = first_panel; panel < last_panel; panel++) compute_panel(job, first_row, last_row, panel);
  if (job.gated != nullptr) gate(job, first_row, last_row, first_panel, last_panel);
}

}  // namespace headrace

#endif
