// Counts what a call takes by making it without its work: see DryRun.
#ifndef HEED_SRC_PARALLEL_DRY_RUN_H_
#define HEED_SRC_PARALLEL_DRY_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "heed/thread_pool.h"

namespace heed {

// While one lives, calls of its thread compute nothing: AlignedFloats have no memory, Attention()
// and matrix products add their FLOPs, and the pool runs no task. What is computed beside the pool
// must look whether there is one, and may not read or write AlignedFloats.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  // nullptr: this is not a dry run.
  static DryRun* Current();
  // Bytes that are allocated (or given back: negative), if this is a dry run.
  static void Count(int64_t bytes);

  void AddFlops(double flops) { flops_ += flops; }
  void AddBytes(int64_t bytes);
  // The body so many times, by doing it once.
  template <class Body>
  void Repeat(int64_t times, Body&& body) {
    const double before = flops_;
    body();
    flops_ += static_cast<double>(times - 1) * (flops_ - before);
  }

  double flops() const { return flops_; }
  int64_t most_bytes() const { return most_bytes_; }  // at one time
  bool real_memory() const { return real_memory_; }

 private:
  template <class Make>
  friend auto InRealMemory(const Make& make);

  DryRun* outer_;
  double flops_ = 0;
  int64_t bytes_ = 0, most_bytes_ = 0;
  bool real_memory_ = false;
};

// make(), whose AlignedFloats have memory even in a dry run: for what is computed while it is made.
// Does not throw in between but std::bad_alloc and Error, which end the dry run.
template <class Make>
auto InRealMemory(const Make& make) {
  DryRun* const dry = DryRun::Current();
  if (dry == nullptr) return make();
  dry->real_memory_ = true;
  auto made = make();
  dry->real_memory_ = false;
  return made;
}

// Has threads, runs nothing.
class IdlePool final : public ThreadPool {
 public:
  explicit IdlePool(int threads) : threads_(threads) {}
  int NumThreads() const override { return threads_; }
  void Run(int64_t, TaskRef) override {}

 private:
  int threads_;
};

// Counts in dry runs, where it has real memory all the same.
template <class T>
struct CountingAllocator {
  using value_type = T;
  CountingAllocator() = default;
  template <class U>
  CountingAllocator(const CountingAllocator<U>&) {}
  T* allocate(size_t count) {
    T* memory = std::allocator<T>().allocate(count);
    DryRun::Count(static_cast<int64_t>(count * sizeof(T)));
    return memory;
  }
  void deallocate(T* memory, size_t count) {
    DryRun::Count(-static_cast<int64_t>(count * sizeof(T)));
    std::allocator<T>().deallocate(memory, count);
  }
  template <class U>
  bool operator==(const CountingAllocator<U>&) const {
    return true;
  }
};

// Scratch memory that grows with the problem and is not of floats.
template <class T>
using ScratchVector = std::vector<T, CountingAllocator<T>>;

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_DRY_RUN_H_
