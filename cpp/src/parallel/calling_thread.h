// A pool for work that is over before a thread would be awake.
#ifndef HEED_SRC_PARALLEL_CALLING_THREAD_H_
#define HEED_SRC_PARALLEL_CALLING_THREAD_H_

#include "heed/thread_pool.h"

namespace heed {

// Runs everything on the thread that calls. Where no pool is given, calls of Attention() that would
// be over before a thread is awake take this one.
ThreadPool& CallingThread();

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_CALLING_THREAD_H_
