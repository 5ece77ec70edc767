#include "crew.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "headrace.h"
#if defined(HEADRACE_AMX)
#include "amx_tiles.h"
#endif

namespace headrace {
namespace {

// Longer than any gap between two stages of a batch, far shorter than the gap between two batches.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kPausesPerLook = 16;

constexpr int kStageShift = 40, kEndShift = 20;
constexpr uint64_t kCountMask = (uint64_t{1} << kEndShift) - 1;

uint64_t end_of(uint64_t claims) { return claims >> kEndShift & kCountMask; }
uint64_t next_of(uint64_t claims) { return claims & kCountMask; }

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// Whether `is_ready` came true within the time worth spinning.
template <class IsReady>
bool spin_until(IsReady is_ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; i++) {
      if (is_ready()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

Crew::Crew(int num_threads) : shares_(num_threads) {
  for (int i = 1; i < num_threads; i++) threads_.emplace_back([this, i] { work_until_stopped(i); });
}

Crew::~Crew() {
  is_stopping_.store(true);
  bell_.fetch_add(1);
  futex_wake_all(bell_);
  for (auto& thread : threads_) thread.join();
}

void Crew::run_published(int64_t num_chunks, Call call, void* context) {
  call_ = call;
  context_ = context;
  num_done_.store(0, std::memory_order_relaxed);
  stage_++;
  const uint64_t total = num_chunks, size = shares_.size();
  // Sequentially consistent against num_asleep_: either a thread going to sleep sees the stage, or we see the sleeper.
  for (uint64_t i = 0; i < size; i++)
    shares_[i].claims.store(stage_ << kStageShift | total * (i + 1) / size << kEndShift | total * i / size);
  if (num_asleep_.load() > 0) {
    bell_.fetch_add(1);
    futex_wake_all(bell_);
  }
  work_on_claims(0);
  wait_until_done(static_cast<uint32_t>(num_chunks));
}

bool Crew::has_claims() const {
  for (const Share& share : shares_) {
    const uint64_t claims = share.claims.load();
    if (next_of(claims) < end_of(claims)) return true;
  }
  return false;
}

void Crew::work_on_claims(size_t worker) {
  for (size_t i = 0; i < shares_.size(); i++) work_on_share((worker + i) % shares_.size());
}

void Crew::work_on_share(size_t share) {
  std::atomic<uint64_t>& word = shares_[share].claims;
  for (uint64_t claims = word.load(); next_of(claims) < end_of(claims); claims = word.load()) {
    // The stage may have changed since the look; the word returned tells which chunk of which stage was claimed, and
    // a claimed stage cannot end before this chunk is done.
    claims = word.fetch_add(1);
    if (next_of(claims) >= end_of(claims)) break;
    call_(context_, static_cast<int64_t>(next_of(claims)));
    num_done_.fetch_add(1);
    if (is_leader_asleep_.load() != 0) futex_wake_all(num_done_);
  }
}

void Crew::work_until_stopped(size_t worker) {
  while (wait_for_claims()) work_on_claims(worker);
}

// False when the crew is to end.
bool Crew::wait_for_claims() {
  auto is_called = [this] { return has_claims() || is_stopping_.load(); };
  while (!spin_until(is_called)) {
    num_asleep_.fetch_add(1);
    const uint32_t bell = bell_.load();
    if (!is_called()) futex_wait(bell_, bell);
    num_asleep_.fetch_sub(1);
  }
  return !is_stopping_.load();
}

void Crew::wait_until_done(uint32_t num_chunks) {
  auto is_done = [&] { return num_done_.load() == num_chunks; };
  if (spin_until(is_done)) return;
  is_leader_asleep_.store(1);
  for (uint32_t seen = num_done_.load(); seen != num_chunks; seen = num_done_.load()) futex_wait(num_done_, seen);
  is_leader_asleep_.store(0);
}

Scratch::~Scratch() {
  for (void* piece : pieces_) free(piece);
  free(memory_);
}

float* Scratch::floats(size_t count) {
  const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
  wanted_ += bytes;
  if (used_ + bytes <= capacity_) {
    used_ += bytes;
    return reinterpret_cast<float*>(memory_ + used_ - bytes);
  }
  pieces_.push_back(aligned_alloc(64, bytes == 0 ? 64 : bytes));
  return static_cast<float*>(pieces_.back());
}

void Scratch::reset() {
  for (void* piece : pieces_) free(piece);
  pieces_.clear();
  if (wanted_ > capacity_) {
    free(memory_);
    capacity_ = wanted_;
    memory_ = static_cast<char*>(aligned_alloc(64, capacity_));
  }
  used_ = wanted_ = 0;
}

}  // namespace headrace

hr_crew* hr_crew_create(int64_t num_threads) {
#if defined(HEADRACE_AMX)
  if (!headrace::may_use_tiles()) return nullptr;
#endif
  return new hr_crew(static_cast<int>(num_threads));
}
void hr_crew_destroy(hr_crew* crew) { delete crew; }
