// A pool that lets a network move on between tasks.
#ifndef HEED_SRC_DISTRIBUTED_PROGRESSING_POOL_H_
#define HEED_SRC_DISTRIBUTED_PROGRESSING_POOL_H_

#include <exception>
#include <thread>

#include "heed/distributed.h"
#include "heed/thread_pool.h"

namespace heed::distributed {

// Runs tasks on another pool, and calls Progress() after those of the thread that made this one:
// networks that move nothing by themselves would else wait until the computation is over.
class ProgressingPool final : public ThreadPool {
 public:
  ProgressingPool(ThreadPool* pool, Communicator& communicator)
      : pool_(pool != nullptr ? *pool : DefaultThreadPool()),
        communicator_(communicator),
        caller_(std::this_thread::get_id()) {}

  int NumThreads() const override { return pool_.NumThreads(); }

  void Run(int64_t count, TaskRef task) override {
    pool_.Run(count, [&](int64_t index, int worker) {
      task(index, worker);
      if (std::this_thread::get_id() == caller_) Progress();
    });
  }

  // Tasks do not throw: what Progress() threw is thrown here.
  void Rethrow() {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void Progress() {
    if (failure_ != nullptr) return;
    try {
      communicator_.Progress();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  ThreadPool& pool_;
  Communicator& communicator_;
  const std::thread::id caller_;
  std::exception_ptr failure_;  // of the calling thread alone
};

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_PROGRESSING_POOL_H_
