#include "dot_linear.h"

#if defined(HEADRACE_DOT)

#include <algorithm>

#include "dot.h"
#include "dot_panel.h"
#include "linear_finish.h"

namespace headrace {
namespace {

constexpr int64_t kRowsPerChunk = 8;
constexpr int64_t kRowsPerTile = 16;

void round_row(const float* x, int64_t in_size, uint8_t* to) {
  int64_t k = 0;
  for (; k + 2 * kWidth <= in_size; k += 2 * kWidth) round_to_bf16(x + k, to + 2 * k);
  if (k == in_size) return;
  float rest[2 * kWidth] = {};
  std::copy(x + k, x + in_size, rest);
  round_to_bf16(rest, to + 2 * k);
}

}  // namespace

LinearJob with_rounded_rows(Crew& crew, const LinearJob& job) {
  static thread_local Scratch memory;
  const int64_t in_size = job.linear->in_size, stride = stored_k(in_size) / 2;
  memory.reset();
  float* pairs = memory.floats((job.rows + kRowsPerTile - 1) * stride);
  crew.run((job.rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk) {
    const int64_t last = std::min(job.rows, (chunk + 1) * kRowsPerChunk);
    for (int64_t row = chunk * kRowsPerChunk; row < last; row++)
      round_row(job.x + row * job.x_stride, in_size, reinterpret_cast<uint8_t*>(pairs + row * stride));
  });
  LinearJob rounded = job;
  rounded.x = pairs;
  rounded.x_stride = stride;
  return rounded;
}

#if !defined(HEADRACE_AMX)

namespace {

template <int R, int P>
void dot_panels(const LinearJob& job, int64_t row, int64_t panel) {
  constexpr size_t kPairBytes = kPanelWidth * 4;
  const uint8_t* x = reinterpret_cast<const uint8_t*>(job.x + row * job.x_stride);
  const uint8_t* panels[P];
  for (int p = 0; p < P; p++) panels[p] = job.linear->panels + (panel + p) * bf16_panel_bytes(job.linear->in_size);
  Sums<R, P> sums;
  clear<R, P>(sums);
  for (int64_t pair = 0; pair < stored_k(job.linear->in_size) / 2; pair++) {
    Pairs weights[P][2];
    repeat<P>([&](auto p) {
      const uint8_t* at = panels[p] + pair * kPairBytes;
      __builtin_prefetch(at + kFetchAhead, 0, 3);
      __builtin_prefetch(at + kFetchAhead + kPairBytes / 2, 0, 3);
      weights[p][0] = load_pairs(at);
      weights[p][1] = load_pairs(at + kPairBytes / 2);
    });
    repeat<R>([&](auto r) {
      const Pairs factor = broadcast_pair(x + (r * job.x_stride + pair) * 4);
      repeat<P>([&](auto p) {
        sums[r][p][0] = dot(weights[p][0], factor, sums[r][p][0]);
        sums[r][p][1] = dot(weights[p][1], factor, sums[r][p][1]);
      });
    });
  }
  repeat<R>([&](auto r) {
    repeat<P>([&](auto p) { finish_panel(job, row + r, panel + p, sums[r][p][0], sums[r][p][1]); });
  });
}

struct DotPass {
  const LinearJob& job;
  int64_t first_panel, last_panel;

  template <int R>
  void operator()(int64_t row, int64_t, int64_t) const {
    constexpr int P = panels_for(R);
    int64_t panel = first_panel;
    for (; panel + P <= last_panel; panel += P) dot_panels<R, P>(job, row, panel);
    if constexpr (P > 1)
      for (; panel < last_panel; panel++) dot_panels<R, 1>(job, row, panel);
  }
};

}  // namespace

void compute_dot_chunk(const LinearJob& job, int64_t first_row, int64_t last_row, int64_t first_panel,
                       int64_t last_panel) {
  for_row_passes(first_row, last_row, DotPass{job, first_panel, last_panel});
  if (job.gated != nullptr) gate(job, first_row, last_row, first_panel, last_panel);
}

#endif

}  // namespace headrace

#endif
