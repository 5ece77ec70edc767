// The whole pass of a Llama-like decoder over one batch.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "attention.h"
#include "linear.h"
#include "rowwise.h"

namespace headrace {
namespace {

constexpr int64_t kRowsPerChunk = 8;

// Calls work(row) for each row, a few rows a chunk.
template <class Work>
void for_rows(Crew& crew, int64_t rows, Work work) {
  crew.run((rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk) {
    const int64_t last = std::min(rows, (chunk + 1) * kRowsPerChunk);
    for (int64_t row = chunk * kRowsPerChunk; row < last; row++) work(row);
  });
}

class Pass {
 public:
  Pass(hr_crew* crew, const hr_decoder& model, const hr_batch& batch)
      : crew_(crew->crew), model_(model), batch_(batch), kv_(model.kv), scratch_(crew->scratch) {
    scratch_.reset();
    query_size_ = model.heads * kv_.key_size;
    const hr_layer& layer = model.layers[0];
    qkv_stride_ = padded(layer.qkv.out_size);
    attended_stride_ = model.heads * kv_.value_size;
    gate_up_stride_ = padded(layer.gate_up.out_size);
    gated_stride_ = gate_up_stride_ / 2;
    hidden_ = rows_of(model.hidden_size);
    normed_ = rows_of(model.hidden_size);
    qkv_ = rows_of(qkv_stride_);
    attended_ = rows_of(attended_stride_);
    gate_up_ = rows_of(gate_up_stride_);
    gated_ = rows_of(gated_stride_);
    plan_attention();
  }

  void run(float* logits) {
    embed();
    for (int64_t index = 0; index < model_.num_layers; index++) {
      const hr_layer& layer = model_.layers[index];
      norm(layer.attention_norm);
      run_linear(crew_, {&layer.qkv, normed_, model_.hidden_size, batch_.num_tokens, qkv_,
                          qkv_stride_});
      place_tokens(layer);
      attend(layer);
      add_to_hidden(layer.out, attended_, attended_stride_);
      norm(layer.mlp_norm);
      run_linear(crew_, {&layer.gate_up, normed_, model_.hidden_size, batch_.num_tokens, gate_up_,
                          gate_up_stride_, false, gated_, gated_stride_});
      add_to_hidden(layer.down, gated_, gated_stride_);
    }
    finish(logits);
  }

 private:
  float* rows_of(int64_t size) { return scratch_.floats(batch_.num_tokens * size); }

  void plan_attention() {
    for (int64_t index = 0; index < model_.num_layers; index++) {
      const int64_t window = model_.layers[index].window;
      if (plans_.count(window) == 0)
        plans_.emplace(window, AttentionPlan(batch_, model_.heads / kv_.kv_heads, kv_.kv_heads, window, crew_.size()));
    }
    int64_t most = 0;
    for (const auto& plan : plans_) most = std::max(most, plan.second.num_partials);
    partials_ = scratch_.floats(most * partial_floats(kv_));
  }

  void embed() {
    for_rows(crew_, batch_.num_tokens, [&](int64_t row) {
      const int64_t token = batch_.token_ids[row], size = model_.hidden_size;
      float* to = hidden_ + row * size;
      if (model_.embedding == nullptr) {
        unpack_row(model_.head, token, to);
      } else if (model_.embedding_format == HR_F32) {
        std::memcpy(to, static_cast<const float*>(model_.embedding) + token * size, size * sizeof(float));
      } else {
        const uint16_t* from = static_cast<const uint16_t*>(model_.embedding) + token * size;
        for (int64_t i = 0; i < size; i++) to[i] = float_of_bf16(from[i]);
      }
    });
  }

  void norm(const float* weight) {
    const int64_t size = model_.hidden_size;
    for_rows(crew_, batch_.num_tokens, [&](int64_t row) {
      rms_norm(hidden_ + row * size, weight, size, model_.norm_epsilon, normed_ + row * size);
    });
  }

  // Norms and rotates queries and keys in place and stores keys and values in their pages.
  void place_tokens(const hr_layer& layer) {
    for_rows(crew_, batch_.num_tokens, [&](int64_t row) {
      float* query = qkv_ + row * qkv_stride_;
      float* key = query + query_size_;
      const float* value = key + kv_.kv_heads * kv_.key_size;
      turn_heads(layer, query, model_.heads, layer.query_norm, row);
      turn_heads(layer, key, kv_.kv_heads, layer.key_norm, row);
      for (int64_t head = 0; head < kv_.kv_heads; head++)
        write_slot(kv_, layer.pages, batch_.slots[row], head, key + head * kv_.key_size, value + head * kv_.value_size);
    });
  }

  void turn_heads(const hr_layer& layer, float* heads, int64_t count, const float* weight, int64_t row) {
    const int64_t place = batch_.positions[row] * (model_.rotary_size / 2);
    for (int64_t i = 0; i < count; i++) {
      float* head = heads + i * kv_.key_size;
      if (weight != nullptr) rms_norm(head, weight, kv_.key_size, model_.norm_epsilon, head);
      if (layer.has_rope != 0) rotate(head, model_.cosines + place, model_.sines + place, model_.rotary_size);
    }
  }

  void attend(const hr_layer& layer) {
    const hr_attention attention{model_.heads, layer.window, model_.scaling, 0.0f, nullptr};
    run_attention(crew_, {kv_, attention, batch_, plans_.at(layer.window), qkv_, qkv_stride_, layer.pages, attended_,
                          attended_stride_, partials_});
  }

  void add_to_hidden(const hr_linear& linear, const float* x, int64_t stride) {
    run_linear(crew_, {&linear, x, stride, batch_.num_tokens, hidden_, model_.hidden_size, true});
  }

  void finish(float* logits) {
    const int64_t size = model_.hidden_size;
    // The norm's rows are free by now; there are never more logit rows than tokens.
    for (int64_t row = 0; row < batch_.num_logit_rows; row++)
      rms_norm(hidden_ + batch_.logit_rows[row] * size, model_.final_norm, size, model_.norm_epsilon,
               normed_ + row * size);
    run_linear(crew_, {&model_.head, normed_, size, batch_.num_logit_rows, logits, model_.vocab_size});
  }

  Crew& crew_;
  const hr_decoder& model_;
  const hr_batch& batch_;
  const KvGeometry kv_;
  Scratch& scratch_;
  std::map<int64_t, AttentionPlan> plans_;  // by window
  int64_t query_size_, qkv_stride_, attended_stride_, gate_up_stride_, gated_stride_;
  float *hidden_, *normed_, *qkv_, *attended_, *gate_up_, *gated_, *partials_;
};

}  // namespace
}  // namespace headrace

void hr_decode(hr_crew* crew, const hr_decoder* decoder, const hr_batch* batch, float* logits) {
  headrace::Pass(crew, *decoder, *batch).run(logits);
}

uint64_t hr_read_memory(hr_crew* crew, const void* memory, int64_t bytes) {
  using namespace headrace;
  constexpr int64_t kChunkBytes = 1 << 20;
  const float* floats = static_cast<const float*>(memory);
  std::atomic<uint64_t> found{0};
  crew->crew.run(bytes / kChunkBytes, [&](int64_t chunk) {
    const float* from = floats + chunk * (kChunkBytes / 4);
    Vec sums[8] = {zero(), zero(), zero(), zero(), zero(), zero(), zero(), zero()};
    for (int64_t i = 0; i < kChunkBytes / 4; i += 8 * kWidth) {
      for (int64_t line = 0; line < 8 * kWidth; line += 16) __builtin_prefetch(from + i + line + 512, 0, 3);
      repeat<8>([&](auto lane) { sums[lane] = max(sums[lane], load(from + i + lane * kWidth)); });
    }
    float most = 0.0f;
    repeat<8>([&](auto lane) { most = std::max(most, max_of(sums[lane])); });
    found.fetch_add(most > 0.0f ? 1 : 0);
  });
  return found.load();
}
