#include "linear.h"

#include <algorithm>

#include "dot_linear.h"
#include "dot_panel.h"
#include "linear_finish.h"
#include "quantized_linear.h"
#include "quantized_panel.h"

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
  multiply_panels<Format, R, P>(job.x + row * job.x_stride, job.x_stride, panels, in_size, fetch, sums);
  repeat<R>([&](auto r) {
    repeat<P>([&](auto p) { finish_panel(job, row + r, panel + p, sums[r][p][0], sums[r][p][1]); });
  });
}

template <class Format>
struct RowPass {
  const LinearJob& job;
  int64_t first_panel, last_panel;

  template <int R>
  void operator()(int64_t row, int64_t pass, int64_t passes) const {
    constexpr int P = panels_for(R);
    const int64_t in_size = job.linear->in_size;
    const int64_t chunk_bytes = (last_panel - first_panel) * Format::panel_bytes(in_size);
    const Fetch fetch = fetch_for(Format::kBytesPerK, in_size, chunk_bytes, pass, passes);
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

using ChunkFunction = void (*)(const LinearJob&, int64_t, int64_t, int64_t, int64_t);

ChunkFunction chunk_function(int64_t format) {
  switch (format) {
    case HR_F32: return compute_chunk<F32>;
#if defined(HEADRACE_DOT)
    case HR_BF16: return compute_dot_chunk;
#else
    case HR_BF16: return compute_chunk<Bf16>;
#endif
    case HR_INT8: return compute_quantized_chunk<Int8>;
    default: return compute_quantized_chunk<Int4>;
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
int64_t padded(int64_t columns) { return panels_of(columns) * kPanelWidth; }

int64_t panel_bytes(int64_t format, int64_t in_size) {
  switch (format) {
    case HR_F32: return F32::panel_bytes(in_size);
    case HR_BF16: return bf16_panel_bytes(in_size);
    case HR_INT8: return quantized_panel_bytes<Int8>(in_size);
    default: return quantized_panel_bytes<Int4>(in_size);
  }
}

void run_linear(Crew& crew, const LinearJob& job) {
  if (job.rows == 0) return;
  const ChunkFunction compute = chunk_function(job.linear->format);
  switch (job.linear->format) {
#if defined(HEADRACE_DOT)
    case HR_BF16: return run_chunks(crew, with_rounded_rows(crew, job), compute);
#endif
    case HR_INT8: return run_chunks(crew, with_integer_rows<Int8>(crew, job), compute);
    case HR_INT4: return run_chunks(crew, with_integer_rows<Int4>(crew, job), compute);
    default: return run_chunks(crew, job, compute);
  }
}

}  // namespace headrace

int64_t hr_panel_width(void) { return headrace::kPanelWidth; }

int64_t hr_linear_bytes(int64_t format, int64_t in_size, int64_t out_size) {
  return headrace::panels_of(out_size) * headrace::panel_bytes(format, in_size);
}

void hr_linear_forward(hr_crew* crew, const hr_linear* linear, const float* x, int64_t x_stride, int64_t rows,
                       float* y, int64_t y_stride) {
  run_linear(crew->crew, {linear, x, x_stride, rows, y, y_stride});
}
