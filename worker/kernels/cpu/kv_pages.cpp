#include "kv_pages.h"

#include <string.h>

#include "linear.h"

namespace headrace {
namespace {

template <class Element>
void write_key(const KvGeometry& geometry, uint8_t* cell, int64_t lane, const float* key) {
  Element* to = reinterpret_cast<Element*>(cell);
  for (int64_t d = 0; d < geometry.key_size; d++) {
    if constexpr (sizeof(Element) == 4)
      to[d * kPanelWidth + lane] = key[d];
    else
      to[d * kPanelWidth + pair_place(static_cast<int>(lane))] = bf16_of(key[d]);
  }
}

template <class Element>
void write_value(const KvGeometry& geometry, uint8_t* cell, int64_t lane, const float* value) {
  Element* to = reinterpret_cast<Element*>(cell + lane * geometry.value_row_bytes());
  for (int64_t d = 0; d < geometry.value_size; d++) {
    if constexpr (sizeof(Element) == 4)
      to[d] = value[d];
    else
      to[d / kPanelWidth * kPanelWidth + pair_place(static_cast<int>(d % kPanelWidth))] = bf16_of(value[d]);
  }
}

template <class Element>
void copy_key(const KvGeometry& geometry, const uint8_t* from, int64_t from_lane, uint8_t* to, int64_t to_lane) {
  constexpr bool is_paired = sizeof(Element) == 2;
  const int64_t source = is_paired ? pair_place(static_cast<int>(from_lane)) : from_lane;
  const int64_t target = is_paired ? pair_place(static_cast<int>(to_lane)) : to_lane;
  for (int64_t d = 0; d < geometry.key_size; d++)
    reinterpret_cast<Element*>(to)[d * kPanelWidth + target] =
        reinterpret_cast<const Element*>(from)[d * kPanelWidth + source];
}

}  // namespace

KvGeometry::KvGeometry(const hr_kv_layout& layout)
    : page_size(layout.page_size),
      kv_heads(layout.kv_heads),
      key_size(layout.key_size),
      value_size(layout.value_size),
      padded_value_size(padded(layout.value_size)),
      cells_per_page((layout.page_size + kPanelWidth - 1) / kPanelWidth),
      element_bytes(layout.format == HR_F32 ? 4 : 2),
      key_cell_bytes(layout.key_size * kPanelWidth * element_bytes),
      value_cell_bytes(padded_value_size * kPanelWidth * element_bytes),
      is_f32(layout.format == HR_F32) {}

void write_slot(const KvGeometry& geometry, hr_pages pages, int64_t slot, int64_t head, const float* key,
                const float* value) {
  const int64_t place = slot % geometry.page_size;
  const size_t cell = geometry.cell_index(slot / geometry.page_size, head, place / kPanelWidth);
  uint8_t* keys = pages.keys + cell * geometry.key_cell_bytes;
  uint8_t* values = pages.values + cell * geometry.value_cell_bytes;
  if (geometry.is_f32) {
    write_key<float>(geometry, keys, place % kPanelWidth, key);
    write_value<float>(geometry, values, place % kPanelWidth, value);
  } else {
    write_key<uint16_t>(geometry, keys, place % kPanelWidth, key);
    write_value<uint16_t>(geometry, values, place % kPanelWidth, value);
  }
}

void copy_slot(const KvGeometry& geometry, const uint8_t* from_keys, const uint8_t* from_values, int64_t from_lane,
               uint8_t* to_keys, uint8_t* to_values, int64_t to_lane) {
  if (geometry.is_f32)
    copy_key<float>(geometry, from_keys, from_lane, to_keys, to_lane);
  else
    copy_key<uint16_t>(geometry, from_keys, from_lane, to_keys, to_lane);
  const size_t row_bytes = geometry.value_row_bytes();
  memcpy(to_values + to_lane * row_bytes, from_values + from_lane * row_bytes, row_bytes);
}

}  // namespace headrace

int64_t hr_page_bytes_of_keys(const hr_kv_layout* layout) {
  const headrace::KvGeometry geometry(*layout);
  return geometry.kv_heads * geometry.cells_per_page * geometry.key_cell_bytes;
}

int64_t hr_page_bytes_of_values(const hr_kv_layout* layout) {
  const headrace::KvGeometry geometry(*layout);
  return geometry.kv_heads * geometry.cells_per_page * geometry.value_cell_bytes;
}

void hr_write_kv(hr_crew* crew, const hr_kv_layout* layout, const hr_batch* batch, const float* keys,
                 const float* values, hr_pages pages) {
  const headrace::KvGeometry geometry(*layout);
  constexpr int64_t kTokensPerChunk = 16;
  crew->crew.run((batch->num_tokens + kTokensPerChunk - 1) / kTokensPerChunk, [&](int64_t chunk) {
    const int64_t last = std::min(batch->num_tokens, (chunk + 1) * kTokensPerChunk);
    for (int64_t token = chunk * kTokensPerChunk; token < last; token++)
      for (int64_t head = 0; head < geometry.kv_heads; head++) {
        const int64_t row = token * geometry.kv_heads + head;
        write_slot(geometry, pages, batch->slots[token], head, keys + row * geometry.key_size,
                   values + row * geometry.value_size);
      }
  });
}
