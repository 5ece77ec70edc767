#include "attention.h"

#include <algorithm>
#include <limits>

#include "linear.h"
#include "softmax.h"

namespace headrace {
namespace {

constexpr int64_t kCellsPerTile = kTileKeys / kPanelWidth;

// What one task works with: its rows and the cells of the tile at hand.
struct Workspace {
  alignas(64) float queries[kMaxRows * kMaxHeadSize];
  alignas(64) float scores[kMaxRows * kTileKeys];
  alignas(64) uint8_t gathered_keys[kTileKeys * kMaxHeadSize * 4];
  alignas(64) uint8_t gathered_values[kTileKeys * kMaxHeadSize * 4];
  const uint8_t* keys[kCellsPerTile];
  const uint8_t* values[kCellsPerTile];
  int64_t lows[kMaxRows], highs[kMaxRows];  // the places each row sees: from low, to high exclusive
};

int64_t group_of(const AttentionJob& job) { return job.attention.heads / job.geometry.kv_heads; }

int64_t token_of(const AttentionJob& job, const QueryTile& tile, int64_t row) {
  return job.batch.query_offsets[tile.sequence] + (tile.first_row + row) / group_of(job);
}

int64_t head_of(const AttentionJob& job, const QueryTile& tile, int64_t row) {
  return tile.kv_head * group_of(job) + (tile.first_row + row) % group_of(job);
}

void prepare_rows(const AttentionJob& job, const QueryTile& tile, Workspace& workspace) {
  const int64_t key_size = job.geometry.key_size;
  for (int64_t row = 0; row < tile.num_rows; row++) {
    const int64_t token = token_of(job, tile, row);
    const float* query = job.queries + token * job.query_stride + head_of(job, tile, row) * key_size;
    std::copy(query, query + key_size, workspace.queries + row * key_size);
    workspace.highs[row] = job.batch.positions[token] + 1;
    workspace.lows[row] =
        job.attention.window > 0 ? std::max<int64_t>(0, workspace.highs[row] - job.attention.window) : 0;
  }
}

// Copies the places [first, last) of a sequence, which share a cell there but not in the pages, into a cell.
void gather_cell(const AttentionJob& job, const QueryTile& tile, int64_t first, int64_t last, uint8_t* keys,
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

// Finds the cells that hold the places [first, last) of the tile that starts at `base`.
void find_cells(const AttentionJob& job, const QueryTile& tile, int64_t base, int64_t first, int64_t last,
                Workspace& workspace) {
  const KvGeometry& geometry = job.geometry;
  const int64_t* table = job.batch.page_table + tile.sequence * job.batch.pages_per_sequence;
  const bool is_aligned = geometry.page_size % kPanelWidth == 0;
  for (int64_t cell = (first - base) / kPanelWidth; base + cell * kPanelWidth < last; cell++) {
    const int64_t start = base + cell * kPanelWidth;
    if (is_aligned) {
      const size_t found = geometry.cell_index(table[start / geometry.page_size], tile.kv_head,
                                               start % geometry.page_size / kPanelWidth);
      workspace.keys[cell] = job.pages.keys + found * geometry.key_cell_bytes;
      workspace.values[cell] = job.pages.values + found * geometry.value_cell_bytes;
    } else {
      uint8_t* keys = workspace.gathered_keys + cell * geometry.key_cell_bytes;
      uint8_t* values = workspace.gathered_values + cell * geometry.value_cell_bytes;
      gather_cell(job, tile, std::max(start, first), std::min(start + kPanelWidth, last), keys, values);
      workspace.keys[cell] = keys;
      workspace.values[cell] = values;
    }
  }
}

struct CellRange {
  int64_t first, last;
};

template <class Format>
struct ScorePass {
  const KvGeometry& geometry;
  Workspace& workspace;
  CellRange cells;

  template <int R, int P>
  void score(int64_t row, int64_t cell) const {
    const uint8_t* panels[P];
    for (int p = 0; p < P; p++) panels[p] = workspace.keys[cell + p];
    Sums<R, P> sums;
    clear<R, P>(sums);
    multiply<Format, R, P>(workspace.queries + row * geometry.key_size, geometry.key_size, panels,
                           Format::kBytesPerK, geometry.key_size, sums);
    repeat<R>([&](auto r) {
      repeat<P>([&](auto p) {
        float* to = workspace.scores + (row + r) * kTileKeys + (cell + p) * kPanelWidth;
        store(to, sums[r][p][0]);
        store(to + kWidth, sums[r][p][1]);
      });
    });
  }

  template <int R>
  void operator()(int64_t row, int64_t, int64_t) const {
    constexpr int P = panels_for(R);
    int64_t cell = cells.first;
    for (; cell + P <= cells.last; cell += P) score<R, P>(row, cell);
    if constexpr (P > 1)
      for (; cell < cells.last; cell++) score<R, 1>(row, cell);
  }
};

// values[row] = values[row] * correction + scores[row] times the tile's values.
template <class Format>
struct WeighPass {
  const KvGeometry& geometry;
  const Workspace& workspace;
  int64_t base, first, last;  // places
  const float* corrections;
  float* values;

  template <int R, int P>
  void weigh(int64_t row, int64_t panel) const {
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
    for (int64_t place = first; place < last;) {
      const int64_t cell = (place - base) / kPanelWidth, lane = (place - base) % kPanelWidth;
      const int64_t count = std::min(kPanelWidth - lane, last - place);
      const uint8_t* rows = workspace.values[cell] + lane * geometry.value_row_bytes() + panel * Format::kBytesPerK;
      const uint8_t* panels[P];
      for (int p = 0; p < P; p++) panels[p] = rows + p * Format::kBytesPerK;
      multiply<Format, R, P>(workspace.scores + row * kTileKeys + place - base, kTileKeys, panels,
                             geometry.value_row_bytes(), count, sums);
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
  void operator()(int64_t row, int64_t, int64_t) const {
    constexpr int P = panels_for(R);
    const int64_t panels = geometry.padded_value_size / kPanelWidth;
    int64_t panel = 0;
    for (; panel + P <= panels; panel += P) weigh<R, P>(row, panel);
    if constexpr (P > 1)
      for (; panel < panels; panel++) weigh<R, 1>(row, panel);
  }
};

template <class Format>
void attend_tile(const AttentionJob& job, const QueryTile& tile, int64_t base, Workspace& workspace,
                 Partial& partial) {
  const int64_t first = std::max(base, *std::min_element(workspace.lows, workspace.lows + tile.num_rows));
  const int64_t last =
      std::min(base + kTileKeys, *std::max_element(workspace.highs, workspace.highs + tile.num_rows));
  if (first >= last) return;
  find_cells(job, tile, base, first, last, workspace);
  const CellRange cells{(first - base) / kPanelWidth, (last - base + kPanelWidth - 1) / kPanelWidth};
  for_row_passes(0, tile.num_rows, ScorePass<Format>{job.geometry, workspace, cells});
  float corrections[kMaxRows];
  for (int64_t row = 0; row < tile.num_rows; row++) {
    const SeenKeys seen{static_cast<int>(std::clamp<int64_t>(workspace.lows[row] - base, 0, kTileKeys)),
                        static_cast<int>(std::clamp<int64_t>(workspace.highs[row] - base, 0, kTileKeys))};
    corrections[row] = weigh_scores(workspace.scores + row * kTileKeys, seen, job.attention, partial, row);
  }
  for_row_passes(0, tile.num_rows,
                 WeighPass<Format>{job.geometry, workspace, base, first, last, corrections, partial.values});
}

template <class Format>
void attend_split(const AttentionJob& job, const QueryTile& tile, int64_t split, Workspace& workspace,
                  Partial& partial) {
  partial.clear(tile.num_rows);
  for (int64_t base = split * kSplitKeys; base < (split + 1) * kSplitKeys; base += kTileKeys)
    attend_tile<Format>(job, tile, base, workspace, partial);
}

void store_rows(const AttentionJob& job, const QueryTile& tile, Partial& partial) {
  for (int64_t row = 0; row < tile.num_rows; row++) {
    const int64_t head = head_of(job, tile, row), size = job.geometry.value_size;
    const float* sink = job.attention.sinks == nullptr ? nullptr : job.attention.sinks + head;
    const float factor = partial.final_factor(row, sink);
    const float* from = partial.values + row * job.geometry.padded_value_size;
    float* to = job.out + token_of(job, tile, row) * job.out_stride + head * size;
    for (int64_t d = 0; d < size; d++) to[d] = from[d] * factor;
  }
}

float* partial_memory(const AttentionJob& job, const QueryTile& tile, int64_t split) {
  return job.partials + (tile.partial + split - tile.first_split) * partial_floats(job.geometry);
}

template <class Format>
void run_task(const AttentionJob& job, const AttentionTask& task) {
  const QueryTile& tile = job.plan.tiles[task.tile];
  static thread_local Workspace workspace;
  static thread_local float memory[2][Partial::kHeaderFloats + kMaxRows * kMaxHeadSize];
  prepare_rows(job, tile, workspace);
  if (tile.partial >= 0) {
    Partial partial(partial_memory(job, tile, task.first_split), job.geometry.padded_value_size);
    attend_split<Format>(job, tile, task.first_split, workspace, partial);
    return;
  }
  Partial total(memory[0], job.geometry.padded_value_size), partial(memory[1], job.geometry.padded_value_size);
  attend_split<Format>(job, tile, task.first_split, workspace, total);
  for (int64_t split = task.first_split + 1; split < task.last_split; split++) {
    attend_split<Format>(job, tile, split, workspace, partial);
    total.merge(partial, tile.num_rows);
  }
  store_rows(job, tile, total);
}

void merge_splits(const AttentionJob& job, const QueryTile& tile) {
  Partial total(partial_memory(job, tile, tile.first_split), job.geometry.padded_value_size);
  for (int64_t split = tile.first_split + 1; split < tile.last_split; split++) {
    Partial partial(partial_memory(job, tile, split), job.geometry.padded_value_size);
    total.merge(partial, tile.num_rows);
  }
  store_rows(job, tile, total);
}

}  // namespace

AttentionPlan::AttentionPlan(const hr_batch& batch, int64_t group, int64_t kv_heads, int64_t window,
                             int num_threads) {
  const int64_t rows_per_tile = std::max<int64_t>(1, kMaxRows / group) * std::min(group, kMaxRows);
  for (int64_t sequence = 0; sequence < batch.num_sequences; sequence++) {
    const int64_t new_tokens = batch.query_offsets[sequence + 1] - batch.query_offsets[sequence];
    const int64_t past = batch.kv_lengths[sequence] - new_tokens, rows = new_tokens * group;
    for (int64_t row = 0; row < rows; row += rows_per_tile) {
      const int64_t num_rows = std::min(rows_per_tile, rows - row);
      const int64_t first_place = past + row / group, last_place = past + (row + num_rows - 1) / group;
      const int64_t first_seen = window > 0 ? std::max<int64_t>(0, first_place - window + 1) : 0;
      for (int64_t head = 0; head < kv_heads; head++)
        tiles.push_back({sequence, head, row, num_rows, first_seen / kSplitKeys, last_place / kSplitKeys + 1});
    }
  }
  // With few tiles, a thread for each split; the merge gives the same bits either way.
  const bool has_few = static_cast<int64_t>(tiles.size()) < 4 * num_threads && num_threads > 1;
  for (size_t index = 0; index < tiles.size(); index++) {
    QueryTile& tile = tiles[index];
    const int64_t tile_index = static_cast<int64_t>(index);
    if (!has_few || tile.last_split - tile.first_split == 1) {
      tasks.push_back({tile_index, tile.first_split, tile.last_split});
      continue;
    }
    tile.partial = num_partials;
    num_partials += tile.last_split - tile.first_split;
    for (int64_t split = tile.first_split; split < tile.last_split; split++)
      tasks.push_back({tile_index, split, split + 1});
  }
}

int64_t partial_floats(const KvGeometry& geometry) {
  return Partial::kHeaderFloats + kMaxRows * geometry.padded_value_size;
}

void run_attention(Crew& crew, const AttentionJob& job) {
  const auto& tasks = job.plan.tasks;
  auto run = job.geometry.is_f32 ? run_task<F32> : run_task<Bf16>;
  crew.run(static_cast<int64_t>(tasks.size()), [&](int64_t task) { run(job, tasks[task]); });
  if (job.plan.num_partials == 0) return;
  for (const QueryTile& tile : job.plan.tiles)
    if (tile.partial >= 0) merge_splits(job, tile);
}

}  // namespace headrace

void hr_attend(hr_crew* crew, const hr_kv_layout* layout, const hr_attention* attention, const hr_batch* batch,
               const float* queries, hr_pages pages, float* out) {
  using namespace headrace;
  const KvGeometry geometry(*layout);
  const AttentionPlan plan(*batch, attention->heads / geometry.kv_heads, geometry.kv_heads, attention->window,
                           crew->crew.size());
  crew->scratch.reset();
  float* partials = crew->scratch.floats(plan.num_partials * partial_floats(geometry));
  run_attention(crew->crew, {geometry, *attention, *batch, plan, queries, attention->heads * geometry.key_size, pages,
                             out, attention->heads * geometry.value_size, partials});
}
