// Linear layers over packed panels.
#pragma once

#include "crew.h"
#include "headrace.h"

namespace headrace {

// One use of a linear layer. Strides count floats between rows.
struct LinearJob {
  const hr_linear* linear;
  const float* x;
  int64_t x_stride;
  int64_t rows;
  float* y;
  int64_t y_stride;
  bool adds_to_y = false;
  float* gated = nullptr;  // panels in turn gate and up: also stores silu(gate) * up here
  int64_t gated_stride = 0;
};

int64_t panels_of(int64_t out_size);
int64_t padded(int64_t columns);  // to whole panels
int64_t panel_bytes(int64_t format, int64_t in_size);

void run_linear(Crew& crew, const LinearJob& job);

// Row `index` of the layer's weight matrix, as floats.
void unpack_row(const hr_linear& linear, int64_t index, float* row);

}  // namespace headrace
