// What the bindings of one instance share.
#ifndef HEED_BINDINGS_INSTANCE_H_
#define HEED_BINDINGS_INSTANCE_H_

#include <memory>

#include "heed/thread_pool.h"

namespace heed::wire {

// The pool of this instance. JavaScript calls from one thread only.
inline std::unique_ptr<ThreadPool>& InstancePool() {
  static std::unique_ptr<ThreadPool> pool;
  return pool;
}

}  // namespace heed::wire

#endif  // HEED_BINDINGS_INSTANCE_H_
