// One tile of attention: the rows of a query tile meet the kTileKeys places that start at one base.
#pragma once

#include <algorithm>

#include "attention.h"
#include "softmax.h"

namespace headrace {

constexpr int64_t kCellsPerTile = kTileKeys / kPanelWidth;

// Where the keys and values of a tile lie: of the places [first, last) that any row sees.
struct TileCells {
  int64_t base = 0, first = 0, last = 0;
  const uint8_t* keys[kCellsPerTile];
  const uint8_t* values[kCellsPerTile];
  alignas(64) uint8_t gathered_keys[kTileKeys * kMaxHeadSize * 4];
  alignas(64) uint8_t gathered_values[kTileKeys * kMaxHeadSize * 4];

  int64_t first_cell() const { return (first - base) / kPanelWidth; }
  int64_t last_cell() const { return (last - base + kPanelWidth - 1) / kPanelWidth; }
};

// What one task works with: its rows, the tile at hand and the one after it.
struct Workspace {
  alignas(64) float queries[kMaxRows * kMaxHeadSize];
  alignas(64) float scores[kMaxRows * kTileKeys];
  TileCells cells[2];
  int64_t lows[kMaxRows], highs[kMaxRows];  // the places each row sees: from low, to high exclusive
  int64_t lowest, highest;                  // of all rows
};

// Copies the places [first, last) of a sequence, which share a cell there but not in the pages, into a cell.
inline void gather_cell(const AttentionJob& job, const QueryTile& tile, int64_t first, int64_t last, uint8_t* keys,
                        uint8_t* values) {
  const KvGeometry& geometry = job.geometry;
  const int64_t* table = job.batch.page_table + tile.sequence * job.batch.pages_per_sequence;
  for (int64_t place = first; place < last; place++) {
    const int64_t in_page = place % geometry.page_size;
    const size_t cell =
        geometry.cell_index(table[place / geometry.page_size], tile.kv_head, in_page / kPanelWidth);
    copy_slot(geometry, job.pages.keys + cell * geometry.key_cell_bytes,
              job.pages.values + cell * geometry.value_cell_bytes, in_page % kPanelWidth, keys, values,
              place % kPanelWidth);
  }
}

// Finds the cells of the tile that starts at `base`.
inline void find_cells(const AttentionJob& job, const QueryTile& tile, int64_t base, const Workspace& workspace,
                       TileCells& cells) {
  cells.base = base;
  cells.first = std::max(base, workspace.lowest);
  cells.last = std::min(base + kTileKeys, workspace.highest);
  const KvGeometry& geometry = job.geometry;
  const int64_t* table = job.batch.page_table + tile.sequence * job.batch.pages_per_sequence;
  const bool is_aligned = geometry.page_size % kPanelWidth == 0;
  for (int64_t cell = cells.first_cell(); base + cell * kPanelWidth < cells.last; cell++) {
    const int64_t start = base + cell * kPanelWidth;
    if (is_aligned) {
      const size_t found = geometry.cell_index(table[start / geometry.page_size], tile.kv_head,
                                               start % geometry.page_size / kPanelWidth);
      cells.keys[cell] = job.pages.keys + found * geometry.key_cell_bytes;
      cells.values[cell] = job.pages.values + found * geometry.value_cell_bytes;
    } else {
      uint8_t* keys = cells.gathered_keys + cell * geometry.key_cell_bytes;
      uint8_t* values = cells.gathered_values + cell * geometry.value_cell_bytes;
      gather_cell(job, tile, std::max(start, cells.first), std::min(start + kPanelWidth, cells.last), keys, values);
      cells.keys[cell] = keys;
      cells.values[cell] = values;
    }
  }
}

// scores = queries times keys. Meanwhile the values come into the cache.
template <class Format>
struct ScorePass {
  const KvGeometry& geometry;
  Workspace& workspace;
  const TileCells& cells;

  template <int R, int P>
  void score(int64_t row, int64_t cell, bool fetches) const {
    const uint8_t* panels[P];
    for (int p = 0; p < P; p++) panels[p] = cells.keys[cell + p];
    const size_t step = fetches ? P * geometry.value_cell_bytes / geometry.key_size : 0;
    Sums<R, P> sums;
    clear<R, P>(sums);
    multiply<Format, R, P>(workspace.queries + row * geometry.key_size, geometry.key_size, panels,
                           Format::kBytesPerK, geometry.key_size, {cells.values[cell], step}, sums);
    repeat<R>([&](auto r) {
      repeat<P>([&](auto p) {
        float* to = workspace.scores + (row + r) * kTileKeys + (cell + p) * kPanelWidth;
        store(to, sums[r][p][0]);
        store(to + kWidth, sums[r][p][1]);
      });
    });
  }

  template <int R>
  void operator()(int64_t row, int64_t pass, int64_t) const {
    constexpr int P = panels_for(R);
    int64_t cell = cells.first_cell();
    const int64_t last = cells.last_cell();
    for (; cell + P <= last; cell += P) score<R, P>(row, cell, pass == 0);
    if constexpr (P > 1)
      for (; cell < last; cell++) score<R, 1>(row, cell, pass == 0);
  }
};

// values[row] = values[row] * correction + scores[row] times the tile's values. Meanwhile the keys of the next tile
// come into the cache.
template <class Format>
struct WeighPass {
  const KvGeometry& geometry;
  const Workspace& workspace;
  const TileCells& cells;
  const TileCells* next;
  const float* corrections;
  float* values;

  // What to fetch while panels [panel, panel + width) meet the cell's values: their share of a cell of keys.
  Stream next_keys(int64_t cell, int64_t panel, int64_t width) const {
    if (next == nullptr || cell < next->first_cell() || cell >= next->last_cell()) return {cells.values[cell], 0};
    const size_t share = geometry.key_cell_bytes * kPanelWidth / geometry.padded_value_size;
    return {next->keys[cell] + panel * share, width * share / kPanelWidth};
  }

  template <int R, int P>
  void weigh(int64_t row, int64_t panel, bool fetches) const {
    const int64_t stride = geometry.padded_value_size;
    float* to = values + row * stride + panel * kPanelWidth;
    Sums<R, P> sums;
    repeat<R>([&](auto r) {
      repeat<P>([&](auto p) {
        const float* at = to + r * stride + p * kPanelWidth;
        sums[r][p][0] = mul(broadcast(corrections[row + r]), load(at));
        sums[r][p][1] = mul(broadcast(corrections[row + r]), load(at + kWidth));
      });
    });
    for (int64_t place = cells.first; place < cells.last;) {
      const int64_t cell = (place - cells.base) / kPanelWidth, lane = (place - cells.base) % kPanelWidth;
      const int64_t count = std::min(kPanelWidth - lane, cells.last - place);
      const uint8_t* rows = cells.values[cell] + lane * geometry.value_row_bytes() + panel * Format::kBytesPerK;
      const uint8_t* panels[P];
      for (int p = 0; p < P; p++) panels[p] = rows + p * Format::kBytesPerK;
      const Stream stream = fetches ? next_keys(cell, panel, P) : Stream{rows, 0};
      multiply<Format, R, P>(workspace.scores + row * kTileKeys + place - cells.base, kTileKeys, panels,
                             geometry.value_row_bytes(), count, stream, sums);
      place += count;
    }
    repeat<R>([&](auto r) {
      repeat<P>([&](auto p) {
        store(to + r * stride + p * kPanelWidth, sums[r][p][0]);
        store(to + r * stride + p * kPanelWidth + kWidth, sums[r][p][1]);
      });
    });
  }

  template <int R>
  void operator()(int64_t row, int64_t pass, int64_t) const {
    constexpr int P = panels_for(R);
    const int64_t panels = geometry.padded_value_size / kPanelWidth;
    int64_t panel = 0;
    for (; panel + P <= panels; panel += P) weigh<R, P>(row, panel, pass == 0);
    if constexpr (P > 1)
      for (; panel < panels; panel++) weigh<R, 1>(row, panel, pass == 0);
  }
};

// Adds what the rows see of a tile to their partial results. `next`: the tile that follows, if any.
template <class Format>
void attend_tile(const AttentionJob& job, const QueryTile& tile, const TileCells& cells, const TileCells* next,
                 Workspace& workspace, Partial& partial) {
  if (cells.first >= cells.last) return;
  for_row_passes(0, tile.num_rows, ScorePass<Format>{job.geometry, workspace, cells});
  float corrections[kMaxRows];
  for (int64_t row = 0; row < tile.num_rows; row++) {
    const SeenKeys seen{static_cast<int>(std::clamp<int64_t>(workspace.lows[row] - cells.base, 0, kTileKeys)),
                        static_cast<int>(std::clamp<int64_t>(workspace.highs[row] - cells.base, 0, kTileKeys))};
    corrections[row] = weigh_scores(workspace.scores + row * kTileKeys, seen, job.attention, partial, row);
  }
  for_row_passes(0, tile.num_rows,
                 WeighPass<Format>{job.geometry, workspace, cells, next, corrections, partial.values});
}

}  // namespace headrace
