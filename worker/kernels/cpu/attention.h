// Ragged paged attention: prefill, decode and verification of any mix of sequences in one call.
#pragma once

#include <vector>

#include "crew.h"
#include "headrace.h"
#include "kv_pages.h"

namespace headrace {

// Splits and tiles lie at fixed places of the sequence, so that a token meets its keys in the same groups in every
// batch, whoever computes them.
constexpr int64_t kTileKeys = 64;
constexpr int64_t kSplitKeys = 2 * kTileKeys;
constexpr int64_t kMaxRows = 4 * kRowsPerPass;  // query rows of one kv head computed together
constexpr int64_t kMaxHeadSize = 256;

// Query rows of one sequence and one kv head: row r is token r / group of the sequence's new ones, head r % group.
struct QueryTile {
  int64_t sequence, kv_head;
  int64_t first_row, num_rows;
  int64_t first_split, last_split;  // of those its rows see
  int64_t partial = -1;             // where the results of its splits go, if each is a task of its own
};

struct AttentionTask {
  int64_t tile;
  int64_t first_split, last_split;
};

// How a batch's attention is cut into tasks; the same for all layers with the same window.
struct AttentionPlan {
  AttentionPlan(const hr_batch& batch, int64_t group, int64_t kv_heads, int64_t window, int num_threads);

  std::vector<QueryTile> tiles;
  std::vector<AttentionTask> tasks;
  int64_t num_partials = 0;  // of kMaxRows rows each
};

// One layer's attention. Strides count floats between tokens.
struct AttentionJob {
  const KvGeometry& geometry;
  const hr_attention& attention;
  const hr_batch& batch;
  const AttentionPlan& plan;
  const float* queries;
  int64_t query_stride;
  hr_pages pages;
  float* out;
  int64_t out_stride;
  float* partials;  // room for plan.num_partials * partial_floats(geometry)
};

int64_t partial_floats(const KvGeometry& geometry);
void run_attention(Crew& crew, const AttentionJob& job);

}  // namespace headrace
