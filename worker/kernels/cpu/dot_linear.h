// Linear layers with bf16 weights in the instructions for bf16 pairs. The rows are rounded to bf16 once; then one
// instruction multiplies them in one order over k, however many rows there are, so that a row's bits are the same in
// every batch. AVX512-BF16 and AMX sum in different orders: each set of bits belongs to its instruction set.
#pragma once

#include "linear.h"

namespace headrace {

// `job` with its rows rounded: x becomes pairs, each in the place of a float, x_stride apart, and as many more rows
// as a tile may reach beyond the last. They stay until the calling thread rounds others.
LinearJob with_rounded_rows(Crew& crew, const LinearJob& job);

// Computes some rows and panels of a job with rounded rows.
void compute_dot_chunk(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel,
                       int64_t last_panel);

}  // namespace headrace
