#include "linear.h"

#include <algorithm>

#include "panel.h"

namespace headrace {
namespace {

constexpr int64_t kRowsPerChunk = 16 * kRowsPerPass;
constexpr int64_t kPanelsPerBlock = 4;

// Adds bias, and what y holds where the job says so, and stores the columns that exist.
[[gnu::noinline]] void finish_panel(const LinearJob& job, int64_t row, int64_t panel, Vec low, Vec high) {
  const int64_t column = panel * kPanelWidth;
  const int64_t columns = std::min<int64_t>(kPanelWidth, job.linear->out_size - column);
  float* y = job.y + row * job.y_stride + column;
  if (columns == kPanelWidth) {
    if (job.linear->bias != nullptr) {
      low = add(low, load(job.linear->bias + column));
      high = add(high, load(job.linear->bias + column + kWidth));
    }
    if (job.adds_to_y) {
      low = add(load(y), low);
      high = add(load(y + kWidth), high);
    }
    store(y, low);
    store(y + kWidth, high);
    return;
  }
  float values[kPanelWidth];
  store(values, low);
  store(values + kWidth, high);
  for (int64_t c = 0; c < columns; c++) {
    if (job.linear->bias != nullptr) values[c] += job.linear->bias[column + c];
    y[c] = job.adds_to_y ? y[c] + values[c] : values[c];
  }
}

template <class Format, int R, int P>
void compute_panels(const LinearJob& job, int64_t row, int64_t panel, Fetch fetch) {
  const int64_t in_size = job.linear->in_size;
  const uint8_t* panels[P];
  for (int p = 0; p < P; p++) panels[p] = job.linear->panels + (panel + p) * Format::panel_bytes(in_size);
  Sums<R, P> sums;
  multiply_panels<Format, R, P>(job.x + row * job.x_stride, job.x_stride, panels, in_size, fetch, sums);
  repeat<R>([&](auto r) {
    repeat<P>([&](auto p) { finish_panel(job, row + r, panel + p, sums[r][p][0], sums[r][p][1]); });
  });
}

// A single pass reads its panels from memory and fetches a little ahead. Several passes find theirs in the cache,
// but for the first; so each brings in its part of the next panels while it computes.
template <class Format>
Fetch fetch_for(int64_t in_size, int64_t pass, int64_t passes) {
  if (passes == 1) return {kFetchAhead, Format::kBytesPerK};
  constexpr int64_t kMostParts = 8;
  const int64_t parts = std::min(passes, kMostParts);
  if (pass >= parts) return {0, 0};
  const size_t step = Format::kBytesPerK / parts;
  return {kPanelsPerBlock * Format::panel_bytes(in_size) + pass * in_size * step, step};
}

template <class Format>
struct RowPass {
  const LinearJob& job;
  int64_t first_panel, last_panel;

  template <int R>
  void operator()(int64_t row, int64_t pass, int64_t passes) const {
    constexpr int P = panels_for(R);
    const Fetch fetch = fetch_for<Format>(job.linear->in_size, pass, passes);
    int64_t panel = first_panel;
    for (; panel + P <= last_panel; panel += P) compute_panels<Format, R, P>(job, row, panel, fetch);
    if constexpr (P > 1)
      for (; panel < last_panel; panel++) compute_panels<Format, R, 1>(job, row, panel, fetch);
  }
};

void gate(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel) {
  for (int64_t row = first_row; row < last_row; row++)
    for (int64_t panel = first_panel; panel < last_panel; panel += 2) {
      const float* pair = job.y + row * job.y_stride + panel * kPanelWidth;
      float* gated = job.gated + row * job.gated_stride + panel / 2 * kPanelWidth;
      for (int c = 0; c < kPanelWidth; c += kWidth)
        store(gated + c, mul(silu(load(pair + c)), load(pair + kPanelWidth + c)));
    }
}

template <class Format>
void compute_chunk(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel,
                   int64_t last_panel) {
  // A few panels at a time, so that they stay in the cache from the first pass over rows to the last.
  for (int64_t panel = first_panel; panel < last_panel; panel += kPanelsPerBlock)
    for_row_passes(first_row, last_row,
                   RowPass<Format>{job, panel, std::min(last_panel, panel + kPanelsPerBlock)});
  if (job.gated != nullptr) gate(job, first_row, last_row, first_panel, last_panel);
}

using ChunkFunction = void (*)(const LinearJob&, int64_t, int64_t, int64_t, int64_t);

ChunkFunction chunk_function(int64_t format) {
  switch (format) {
    case HR_F32: return compute_chunk<F32>;
    case HR_BF16: return compute_chunk<Bf16>;
    case HR_INT8: return compute_chunk<Int8>;
    default: return compute_chunk<Int4>;
  }
}

}  // namespace

int64_t panels_of(int64_t out_size) { return (out_size + kPanelWidth - 1) / kPanelWidth; }
int64_t padded(int64_t columns) { return panels_of(columns) * kPanelWidth; }

int64_t panel_bytes(int64_t format, int64_t in_size) {
  switch (format) {
    case HR_F32: return F32::panel_bytes(in_size);
    case HR_BF16: return Bf16::panel_bytes(in_size);
    case HR_INT8: return Int8::panel_bytes(in_size);
    default: return Int4::panel_bytes(in_size);
  }
}

void run_linear(Crew& crew, const LinearJob& job) {
  const ChunkFunction compute = chunk_function(job.linear->format);
  const int64_t num_panels = panels_of(job.linear->out_size);
  // A few chunks a thread, so that one held up by the system does not hold up all; whole pairs for gates.
  const int64_t per_chunk = std::clamp<int64_t>(num_panels / (4 * crew.size()) / 4 * 4, 4, 64);
  const int64_t panel_chunks = (num_panels + per_chunk - 1) / per_chunk;
  const int64_t row_chunks = (job.rows + kRowsPerChunk - 1) / kRowsPerChunk;
  // Row chunks of one panel chunk follow each other: its panels stay in the cache.
  crew.run(panel_chunks * row_chunks, [&](int64_t chunk) {
    const int64_t first_panel = chunk / row_chunks * per_chunk, first_row = chunk % row_chunks * kRowsPerChunk;
    compute(job, first_row, std::min(job.rows, first_row + kRowsPerChunk), first_panel,
            std::min(num_panels, first_panel + per_chunk));
  });
}

}  // namespace headrace

int64_t hr_panel_width(void) { return headrace::kPanelWidth; }

int64_t hr_linear_bytes(int64_t format, int64_t in_size, int64_t out_size) {
  return headrace::panels_of(out_size) * headrace::panel_bytes(format, in_size);
}

void hr_linear_forward(hr_crew* crew, const hr_linear* linear, const float* x, int64_t x_stride, int64_t rows,
                       float* y, int64_t y_stride) {
  headrace::LinearJob job{linear, x, x_stride, rows, y, y_stride};
  run_linear(crew->crew, job);
}
