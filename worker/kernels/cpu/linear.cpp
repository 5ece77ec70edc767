#include "linear.h"

#include <algorithm>

#include "dot_linear.h"
#include "dot_panel.h"
#include "linear_finish.h"

namespace headrace {
namespace {

constexpr int64_t kRowsPerChunk = 16 * kRowsPerPass;
constexpr int64_t kMostPanelsPerChunk = 4;

template <class Format, int R, int P>
void compute_panels(const LinearJob& job, int64_t row, int64_t panel, Fetch fetch) {
  const int64_t in_size = job.linear->in_size;
  const uint8_t* panels[P];
  for (int p = 0; p < P; p++) panels[p] = job.linear->panels + (panel + p) * Format::panel_bytes(in_size);
  Sums<R, P> sums;
  const int64_t num_groups = in_size / kGroup;
  const Rows rows{job.x + row * job.x_stride, static_cast<size_t>(job.x_stride), job.group_sums + row * num_groups,
                  static_cast<size_t>(num_groups)};
  multiply_panels<Format, R, P>(rows, panels, in_size, fetch, sums);
  repeat<R>([&](auto r) {
    repeat<P>([&](auto p) { finish_panel(job, row + r, panel + p, sums[r][p][0], sums[r][p][1]); });
  });
}

// A single pass reads its panels from memory and fetches a little ahead. Several passes find theirs in the cache,
// where those over the panels before have brought them: each does its part for the next chunk.
template <class Format>
Fetch fetch_for(int64_t chunk_bytes, int64_t in_size, int64_t pass, int64_t passes) {
  if (passes == 1) return {kFetchAhead, Format::kBytesPerK};
  const int64_t parts = passes < 4 ? 2 : passes < 8 ? 4 : 8;
  if (pass >= parts) return {0, 0};
  const size_t step = Format::kBytesPerK / parts;
  return {chunk_bytes + pass * in_size * step, step};
}

template <class Format>
struct RowPass {
  const LinearJob& job;
  int64_t first_panel, last_panel;

  template <int R>
  void operator()(int64_t row, int64_t pass, int64_t passes) const {
    constexpr int P = panels_for(R);
    const int64_t in_size = job.linear->in_size;
    const Fetch fetch =
        fetch_for<Format>((last_panel - first_panel) * Format::panel_bytes(in_size), in_size, pass, passes);
    int64_t panel = first_panel;
    for (; panel + P <= last_panel; panel += P) compute_panels<Format, R, P>(job, row, panel, fetch);
    if constexpr (P > 1)
      for (; panel < last_panel; panel++) compute_panels<Format, R, 1>(job, row, panel, fetch);
  }
};

template <class Format>
void compute_chunk(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel,
                   int64_t last_panel) {
  for_row_passes(first_row, last_row, RowPass<Format>{job, first_panel, last_panel});
  if (job.gated != nullptr) gate(job, first_row, last_row, first_panel, last_panel);
}

// The sums of each group of x, [rows, in_size / kGroup].
void sum_groups(Crew& crew, const LinearJob& job) {
  const int64_t num_groups = job.linear->in_size / kGroup;
  crew.run((job.rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk) {
    const int64_t last = std::min(job.rows, (chunk + 1) * kRowsPerChunk);
    for (int64_t row = chunk * kRowsPerChunk; row < last; row++)
      for (int64_t group = 0; group < num_groups; group++) {
        const float* x = job.x + row * job.x_stride + group * kGroup;
        Vec sum = load(x);
        for (int i = kWidth; i < kGroup; i += kWidth) sum = add(sum, load(x + i));
        job.group_sums[row * num_groups + group] = sum_of(sum);
      }
  });
}

using ChunkFunction = void (*)(const LinearJob&, int64_t, int64_t, int64_t, int64_t);

ChunkFunction chunk_function(int64_t format) {
  switch (format) {
    case HR_F32: return compute_chunk<F32>;
#if !defined(HEADRACE_DOT)
    case HR_BF16: return compute_chunk<Bf16>;
#endif
    case HR_INT8: return compute_chunk<Int8>;
    default: return compute_chunk<Int4>;
  }
}

void run_chunks(Crew& crew, const LinearJob& job, ChunkFunction compute) {
  const int64_t num_panels = panels_of(job.linear->out_size);
  const int64_t row_chunks = (job.rows + kRowsPerChunk - 1) / kRowsPerChunk;
  // Even, but for the last one, and whole passes.
  const int64_t passes = (job.rows + kRowsPerPass * row_chunks - 1) / (kRowsPerPass * row_chunks);
  const int64_t rows_per_chunk = passes * kRowsPerPass;
  // Few panels, so that they stay in the cache from the first pass over rows to the last, and so that threads end
  // together; whole pairs for gates.
  const bool is_small = num_panels * row_chunks < 8 * kMostPanelsPerChunk * crew.size();
  const int64_t per_chunk = is_small && job.rows > 2 ? kMostPanelsPerChunk / 2 : kMostPanelsPerChunk;
  const int64_t panel_chunks = (num_panels + per_chunk - 1) / per_chunk;
  // Panel chunks of the same rows follow each other: rows stay in the cache, panels stream by.
  crew.run(panel_chunks * row_chunks, [&](int64_t chunk) {
    const int64_t first_row = chunk / panel_chunks * rows_per_chunk, first_panel = chunk % panel_chunks * per_chunk;
    compute(job, first_row, std::min(job.rows, first_row + rows_per_chunk), first_panel,
            std::min(num_panels, first_panel + per_chunk));
  });
}

}  // namespace

int64_t panels_of(int64_t out_size) { return (out_size + kPanelWidth - 1) / kPanelWidth; }
int64_t groups_of(int64_t in_size) { return in_size / kGroup; }
int64_t padded(int64_t columns) { return panels_of(columns) * kPanelWidth; }

int64_t panel_bytes(int64_t format, int64_t in_size) {
  switch (format) {
    case HR_F32: return F32::panel_bytes(in_size);
    case HR_BF16: return bf16_panel_bytes(in_size);
    case HR_INT8: return Int8::panel_bytes(in_size);
    default: return Int4::panel_bytes(in_size);
  }
}

void run_linear(Crew& crew, const LinearJob& job) {
  if (job.rows == 0) return;
#if defined(HEADRACE_DOT)
  if (job.linear->format == HR_BF16) return run_chunks(crew, with_rounded_rows(crew, job), compute_dot_chunk);
#endif
  if (job.linear->format == HR_INT4) sum_groups(crew, job);
  run_chunks(crew, job, chunk_function(job.linear->format));
}

}  // namespace headrace

int64_t hr_panel_width(void) { return headrace::kPanelWidth; }

int64_t hr_linear_bytes(int64_t format, int64_t in_size, int64_t out_size) {
  return headrace::panels_of(out_size) * headrace::panel_bytes(format, in_size);
}

void hr_linear_forward(hr_crew* crew, const hr_linear* linear, const float* x, int64_t x_stride, int64_t rows,
                       float* y, int64_t y_stride) {
  crew->scratch.reset();
  float* group_sums = crew->scratch.floats(rows * headrace::groups_of(linear->in_size));
  run_linear(crew->crew, {linear, x, x_stride, rows, group_sums, y, y_stride});
}
