// Linear layers with quantized weights, in integers. Each group of a row becomes 16-bit integers times a power of two,
// finer than bf16 beside all but its largest numbers; the products of a group are summed exactly, and so in any order.
// Only the groups' sums are added as floats, one after another, so that a row's bits are the same in every batch and
// in every instruction set.
#pragma once

#include "linear.h"

namespace headrace {

// `job` with its rows as integers: x becomes a record for each row, x_stride floats apart. They stay until the calling
// thread makes others.
template <class Format>
LinearJob with_integer_rows(Crew& crew, const LinearJob& job);

// Computes some rows and panels of a job with integer rows.
template <class Format>
void compute_quantized_chunk(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel,
                             int64_t last_panel);

}  // namespace headrace
