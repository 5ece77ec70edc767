// A crew of threads that works on the chunks of one stage after another.
//
// Each thread has a share of neighbouring chunks, so that what it fetches ahead is what it needs next; who is through
// with its own takes from the others', so that a thread that the system keeps waiting costs one chunk and not its whole
// share. Who computes a chunk never changes what comes out.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <thread>
#include <vector>

namespace headrace {

class Crew {
 public:
  explicit Crew(int num_threads);  // the calling thread is one of them
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(chunk) for each of 0..num_chunks once, on any thread, and returns when all are done.
  template <class Work>
  void run(int64_t num_chunks, Work&& work) {
    if (num_chunks <= 1 || threads_.empty()) {
      for (int64_t chunk = 0; chunk < num_chunks; chunk++) work(chunk);
      return;
    }
    auto call = [](void* context, int64_t chunk) { (*static_cast<Work*>(context))(chunk); };
    run_published(num_chunks, call, &work);
  }

 private:
  using Call = void (*)(void*, int64_t);

  void run_published(int64_t num_chunks, Call call, void* context);
  void work_until_stopped(size_t worker);
  void work_on_claims(size_t worker);
  void work_on_share(size_t share);
  bool has_claims() const;
  bool wait_for_claims();
  void wait_until_done(uint32_t num_chunks);

  // Stage number, end of the share and its next chunk in one word, so that a claim says which stage it belongs to.
  struct alignas(64) Share {
    std::atomic<uint64_t> claims{0};
  };

  std::vector<Share> shares_;  // one for each thread, the caller's first
  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint32_t> num_done_{0};
  std::atomic<uint32_t> is_leader_asleep_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};
  std::atomic<uint32_t> num_asleep_{0};
  std::atomic<bool> is_stopping_{false};
  uint64_t stage_ = 0;
  Call call_ = nullptr;
  void* context_ = nullptr;
};

// Memory that keeps its size between batches, so that no batch pays for page faults twice.
class Scratch {
 public:
  ~Scratch();
  // Room for `count` floats, aligned to 64 bytes, valid until the next reset.
  float* floats(size_t count);
  // Forgets what was handed out; makes one piece large enough for all that was asked for since the last reset.
  void reset();

 private:
  std::vector<void*> pieces_;
  char* memory_ = nullptr;
  size_t capacity_ = 0;
  size_t used_ = 0;
  size_t wanted_ = 0;
};

}  // namespace headrace

struct hr_crew {
  explicit hr_crew(int num_threads) : crew(num_threads) {}
  headrace::Crew crew;
  headrace::Scratch scratch;
};
