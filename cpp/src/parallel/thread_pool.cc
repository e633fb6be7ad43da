#include "heed/thread_pool.h"

#include <algorithm>
#include <string>

#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/calling_thread.h"

#if !defined(__EMSCRIPTEN__) || defined(__EMSCRIPTEN_PTHREADS__)
#define HEED_HAS_THREADS 1
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>
#else
#define HEED_HAS_THREADS 0
#endif

#if HEED_HAS_THREADS && !defined(_WIN32) && !defined(__EMSCRIPTEN__)
#define HEED_HAS_FORK 1
#include <pthread.h>
#else
#define HEED_HAS_FORK 0
#endif

#if HEED_HAS_THREADS && defined(__linux__)
#define HEED_HAS_AFFINITY 1
#include <sched.h>
#endif

namespace heed {
namespace {

// Everything on the calling thread: single-thread builds and pools of one.
class InlinePool final : public ThreadPool {
 public:
  int NumThreads() const override { return 1; }
  void Run(int64_t count, TaskRef task) override {
    for (int64_t i = 0; i < count; ++i) task(i, 0);
  }
};

#if HEED_HAS_THREADS

// A short wait that leaves the core's other thread its turn.
void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield does nothing on most processors
#endif
}

// One job at a time: workers sleep until `generation_` changes, then draw indices from `next_`.
// A second caller waits for its turn. Waking through a condition variable takes 10 us and more, and
// the next step of a call or the next call often comes sooner, so workers look for work a little
// longer before they sleep.
class WorkerPool final : public ThreadPool {
 public:
  explicit WorkerPool(int num_threads) {
    try {
      threads_.reserve(static_cast<size_t>(num_threads - 1));
      for (int worker = 1; worker < num_threads; ++worker) {
        threads_.emplace_back([this, worker] { WorkerLoop(worker); });
      }
    } catch (const std::exception&) {  // std::system_error, or no memory for their bookkeeping
      Stop();
      Fail(ErrorCode::kMemory, "num_threads = {}: the system would not start that many threads",
           {num_threads});
    }
  }

  ~WorkerPool() override { Stop(); }

  int NumThreads() const override { return static_cast<int>(threads_.size()) + 1; }

  void Run(int64_t count, TaskRef task) override {
    if (count <= 1) {
      if (count == 1) task(0, 0);
      return;
    }
    const std::lock_guard<std::mutex> one_job(job_mutex_);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      task_ = &task;
      count_ = count;
      next_.store(0, std::memory_order_relaxed);
      busy_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    Drain(task, count, 0);
    WaitForWorkers();
  }

 private:
  static constexpr int kSpins = 2000;  // 30 to 100 us with pauses

  void Drain(TaskRef task, int64_t count, int worker) {
    for (int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next_.fetch_add(1, std::memory_order_relaxed)) {
      task(i, worker);
    }
  }

  void WaitForWorkers() {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (busy_.load(std::memory_order_acquire) == 0) return;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_.load(std::memory_order_acquire) == 0; });
  }

  // Returns false when the pool is closing.
  bool WaitForJob(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation_.load(std::memory_order_acquire) != seen) break;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return closing_ || generation_.load() != seen; });
    return !closing_;
  }

  void WorkerLoop(int worker) {
    uint64_t seen = 0;
    while (WaitForJob(seen)) {
      ++seen;
      Drain(*task_, count_, worker);
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard<std::mutex> lock(mutex_);
        done_.notify_one();
      }
    }
  }

  void Stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::vector<std::thread> threads_;
  std::mutex job_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0};
  const TaskRef* task_ = nullptr;
  int64_t count_ = 0;
  bool closing_ = false;
};

#if HEED_HAS_FORK

// How many forks lie between this process and the first.
std::atomic<int64_t> forks{0};

// Threads do not survive a fork, and locks are copied as they are, held or not. In a child the
// calling thread does all, and nothing of the parent's pool is touched again, not even to free it.
class ForkedPool final : public ThreadPool {
 public:
  explicit ForkedPool(int num_threads) : made_after_(CountForks()) {
    pool_ = std::make_unique<WorkerPool>(num_threads);
  }

  ~ForkedPool() override {
    if (IsInChild()) static_cast<void>(pool_.release());
  }

  int NumThreads() const override { return pool_->NumThreads(); }

  void Run(int64_t count, TaskRef task) override {
    if (IsInChild()) return CallingThread().Run(count, task);
    pool_->Run(count, task);
  }

 private:
  static int64_t CountForks() {
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    return forks.load(std::memory_order_relaxed);
  }
  bool IsInChild() const { return forks.load(std::memory_order_relaxed) != made_after_; }

  const int64_t made_after_;
  std::unique_ptr<WorkerPool> pool_;
};

using ThreadsPool = ForkedPool;
#else
using ThreadsPool = WorkerPool;
#endif  // HEED_HAS_FORK

// The pool of all who bring none. Its threads end with the static objects of the program, and it
// stays: whoever calls from a destructor after that does the work himself.
class SharedPool final : public ThreadPool {
 public:
  int NumThreads() const override { return pool_->NumThreads(); }
  void Run(int64_t count, TaskRef task) override { pool_->Run(count, task); }
  void Close() { pool_ = std::make_unique<InlinePool>(); }

 private:
  // Those that this process may run on: taskset, cpusets and mpirun's --bind-to leave some.
  static int HardwareThreads() {
#ifdef HEED_HAS_AFFINITY
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
      return std::max(1, CPU_COUNT(&allowed));
    }
#endif
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  std::unique_ptr<ThreadPool> pool_ = MakeThreadPool(HardwareThreads());
};
#endif  // HEED_HAS_THREADS

}  // namespace

std::unique_ptr<ThreadPool> MakeThreadPool(int num_threads) {
  if (num_threads < 1) {
    Fail(ErrorCode::kRange, "num_threads = {}; it must be at least 1", {num_threads});
  }
  return WithMemoryErrors("a pool of threads", [&]() -> std::unique_ptr<ThreadPool> {
#if HEED_HAS_THREADS
    if (num_threads > 1) return std::make_unique<ThreadsPool>(num_threads);
#endif
    return std::make_unique<InlinePool>();
  });
}

ThreadPool& CallingThread() {
  // Never freed: destructors of static objects may call.
  static InlinePool& pool = *WithMemoryErrors("a pool of threads", [] { return new InlinePool; });
  return pool;
}

ThreadPool& DefaultThreadPool() {
#if HEED_HAS_THREADS && !defined(__EMSCRIPTEN__)
  static SharedPool& pool = *WithMemoryErrors("a pool of threads", [] { return new SharedPool; });
  static const struct Closing {
    ~Closing() { pool.Close(); }
  } closing;
  return pool;
#else
  // In WebAssembly the number of workers is the page's decision: load() makes the pool it wants.
  return CallingThread();
#endif
}

}  // namespace heed
