// Ranks as threads of one process, with a network between them that delivers as late as it may.
#ifndef HEED_TESTS_DISTRIBUTED_LOCAL_RANKS_H_
#define HEED_TESTS_DISTRIBUTED_LOCAL_RANKS_H_

#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "heed/distributed.h"

namespace heed::testing {

// Runs body(communicator) on a thread for each rank, and returns what each threw, or nullptr.
//
// Messages are read when their sender calls Finish(), and written when their receiver does: what is
// touched before is found. Memory to receive in is filled with 0xff when a receive begins. A rank
// that waits for half a minute throws, a message of another length too.
std::vector<std::exception_ptr> RunRanks(
    int size, const std::function<void(distributed::Communicator&)>& body);

// The same, where no rank may throw.
void RunRanksWell(int size, const std::function<void(distributed::Communicator&)>& body);

// The text of an Error, and its code; "" for nullptr.
struct RankError {
  std::string code, text;
};
RankError ErrorOf(const std::exception_ptr& error);

}  // namespace heed::testing

#endif  // HEED_TESTS_DISTRIBUTED_LOCAL_RANKS_H_
