// Panels of quantized weights: groups of k, each with its own scales, since one scale for a whole row of weights would
// have to span the few huge ones that many models have. The last group is filled up with zeros. Four bits need smaller
// groups than eight: what a group spans is cut into 15 steps only.
//
// Two neighbouring k of a column stand side by side, as the instructions want them that multiply pairs of 16-bit
// integers. `load<j>` gives the j-th pair of k of the kStepK that share their bytes, widened to 16 bits.
#pragma once

#include "panel.h"

namespace headrace {

// bf16 scales, then bytes. A weight is byte * scale.
struct Int8 {
  static constexpr int kGroup = 64;
  static constexpr bool kHasOffsets = false;
  static constexpr int kStepK = 2;
  static constexpr size_t kHeaderBytes = kPanelWidth * 2;
  static constexpr size_t kStepBytes = kStepK * kPanelWidth;
  static constexpr size_t kGroupBytes = kHeaderBytes + kGroup / kStepK * kStepBytes;
  static size_t place(int column, int k) { return kHeaderBytes + k / 2 * kStepBytes + 2 * column + k % 2; }
  template <int j>
  static void load(const uint8_t* at, IntPairs (&weights)[2]) {
    weights[0] = widen_int8(at);
    weights[1] = widen_int8(at + kStepBytes / 2);
  }
};

// bf16 scales, bf16 offsets, then words of four nibbles: of k, k + 2, k + 4 and k + 6, the first in the lowest bits.
// A weight is nibble * scale + offset.
struct Int4 {
  static constexpr int kGroup = 32;
  static constexpr bool kHasOffsets = true;
  static constexpr int kStepK = 8;
  static constexpr size_t kHeaderBytes = 2 * kPanelWidth * 2;
  static constexpr size_t kStepBytes = kStepK / 2 * kPanelWidth;
  static constexpr size_t kGroupBytes = kHeaderBytes + kGroup / kStepK * kStepBytes;
  static size_t place(int column, int k) { return kHeaderBytes + k / 8 * kStepBytes + 4 * column + k % 2 * 2; }
  static int shift(int k) { return k % 8 / 2 * 4; }  // of the nibble in the word at its place
  template <int j>
  static void load(const uint8_t* at, IntPairs (&weights)[2]) {
    weights[0] = nibbles<4 * j>(at);
    weights[1] = nibbles<4 * j>(at + kStepBytes / 2);
  }
};

template <class Format>
int64_t groups_of(int64_t in_size) {
  return (in_size + Format::kGroup - 1) / Format::kGroup;
}

template <class Format>
int64_t quantized_panel_bytes(int64_t in_size) {
  return groups_of<Format>(in_size) * Format::kGroupBytes;
}

}  // namespace headrace
