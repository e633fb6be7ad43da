// Threads: the pool that attention runs on, and how to bring your own.
#ifndef HEED_THREAD_POOL_H_
#define HEED_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "heed/standard.h"

namespace heed {

// A reference to a callable `void(int64_t task, int worker)`. Never owns it: valid during one call.
class TaskRef {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
      TaskRef(F&& task)  // NOLINT(google-explicit-constructor): made to be passed a lambda
      : object_(const_cast<void*>(static_cast<const void*>(&task))),
        call_([](void* object, int64_t index, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(index, worker);
        }) {}
  void operator()(int64_t index, int worker) const { call_(object_, index, worker); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

// Runs tasks on several threads. Replace it by deriving: heed calls only these two functions.
// Results never depend on the number of threads or on which worker runs which task.
class ThreadPool {
 public:
  virtual ~ThreadPool() = default;

  // How many workers `Run` may use, the calling thread included; at least 1.
  virtual int NumThreads() const = 0;

  // Calls `task(index, worker)` once for every index in [0, count), 0 <= worker < NumThreads(), and
  // returns when all are done. Lower indices start first (callers put heavy tasks there). Calls
  // with the same worker never overlap. Tasks do not throw and do not
  // call Run of the same pool. Several threads may call Run at once.
  virtual void Run(int64_t count, TaskRef task) = 0;
};

// Makes a pool of `num_threads` >= 1 workers, the calling thread among them. Throws Error(kRange)
// for a number below 1, Error(kMemory) if threads cannot be started. A fork()ed child runs alone.
std::unique_ptr<ThreadPool> MakeThreadPool(int num_threads);

// Used when none is given: a worker per hardware thread the process may use, from first use on.
ThreadPool& DefaultThreadPool();

}  // namespace heed

#endif  // HEED_THREAD_POOL_H_
