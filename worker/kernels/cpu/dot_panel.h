// Where bf16 weights stand in their panel. Instruction sets that multiply pairs of bf16 want the pairs along k, column
// by column: [k / 2][columns][2], with zeros up to whole tiles. AVX512-BF16 and AMX read the same panels. The others
// widen the columns of one k after another, see pair_place.
#pragma once

#include "panel.h"

namespace headrace {

#if defined(HEADRACE_DOT)
constexpr bool kHasDot = true;
#else
constexpr bool kHasDot = false;
#endif

constexpr int64_t kTileK = 32;  // the k that one tile instruction sums

// How many k a panel of bf16 weights, and a row to multiply with it, holds.
inline int64_t stored_k(int64_t in_size) { return kHasDot ? (in_size + kTileK - 1) / kTileK * kTileK : in_size; }

inline int64_t bf16_place(int column, int64_t k) {
  return kHasDot ? (k / 2 * kPanelWidth + column) * 2 + k % 2 : k * kPanelWidth + pair_place(column);
}

inline int64_t bf16_panel_bytes(int64_t in_size) { return stored_k(in_size) * kPanelWidth * 2; }

}  // namespace headrace
