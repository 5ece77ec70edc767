// What a linear layer does with its sums, whatever instructions made them.
#pragma once

#include <algorithm>

#include "linear.h"
#include "panel.h"

namespace headrace {

// Adds bias, and what y holds where the job says so, and stores the columns that exist.
[[gnu::noinline]] inline void finish_panel(const LinearJob& job, int64_t row, int64_t panel, Vec low, Vec high) {
  const int64_t column = panel * kPanelWidth;
  const int64_t columns = std::min<int64_t>(kPanelWidth, job.linear->out_size - column);
  float* y = job.y + row * job.y_stride + column;
  if (columns == kPanelWidth) {
    if (job.linear->bias != nullptr) {
      low = add(low, load(job.linear->bias + column));
      high = add(high, load(job.linear->bias + column + kWidth));
    }
    if (job.adds_to_y) {
      low = add(load(y), low);
      high = add(load(y + kWidth), high);
    }
    store(y, low);
    store(y + kWidth, high);
    return;
  }
  float values[kPanelWidth];
  store(values, low);
  store(values + kWidth, high);
  for (int64_t c = 0; c < columns; c++) {
    if (job.linear->bias != nullptr) values[c] += job.linear->bias[column + c];
    y[c] = job.adds_to_y ? y[c] + values[c] : values[c];
  }
}

// The gate's and the up rows' panels in turn: silu(gate) * up.
inline void gate(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel) {
  for (int64_t row = first_row; row < last_row; row++)
    for (int64_t panel = first_panel; panel < last_panel; panel += 2) {
      const float* pair = job.y + row * job.y_stride + panel * kPanelWidth;
      float* gated = job.gated + row * job.gated_stride + panel / 2 * kPanelWidth;
      for (int c = 0; c < kPanelWidth; c += kWidth)
        store(gated + c, mul(silu(load(pair + c)), load(pair + kPanelWidth + c)));
    }
}

}  // namespace headrace
