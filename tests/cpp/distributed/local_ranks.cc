#include "distributed/local_ranks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "allocations.h"
#include "gtest/gtest.h"

namespace heed::testing {
namespace {

constexpr std::chrono::seconds kLongestWait(30);

// Messages under way, by sender and receiver.
class Network {
 public:
  void Send(int from, int to, std::vector<std::byte> message) {
    const std::lock_guard lock(mutex_);
    under_way_[{from, to}].push_back(std::move(message));
    changed_.notify_all();
  }

  std::vector<std::byte> Receive(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& messages = under_way_[{from, to}];
    if (!changed_.wait_for(lock, kLongestWait, [&] { return !messages.empty(); })) {
      throw std::runtime_error("rank " + std::to_string(to) + " waits for rank " +
                               std::to_string(from));
    }
    std::vector<std::byte> message = std::move(messages.front());
    messages.pop_front();
    return message;
  }

  bool IsEmpty() {
    const std::lock_guard lock(mutex_);
    return std::all_of(under_way_.begin(), under_way_.end(),
                       [](const auto& entry) { return entry.second.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> under_way_;
};

class LocalRank final : public distributed::Communicator {
 public:
  LocalRank(int rank, int size, Network& network) : rank_(rank), size_(size), network_(network) {}

  int Rank() const override { return rank_; }
  int Size() const override { return size_; }

  void BeginSend(int to, std::span<const std::byte> bytes) override {
    const UncountedAllocations uncounted;
    CheckOther(to);
    sends_.push_back({to, bytes});
  }
  void BeginReceive(int from, std::span<std::byte> bytes) override {
    const UncountedAllocations uncounted;
    CheckOther(from);
    std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    receives_.push_back({from, bytes});
  }
  void Finish() override {
    const UncountedAllocations uncounted;
    for (const auto& [to, bytes] : sends_) {
      network_.Send(rank_, to, std::vector<std::byte>(bytes.begin(), bytes.end()));
    }
    sends_.clear();
    for (const auto& [from, bytes] : receives_) {
      const std::vector<std::byte> message = network_.Receive(from, rank_);
      if (message.size() != bytes.size()) throw std::runtime_error("a message of another length");
      std::copy(message.begin(), message.end(), bytes.begin());
    }
    receives_.clear();
  }

 private:
  void CheckOther(int rank) const {
    if (rank < 0 || rank >= size_ || rank == rank_) throw std::runtime_error("no such other rank");
  }

  int rank_, size_;
  Network& network_;
  std::vector<std::pair<int, std::span<const std::byte>>> sends_;
  std::vector<std::pair<int, std::span<std::byte>>> receives_;
};

}  // namespace

std::vector<std::exception_ptr> RunRanks(
    int size, const std::function<void(distributed::Communicator&)>& body) {
  Network network;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      LocalRank communicator(rank, size, network);
      try {
        body(communicator);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(network.IsEmpty()) << "messages that nobody received";
  return errors;
}

void RunRanksWell(int size, const std::function<void(distributed::Communicator&)>& body) {
  for (const std::exception_ptr& error : RunRanks(size, body)) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

RankError ErrorOf(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const Error& heed_error) {
    return {ErrorCodeName(heed_error.code()), heed_error.what()};
  } catch (const std::exception& other) {
    return {"other", other.what()};
  }
}

}  // namespace heed::testing
