// AVX512-BF16 and AMX-BF16 for processors without them, as the manual defines them: sums rounded to nearest even after
// every step, denormals zero as operands and as results, whatever the control register says.
#pragma once

#include <stdlib.h>

#include "avx512.h"

namespace emulation {

inline __m256 without_denormals(__m256 x) {
  const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7f800000));
  const __m256i is_tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
  const __m256i dropped = _mm256_and_si256(is_tiny, _mm256_set1_epi32(0x7fffffff));
  return _mm256_andnot_ps(_mm256_castsi256_ps(dropped), x);
}
inline Floats without_denormals(Floats x) { return {without_denormals(x.low), without_denormals(x.high)}; }

inline Floats step(Floats sum, Floats a, Floats b) {
  return without_denormals(fma(without_denormals(a), without_denormals(b), without_denormals(sum)));
}

// The bf16 numbers of each pair: number 0 in the low half of its word, number 1 in the high half.
inline Floats numbers_0(Words pairs) { return as_floats(shift_left(pairs, 16)); }
inline Floats numbers_1(Words pairs) {
  return as_floats(and_words(pairs, broadcast_word(static_cast<int32_t>(0xffff0000u))));
}

// VDPBF16PS: number 1 first.
inline Floats dot(Floats sum, Words a, Words b) {
  return step(step(sum, numbers_1(a), numbers_1(b)), numbers_0(a), numbers_0(b));
}

// VCVTNE2PS2BF16: the first operand gives the upper half of the result.
inline uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  const uint32_t exponent = bits & 0x7f800000u, fraction = bits & 0x007fffffu;
  if (exponent == 0) return static_cast<uint16_t>((bits & 0x80000000u) >> 16);
  if (exponent == 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | (fraction != 0 ? 0x40u : 0u));
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline Words to_bf16(Floats upper, Floats lower) {
  float from[32];
  uint16_t to[32];
  store(from, lower);
  store(from + 16, upper);
  for (int i = 0; i < 32; i++) to[i] = to_bf16(from[i]);
  return load_words(to);
}

struct Tiles {
  uint8_t palette = 0;
  int rows[8] = {}, row_bytes[8] = {};
  alignas(64) uint8_t bytes[8][16][64] = {};
};
inline thread_local Tiles tiles;

inline void must(bool condition) {
  if (!condition) abort();  // where the processor would raise #UD
}

// LDTILECFG
inline void load_config(const void* from) {
  const uint8_t* config = static_cast<const uint8_t*>(from);
  tiles = Tiles{};
  tiles.palette = config[0];
  must(config[0] == 1 && config[1] == 0);
  for (int tile = 0; tile < 8; tile++) {
    uint16_t row_bytes;
    memcpy(&row_bytes, config + 16 + 2 * tile, sizeof(row_bytes));
    tiles.row_bytes[tile] = row_bytes;
    tiles.rows[tile] = config[48 + tile];
    must(row_bytes <= 64 && tiles.rows[tile] <= 16);
  }
}
inline void release() { tiles = Tiles{}; }
inline void must_be_tile(int tile) { must(tiles.palette == 1 && tiles.rows[tile] > 0 && tiles.row_bytes[tile] > 0); }

inline void clear_tile(int tile) {
  must_be_tile(tile);
  memset(tiles.bytes[tile], 0, sizeof(tiles.bytes[tile]));
}
inline void load_tile(int tile, const void* from, int64_t stride) {
  clear_tile(tile);
  for (int row = 0; row < tiles.rows[tile]; row++)
    memcpy(tiles.bytes[tile][row], static_cast<const uint8_t*>(from) + row * stride, tiles.row_bytes[tile]);
}
inline void store_tile(int tile, void* to, int64_t stride) {
  must_be_tile(tile);
  for (int row = 0; row < tiles.rows[tile]; row++)
    memcpy(static_cast<uint8_t*>(to) + row * stride, tiles.bytes[tile][row], tiles.row_bytes[tile]);
}

// TDPBF16PS: sums of even and of odd numbers apart, over all pairs, then together, then into the tile.
inline void dot_tiles(int sums, int a, int b) {
  must_be_tile(sums), must_be_tile(a), must_be_tile(b);
  must(tiles.rows[a] == tiles.rows[sums] && tiles.row_bytes[b] == tiles.row_bytes[sums]);
  must(tiles.row_bytes[a] == 4 * tiles.rows[b] && sums != a && sums != b && a != b);
  for (int row = 0; row < tiles.rows[sums]; row++) {
    Floats even = zeros(), odd = zeros();
    for (int pair = 0; pair < tiles.rows[b]; pair++) {
      int32_t word;
      memcpy(&word, tiles.bytes[a][row] + 4 * pair, sizeof(word));
      const Words of_a = broadcast_word(word), of_b = load_words(tiles.bytes[b][pair]);
      even = step(even, numbers_0(of_a), numbers_0(of_b));
      odd = step(odd, numbers_1(of_a), numbers_1(of_b));
    }
    const Floats before = without_denormals(load(tiles.bytes[sums][row]));
    store(tiles.bytes[sums][row], without_denormals(add(before, without_denormals(add(even, odd)))));
  }
}

}  // namespace emulation

#define __m512bh emulated::Words

#undef _mm512_dpbf16_ps
#undef _mm512_cvtne2ps_pbh
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps

#define _mm512_dpbf16_ps emulation::dot
#define _mm512_cvtne2ps_pbh emulation::to_bf16
#define _tile_loadconfig emulation::load_config
#define _tile_release emulation::release
#define _tile_zero emulation::clear_tile
#define _tile_loadd emulation::load_tile
#define _tile_stored emulation::store_tile
#define _tile_dpbf16ps emulation::dot_tiles
