// One token for each row of logits, under the row's own penalties, filters and point; see hr_sample.
#include <math.h>

#include <algorithm>
#include <atomic>

#include "crew.h"
#include "headrace.h"
#include "threshold.h"
#include "vector.h"

namespace headrace {
namespace {

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLeastExponent = -87.0f;  // below it exp gives what is not a normal float any more: no weight
constexpr int kWordBits = 32;

// What one thread works in, a row after another. `weights.at` holds the row's logits before they become weights.
class RowSampler {
 public:
  RowSampler(float* memory, int64_t vocab_size) : vocab_size_(vocab_size) {
    const int64_t num_chunks = chunks_of(vocab_size);
    weights_.num_chunks = num_chunks;
    weights_.at = memory;
    weights_.candidates = memory + num_chunks * kChunk;
    weights_.largest = memory + 2 * num_chunks * kChunk;
    weights_.sums = reinterpret_cast<double*>(memory + (2 * kChunk + 2) * num_chunks);
  }

  static int64_t floats_needed(int64_t vocab_size) { return (2 * kChunk + 4) * (chunks_of(vocab_size) + 15) / 16 * 16; }

  hr_draw sample(const float* logits, const hr_sampling& sampling) {
    const bool is_told = sampling.num_top >= 0;
    std::copy(logits, logits + vocab_size_, weights_.at);
    std::fill(weights_.at + vocab_size_, weights_.at + weights_.num_chunks * kChunk, -kInfinity);
    const double log_total = is_told ? tell_likeliest(sampling) : 0.0;
    if (!change(sampling)) return {0, HR_NO_SUCH_TOKEN, 0.0};
    const float most = largest();
    if (!(most < kInfinity)) return {0, HR_NOT_FINITE, 0.0};
    if (most == -kInfinity) return {0, HR_NOTHING_LEFT, 0.0};
    const int64_t token_id = sampling.temperature > 0.0f ? draw(sampling, most) : first_of(most);
    return {token_id, HR_DRAWN, is_told ? logits[token_id] - log_total : 0.0};
  }

 private:
  // The row's largest logit; NaN when one is NaN.
  float largest() const {
    const Vec least = broadcast(-kInfinity), one = broadcast(1.0f);
    Vec most[2] = {least, least}, are_numbers = one;
    for (int64_t i = 0; i < weights_.num_chunks * kChunk; i += 2 * kWidth) {
      const Vec a = load(weights_.at + i), b = load(weights_.at + i + kWidth);
      most[0] = max(most[0], a);
      most[1] = max(most[1], b);
      are_numbers = min(are_numbers, min(where_at_least(a, least, one), where_at_least(b, least, one)));
    }
    return max_of(sub(one, are_numbers)) == 0.0f ? max_of(max(most[0], most[1])) : __builtin_nanf("");
  }

  int64_t first_of(float logit) const { return std::find(weights_.at, weights_.at + vocab_size_, logit) - weights_.at; }

  // Penalties, biases, bans, mask: in this order. False when a token that does not exist is to be changed.
  bool change(const hr_sampling& s) {
    for (int64_t i = 0; i < s.num_seen; i++) {
      if (!exists(s.seen_ids[i])) return false;
      float& logit = weights_.at[s.seen_ids[i]];
      const double count = s.seen_counts[i];
      const double taken = s.frequency_penalty * count + (count > 0.0 ? s.presence_penalty : 0.0);
      logit = logit > 0.0f ? logit / s.repetition_penalty : logit * s.repetition_penalty;
      logit -= static_cast<float>(taken);
    }
    for (int64_t i = 0; i < s.num_biased; i++) {
      if (!exists(s.biased_ids[i])) return false;
      weights_.at[s.biased_ids[i]] += s.biases[i];
    }
    for (int64_t i = 0; i < s.num_banned; i++) {
      if (exists(s.banned_ids[i])) weights_.at[s.banned_ids[i]] = -kInfinity;
    }
    if (s.allowed != nullptr) apply_mask(s.allowed);
    return true;
  }

  bool exists(int64_t token_id) const { return 0 <= token_id && token_id < vocab_size_; }

  void apply_mask(const uint32_t* allowed) {
    for (int64_t first = 0; first < vocab_size_; first += kWordBits) {
      const uint32_t word = allowed[first / kWordBits];
      if (word == ~uint32_t{0}) continue;
      for (int bit = 0; bit < kWordBits; bit++) {
        if ((word >> bit & 1) == 0) weights_.at[first + bit] = -kInfinity;
      }
    }
  }

  int64_t draw(const hr_sampling& s, float most) {
    const double total = weigh(most, 1.0f / s.temperature);
    const float cut = cut_of(s, total);
    return cut > 0.0f ? place_at(s.point, keep(cut), cut) : place_at(s.point, total, float_of(1));
  }

  // Turns the logits into weights, and gives their sum.
  double weigh(float most, float factor) {
    const Vec peak = broadcast(most), factors = broadcast(factor), least = broadcast(kLeastExponent);
    double total = 0.0;
    for (int64_t c = 0; c < weights_.num_chunks; c++) {
      Vec sum = zero(), largest = zero();
      for (float* at = weights_.at + c * kChunk; at < weights_.at + (c + 1) * kChunk; at += kWidth) {
        const Vec x = mul(sub(load(at), peak), factors);
        const Vec weight = where_at_least(x, least, exp(x));
        store(at, weight);
        sum = add(sum, weight);
        largest = max(largest, weight);
      }
      weights_.sums[c] = sum_of(sum);
      weights_.largest[c] = max_of(largest);
      total += weights_.sums[c];
    }
    return total;
  }

  // The least weight that may be drawn: top_k, then top_p of what that keeps, then min_p.
  float cut_of(const hr_sampling& s, double total) const {
    float cut = s.min_p;
    if (0 < s.top_k && s.top_k < vocab_size_) {
      const float kth = largest_cut<By::kNumber>(weights_, 0.0f, static_cast<double>(s.top_k));
      if (kth > 0.0f) total = reach<By::kSum>(weights_, kth);
      cut = std::max(cut, kth);
    }
    return s.top_p < 1.0 ? largest_cut<By::kSum>(weights_, cut, s.top_p * total) : cut;
  }

  // Sums of what `cut` keeps, in place of those of all.
  double keep(float cut) {
    double total = 0.0;
    for (int64_t c = 0; c < weights_.num_chunks; c++) {
      weights_.sums[c] = weights_.largest[c] >= cut ? reach<By::kSum>(weights_.at + c * kChunk, kChunk, cut) : 0.0;
      total += weights_.sums[c];
    }
    return total;
  }

  // Where the running sum of the kept weights passes `point` of their `total`.
  int64_t place_at(double point, double total, float cut) const {
    const double target = point * total;
    double before = 0.0;
    int64_t chunk = 0;
    while (chunk < weights_.num_chunks && before + weights_.sums[chunk] <= target) before += weights_.sums[chunk++];
    // Rounding may carry the point to the end: the last kept weight is meant then, in its chunk and in the row.
    if (chunk == weights_.num_chunks) {
      while (weights_.sums[--chunk] == 0.0) {}
    }
    int64_t place = 0;
    for (int64_t i = chunk * kChunk; i < (chunk + 1) * kChunk; i++) {
      if (weights_.at[i] < cut) continue;
      place = i;
      before += weights_.at[i];
      if (before > target) break;
    }
    return place;
  }

  // Writes the row's likeliest tokens, the best first and among equals the lower id, and returns what is to be taken
  // off a logit to make it a log-probability.
  double tell_likeliest(const hr_sampling& s) const {
    const float most = largest();
    const double log_total = most + log(sum_of_exponentials(most));
    std::fill(s.top_ids, s.top_ids + s.num_top, -1);
    std::fill(s.top_logprobs, s.top_logprobs + s.num_top, -static_cast<double>(kInfinity));
    for (int64_t i = 0; s.num_top > 0 && i < weights_.num_chunks * kChunk; i += kWidth) {
      if (max_of(load(weights_.at + i)) <= s.top_logprobs[s.num_top - 1]) continue;
      for (int64_t id = i; id < std::min(i + kWidth, vocab_size_); id++) insert(s, id, weights_.at[id]);
    }
    for (int64_t i = 0; i < s.num_top; i++) s.top_logprobs[i] -= log_total;
    return log_total;
  }

  static void insert(const hr_sampling& s, int64_t id, double logit) {
    int64_t place = s.num_top;
    for (; place > 0 && logit > s.top_logprobs[place - 1]; place--) {
      if (place == s.num_top) continue;
      s.top_ids[place] = s.top_ids[place - 1];
      s.top_logprobs[place] = s.top_logprobs[place - 1];
    }
    if (place == s.num_top) return;
    s.top_ids[place] = id;
    s.top_logprobs[place] = logit;
  }

  double sum_of_exponentials(float most) const {
    const Vec peak = broadcast(most), least = broadcast(kLeastExponent);
    double total = 0.0;
    for (int64_t c = 0; c < weights_.num_chunks; c++) {
      Vec sum = zero();
      for (int j = 0; j < kChunk; j += kWidth) {
        const Vec x = sub(load(weights_.at + c * kChunk + j), peak);
        sum = add(sum, where_at_least(x, least, exp(x)));
      }
      total += sum_of(sum);
    }
    return total;
  }

  int64_t vocab_size_;
  Weights weights_;
};

}  // namespace
}  // namespace headrace

void hr_sample(hr_crew* crew, const float* logits, int64_t vocab_size, const hr_sampling* samplings, int64_t num_rows,
               hr_draw* draws) {
  using headrace::RowSampler;
  const int64_t num_samplers = std::min<int64_t>(num_rows, crew->crew.size());
  const int64_t floats_each = RowSampler::floats_needed(vocab_size);
  crew->scratch.reset();
  float* memory = crew->scratch.floats(num_samplers * floats_each);
  std::atomic<int64_t> next{0};  // a chunk of the crew's is a sampler: it takes row after row, in memory of its own
  crew->crew.run(num_samplers, [&](int64_t sampler) {
    RowSampler one(memory + sampler * floats_each, vocab_size);
    for (int64_t row = next++; row < num_rows; row = next++) draws[row] = one.sample(logits + row * vocab_size, samplings[row]);
  });
}
