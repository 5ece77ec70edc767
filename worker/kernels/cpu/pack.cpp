// From row-major weights to panels, and back for single rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "dot_panel.h"
#include "linear.h"
#include "quantized_panel.h"

namespace headrace {
namespace {

struct Source {
  const void* data;
  int64_t format, in_size, out_size;

  // Zero beyond the last row: panels are whole.
  float at(int64_t row, int64_t k) const {
    if (row >= out_size) return 0.0f;
    const int64_t index = row * in_size + k;
    if (format == HR_F32) return static_cast<const float*>(data)[index];
    return float_of_bf16(static_cast<const uint16_t*>(data)[index]);
  }
};

void pack_f32(const Source& source, int64_t first_row, uint8_t* panel) {
  float* to = reinterpret_cast<float*>(panel);
  for (int64_t k = 0; k < source.in_size; k++)
    for (int c = 0; c < kPanelWidth; c++) *to++ = source.at(first_row + c, k);
}

void pack_bf16(const Source& source, int64_t first_row, uint8_t* panel) {
  uint16_t* to = reinterpret_cast<uint16_t*>(panel);
  for (int64_t k = 0; k < stored_k(source.in_size); k++)
    for (int c = 0; c < kPanelWidth; c++)
      to[bf16_place(c, k)] = k < source.in_size ? bf16_of(source.at(first_row + c, k)) : uint16_t{0};
}

// The k of a group that exist, from first_k on.
template <class Format>
int group_size(const Source& source, int64_t first_k) {
  return static_cast<int>(std::min<int64_t>(Format::kGroup, source.in_size - first_k));
}

void pack_int8_group(const Source& source, int64_t row, int c, int64_t first_k, uint8_t* group) {
  const int size = group_size<Int8>(source, first_k);
  float largest = 0.0f;
  for (int k = 0; k < size; k++) largest = std::max(largest, std::fabs(source.at(row, first_k + k)));
  uint16_t& stored = reinterpret_cast<uint16_t*>(group)[pair_place(c)];
  stored = bf16_of(largest / 127.0f);
  // Rounded against the scale as stored, not as computed; the same below.
  const float scale = float_of_bf16(stored);
  for (int k = 0; k < Int8::kGroup; k++) {
    const float scaled = scale > 0.0f && k < size ? std::nearbyint(source.at(row, first_k + k) / scale) : 0.0f;
    group[Int8::place(c, k)] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(scaled, -127.0f, 127.0f)));
  }
}

uint16_t word_at(const uint8_t* at) {
  uint16_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

void pack_int4_group(const Source& source, int64_t row, int c, int64_t first_k, uint8_t* group) {
  const int size = group_size<Int4>(source, first_k);
  float low = source.at(row, first_k), high = low;
  for (int k = 1; k < size; k++) {
    low = std::min(low, source.at(row, first_k + k));
    high = std::max(high, source.at(row, first_k + k));
  }
  uint16_t* header = reinterpret_cast<uint16_t*>(group);
  header[pair_place(c)] = bf16_of((high - low) / 15.0f);
  header[kPanelWidth + pair_place(c)] = bf16_of(low);
  const float scale = float_of_bf16(header[pair_place(c)]);
  const float offset = float_of_bf16(header[kPanelWidth + pair_place(c)]);
  for (int k = 0; k < Int4::kGroup; k++) {
    const bool is_stored = scale > 0.0f && k < size;
    const float scaled = is_stored ? std::nearbyint((source.at(row, first_k + k) - offset) / scale) : 0.0f;
    const int nibble = static_cast<int>(std::clamp(scaled, 0.0f, 15.0f));
    uint8_t* at = group + Int4::place(c, k);
    const int before = Int4::shift(k) == 0 ? 0 : word_at(at);
    const uint16_t word = static_cast<uint16_t>(before | nibble << Int4::shift(k));
    std::memcpy(at, &word, sizeof(word));
  }
}

template <class Format>
void pack_groups(const Source& source, int64_t first_row, uint8_t* panel) {
  constexpr auto pack_group = std::is_same_v<Format, Int8> ? pack_int8_group : pack_int4_group;
  for (int64_t group = 0; group < groups_of<Format>(source.in_size); group++)
    for (int c = 0; c < kPanelWidth; c++)
      pack_group(source, first_row + c, c, group * Format::kGroup, panel + group * Format::kGroupBytes);
}

using PackFunction = void (*)(const Source&, int64_t, uint8_t*);

PackFunction pack_function(int64_t format) {
  switch (format) {
    case HR_F32: return pack_f32;
    case HR_BF16: return pack_bf16;
    case HR_INT8: return pack_groups<Int8>;
    default: return pack_groups<Int4>;
  }
}

float int8_at(const uint8_t* panel, int c, int64_t k) {
  const uint8_t* group = panel + k / Int8::kGroup * Int8::kGroupBytes;
  const float scale = float_of_bf16(reinterpret_cast<const uint16_t*>(group)[pair_place(c)]);
  return static_cast<int8_t>(group[Int8::place(c, static_cast<int>(k % Int8::kGroup))]) * scale;
}

float int4_at(const uint8_t* panel, int c, int64_t k) {
  const uint8_t* group = panel + k / Int4::kGroup * Int4::kGroupBytes;
  const uint16_t* header = reinterpret_cast<const uint16_t*>(group);
  const int place = static_cast<int>(k % Int4::kGroup);
  const float nibble = static_cast<float>(word_at(group + Int4::place(c, place)) >> Int4::shift(place) & 15);
  return std::fma(nibble, float_of_bf16(header[pair_place(c)]), float_of_bf16(header[kPanelWidth + pair_place(c)]));
}

float weight_at(int64_t format, const uint8_t* panel, int c, int64_t k) {
  switch (format) {
    case HR_F32: return reinterpret_cast<const float*>(panel)[k * kPanelWidth + c];
    case HR_BF16: return float_of_bf16(reinterpret_cast<const uint16_t*>(panel)[bf16_place(c, k)]);
    case HR_INT8: return int8_at(panel, c, k);
    default: return int4_at(panel, c, k);
  }
}

}  // namespace

void unpack_row(const hr_linear& linear, int64_t index, float* row) {
  const uint8_t* panel = linear.panels + index / kPanelWidth * panel_bytes(linear.format, linear.in_size);
  const int c = static_cast<int>(index % kPanelWidth);
  for (int64_t k = 0; k < linear.in_size; k++) row[k] = weight_at(linear.format, panel, c, k);
}

}  // namespace headrace

void hr_pack_linear(hr_crew* crew, int64_t format, const void* source, int64_t source_format, int64_t in_size,
                    int64_t out_size, uint8_t* panels) {
  using namespace headrace;
  const Source from{source, source_format, in_size, out_size};
  const PackFunction pack = pack_function(format);
  crew->crew.run(panels_of(out_size), [&](int64_t panel) {
    pack(from, panel * kPanelWidth, panels + panel * panel_bytes(format, in_size));
  });
}
