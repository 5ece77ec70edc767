// The C interface of the CPU kernels. Every tensor is a plain pointer; sizes count elements unless named bytes.
//
// All functions are called by one thread at a time for a given crew. Rows never influence each other: whatever stands
// beside a row in its batch, its result has the same bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HR_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum hr_format { HR_F32 = 0, HR_BF16 = 1, HR_INT8 = 2, HR_INT4 = 3 };

// A crew of threads, the calling one included, with scratch memory that grows to what the largest batch needs.
typedef struct hr_crew hr_crew;

// A packed linear layer: y = x W^T + bias. `panels` is laid out by hr_pack_linear and aligned to 64 bytes.
typedef struct {
  int64_t format;  // hr_format
  int64_t in_size;
  int64_t out_size;
  const uint8_t* panels;
  const float* bias;  // [out_size] or null
} hr_linear;

// One layer's KV pages, in the layout that hr_kv_layout describes.
typedef struct {
  uint8_t* keys;
  uint8_t* values;
} hr_pages;

// How a KV page is laid out: HR_F32 or HR_BF16, and the sizes of a head's key and value.
typedef struct {
  int64_t format;
  int64_t page_size;
  int64_t kv_heads;
  int64_t key_size;
  int64_t value_size;
} hr_kv_layout;

// The batch as worker/engine/ragged_batch.py defines it.
typedef struct {
  int64_t num_tokens;
  int64_t num_sequences;
  int64_t num_logit_rows;
  int64_t pages_per_sequence;
  const int64_t* token_ids;      // [num_tokens]
  const int64_t* positions;      // [num_tokens]
  const int64_t* slots;          // [num_tokens]
  const int64_t* logit_rows;     // [num_logit_rows]
  const int64_t* page_table;     // [num_sequences, pages_per_sequence]
  const int64_t* query_offsets;  // [num_sequences + 1]
  const int64_t* kv_lengths;     // [num_sequences]
} hr_batch;

typedef struct {
  int64_t heads;
  int64_t window;      // a token sees itself and the window - 1 before it; 0: all
  float scaling;       // of the scores
  float softcap;       // scores are squeezed into -softcap..softcap by tanh; 0: not at all
  const float* sinks;  // [heads] a score per head that takes weight but has no value; or null
} hr_attention;

typedef struct {
  hr_linear qkv;         // rows of queries, keys and values, one below the other
  hr_linear out;
  hr_linear gate_up;     // panels of gate and up rows in turn, see hr_panel_width
  hr_linear down;
  const float* attention_norm;  // [hidden]
  const float* mlp_norm;        // [hidden]
  const float* query_norm;      // [key_size] or null
  const float* key_norm;        // [key_size] or null
  int64_t window;
  int64_t has_rope;
  hr_pages pages;
} hr_layer;

typedef struct {
  int64_t num_layers;
  int64_t hidden_size;
  int64_t heads;
  int64_t rotary_size;  // how many of a head's first elements are rotated
  int64_t vocab_size;
  float norm_epsilon;
  float scaling;
  hr_kv_layout kv;
  const hr_layer* layers;
  const float* final_norm;  // [hidden]
  hr_linear head;
  const void* embedding;     // [vocab, hidden] rows, or null: the head's own weights
  int64_t embedding_format;  // HR_F32 or HR_BF16
  const float* cosines;      // [positions, rotary_size / 2]
  const float* sines;        // [positions, rotary_size / 2]
} hr_decoder;

HR_API int64_t hr_panel_width(void);  // output columns a panel holds, and KV slots a cell holds

HR_API hr_crew* hr_crew_create(int64_t num_threads);
HR_API void hr_crew_destroy(hr_crew* crew);

HR_API int64_t hr_linear_bytes(int64_t format, int64_t in_size, int64_t out_size);
// Packs `source`, [out_size, in_size] in row-major HR_F32 or HR_BF16, into `panels` in `format`, quantizing as needed.
HR_API void hr_pack_linear(hr_crew* crew, int64_t format, const void* source, int64_t source_format, int64_t in_size,
                    int64_t out_size, uint8_t* panels);
// y [rows, out_size] from x [rows, in_size]; strides count elements between rows.
HR_API void hr_linear_forward(hr_crew* crew, const hr_linear* linear, const float* x, int64_t x_stride, int64_t rows,
                       float* y, int64_t y_stride);
// Rows `indices` [rows] of the weight matrix as floats: out [rows, in_size].
HR_API void hr_unpack_rows(hr_crew* crew, const hr_linear* linear, const int64_t* indices, int64_t rows, float* out);

// y = x / rms(x) * weight for each of x [rows, size].
HR_API void hr_rms_norm(hr_crew* crew, const float* x, int64_t rows, int64_t size, const float* weight, float epsilon,
                        float* y);

HR_API int64_t hr_page_bytes_of_keys(const hr_kv_layout* layout);
HR_API int64_t hr_page_bytes_of_values(const hr_kv_layout* layout);
// Stores `keys` [num_tokens, kv_heads, key_size] and `values` [num_tokens, kv_heads, value_size] at the batch's slots.
HR_API void hr_write_kv(hr_crew* crew, const hr_kv_layout* layout, const hr_batch* batch, const float* keys,
                 const float* values, hr_pages pages);
// out [num_tokens, heads, value_size] from queries [num_tokens, heads, key_size] and the pages.
HR_API void hr_attend(hr_crew* crew, const hr_kv_layout* layout, const hr_attention* attention, const hr_batch* batch,
               const float* queries, hr_pages pages, float* out);

// The whole model: writes the batch's keys and values and gives the logits [num_logit_rows, vocab_size].
HR_API void hr_decode(hr_crew* crew, const hr_decoder* decoder, const hr_batch* batch, float* logits);

enum hr_draw_status { HR_DRAWN = 0, HR_NOT_FINITE = 1, HR_NOTHING_LEFT = 2, HR_NO_SUCH_TOKEN = 3 };

// How one row's token is chosen. Penalties first, then biases, bans, the mask; then temperature, top_k, top_p, min_p.
typedef struct {
  double point;               // in [0, 1): where in the kept probabilities, summed up in vocabulary order, the draw falls
  double top_p;               // 1: all
  double frequency_penalty;   // of a token seen, times its count
  double presence_penalty;    // of a token with a count
  float temperature;          // 0: the likeliest token
  float min_p;                // share of the largest probability; 0: all
  float repetition_penalty;   // of every token seen
  int64_t top_k;              // 0: all
  int64_t num_seen;
  const int64_t* seen_ids;    // distinct
  const float* seen_counts;   // how often each was generated
  int64_t num_biased;
  const int64_t* biased_ids;
  const float* biases;
  int64_t num_banned;
  const int64_t* banned_ids;  // some may not exist
  const uint32_t* allowed;    // a bit for each token, the first in the lowest bit of the first word; null: all
  int64_t num_top;            // likeliest tokens to tell of, before any change; -1: no logprobs at all
  int64_t* top_ids;           // [num_top] out, the likeliest first; -1 where the model allows no more
  double* top_logprobs;       // [num_top] out
} hr_sampling;

typedef struct {
  int64_t token_id;  // valid when drawn
  int64_t status;    // hr_draw_status
  double logprob;    // the model's own, before any change
} hr_draw;

// A draw for each row of logits [num_rows, vocab_size], which are left as they are.
HR_API void hr_sample(hr_crew* crew, const float* logits, int64_t vocab_size, const hr_sampling* samplings,
                      int64_t num_rows, hr_draw* draws);

// Reads `bytes` of memory with all threads, for measuring what the machine can; the result only keeps the reads alive.
HR_API uint64_t hr_read_memory(hr_crew* crew, const void* memory, int64_t bytes);

#ifdef __cplusplus
}
#endif
