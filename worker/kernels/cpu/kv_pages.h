// KV pages. A page holds, for each kv head, cells of kPanelWidth slots; a cell's keys are a weight panel [key_size]
// [slots], its values are rows [slots][value_size] in panels' pair order. So the loop that multiplies with weights
// also multiplies queries with keys and weights with values.
//
// A page whose size is no multiple of the cell's ends in a cell that is only partly used.
#pragma once

#include "crew.h"
#include "headrace.h"
#include "panel.h"

namespace headrace {

struct KvGeometry {
  explicit KvGeometry(const hr_kv_layout& layout);

  int64_t page_size, kv_heads, key_size, value_size;
  int64_t padded_value_size;  // to whole panels
  int64_t cells_per_page;
  size_t element_bytes, key_cell_bytes, value_cell_bytes;
  bool is_f32;

  size_t cell_index(int64_t page, int64_t head, int64_t cell) const {
    return (page * kv_heads + head) * cells_per_page + cell;
  }
  size_t value_row_bytes() const { return padded_value_size * element_bytes; }
};

// Stores one token's key and value of one head.
void write_slot(const KvGeometry& geometry, hr_pages pages, int64_t slot, int64_t head, const float* key,
                const float* value);

// Copies one slot from a cell to a lane of another.
void copy_slot(const KvGeometry& geometry, const uint8_t* from_keys, const uint8_t* from_values, int64_t from_lane,
               uint8_t* to_keys, uint8_t* to_values, int64_t to_lane);

}  // namespace headrace
