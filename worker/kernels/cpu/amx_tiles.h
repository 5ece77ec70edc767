// The tiles of AMX as the linear layers use them: eight, all of sixteen rows of 64 bytes.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace headrace {

constexpr int64_t kTileRows = 16;     // rows of x or of sums, and pairs of k of weights
constexpr int64_t kTileColumns = 16;  // of sums and of weights

// Whether the system lets this process use tiles. Linux gives a thread room for them only after its process has asked.
inline bool may_use_tiles() {
#if defined(HEADRACE_EMULATED)
  return true;
#else
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#endif
}

// While it lives the calling thread has tiles. It gives them back in the end: a thread that has some takes longer to
// switch to and from.
class TilesInUse {
 public:
  TilesInUse() { _tile_loadconfig(&kLayout); }
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

 private:
  struct Layout {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  alignas(64) static constexpr Layout kLayout{
      1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
};

}  // namespace headrace
