// Calls by name that are read, validated and planned once, and then run.
#ifndef HEED_CALL_H_
#define HEED_CALL_H_

#include <memory>
#include <span>
#include <vector>

#include "heed/request.h"
#include "heed/thread_pool.h"

namespace heed {

// PlanOutputs() and Run() of a request in one object: whoever needs both pays for one reading.
//
//   const heed::Call call(request);
//   ... memory for call.outputs() ...
//   call.Run(outputs);
class Call {
 public:
  // Validates the request, which must outlive the call, and whose tensors must stay where they are.
  // What is stored in two bytes is converted here where the mechanism reads floats. Throws Error,
  // as PlanOutputs() does.
  explicit Call(const Request& request);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // What Run() writes, as PlanOutputs() lists it.
  const std::vector<OutputSpec>& outputs() const;

  // As heed::Run() of the request. May be called again. Throws Error.
  void Run(std::span<const NamedTensor> outputs, ThreadPool* pool = nullptr) const;

 private:
  friend void Run(const Request& request, std::span<const NamedTensor> outputs, ThreadPool* pool);

  class Read;
  std::unique_ptr<const Read> read_;
};

}  // namespace heed

#endif  // HEED_CALL_H_
