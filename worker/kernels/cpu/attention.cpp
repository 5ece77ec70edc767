#include "attention.h"

#include <algorithm>

#include "attention_tile.h"

namespace headrace {
namespace {

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
  workspace.lowest = *std::min_element(workspace.lows, workspace.lows + tile.num_rows);
  workspace.highest = *std::max_element(workspace.highs, workspace.highs + tile.num_rows);
}

// Finds the cells of a task's tiles one tile ahead, so that they can be fetched in time.
class TileWalk {
 public:
  TileWalk(const AttentionJob& job, const AttentionTask& task, Workspace& workspace)
      : job_(job), tile_(job.plan.tiles[task.tile]), workspace_(workspace) {
    prepare_rows(job, tile_, workspace);
    end_ = std::min(task.last_split * kSplitKeys, workspace.highest);
    const int64_t base = task.first_split * kSplitKeys;
    find_cells(job, tile_, base, workspace, workspace.cells[0]);
    const TileCells& cells = workspace.cells[0];
    for (int64_t cell = cells.first_cell(); cell < cells.last_cell(); cell++)
      for (size_t at = 0; at < job.geometry.key_cell_bytes; at += 64) __builtin_prefetch(cells.keys[cell] + at, 0, 3);
  }

  // The next of the task's splits.
  template <class Format>
  void attend_split(int64_t split, Partial& partial) {
    partial.clear(tile_.num_rows);
    const int64_t end = std::min((split + 1) * kSplitKeys, end_);
    for (int64_t base = split * kSplitKeys; base < end; base += kTileKeys) attend<Format>(base, partial);
  }

 private:
  template <class Format>
  void attend(int64_t base, Partial& partial) {
    const TileCells& cells = workspace_.cells[turn_];
    TileCells& next = workspace_.cells[turn_ ^= 1];
    const bool has_next = base + kTileKeys < end_;
    if (has_next) find_cells(job_, tile_, base + kTileKeys, workspace_, next);
    attend_tile<Format>(job_, tile_, cells, has_next ? &next : nullptr, workspace_, partial);
  }

  const AttentionJob& job_;
  const QueryTile& tile_;
  Workspace& workspace_;
  int64_t end_;
  int turn_ = 0;
};

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
  TileWalk walk(job, task, workspace);
  if (tile.partial >= 0) {
    Partial partial(partial_memory(job, tile, task.first_split), job.geometry.padded_value_size);
    walk.attend_split<Format>(task.first_split, partial);
    return;
  }
  Partial total(memory[0], job.geometry.padded_value_size), partial(memory[1], job.geometry.padded_value_size);
  walk.attend_split<Format>(task.first_split, total);
  for (int64_t split = task.first_split + 1; split < task.last_split; split++) {
    walk.attend_split<Format>(split, partial);
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
