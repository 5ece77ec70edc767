// Work on rows for those who run a network one operation at a time.
#include <algorithm>

#include "linear.h"
#include "rowwise.h"

namespace headrace {
namespace {

constexpr int64_t kFloatsPerChunk = 1 << 14;  // fewer are done before another thread has heard of them

template <class Work>
void for_rows(hr_crew* crew, int64_t rows, int64_t size, Work work) {
  const int64_t per_chunk = std::max<int64_t>(1, kFloatsPerChunk / size);
  crew->crew.run((rows + per_chunk - 1) / per_chunk, [&](int64_t chunk) {
    const int64_t last = std::min(rows, (chunk + 1) * per_chunk);
    for (int64_t row = chunk * per_chunk; row < last; row++) work(row);
  });
}

}  // namespace
}  // namespace headrace

void hr_unpack_rows(hr_crew* crew, const hr_linear* linear, const int64_t* indices, int64_t rows, float* out) {
  headrace::for_rows(crew, rows, linear->in_size, [&](int64_t row) {
    headrace::unpack_row(*linear, indices[row], out + row * linear->in_size);
  });
}

void hr_rms_norm(hr_crew* crew, const float* x, int64_t rows, int64_t size, const float* weight, float epsilon,
                 float* y) {
  headrace::for_rows(crew, rows, size, [&](int64_t row) {
    headrace::rms_norm(x + row * size, weight, size, epsilon, y + row * size);
  });
}
