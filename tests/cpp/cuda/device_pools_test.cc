// Which pool belongs to which device.
#include "src/cuda/device_pools.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace heed::testing {
namespace {

using Pools = cuda::DevicePools<int>;

TEST(DevicePools, EveryDeviceHasOneAndKeepsIt) {
  Pools pools;
  int made = 0;
  const auto make = [&] { return 100 + made++; };
  EXPECT_EQ(pools.Of(3, make), 100);
  EXPECT_EQ(pools.Of(0, make), 101);
  EXPECT_EQ(pools.Of(3, make), 100);
  EXPECT_EQ(pools.Of(0, make), 101);
  EXPECT_EQ(made, 2);
}

TEST(DevicePools, LookingForOneMakesNone) {
  Pools pools;
  EXPECT_EQ(pools.Find(1), std::nullopt);
  pools.Of(1, [] { return 7; });
  EXPECT_EQ(pools.Find(1), 7);
  EXPECT_EQ(pools.Find(2), std::nullopt);
}

TEST(DevicePools, OneThatCouldNotBeMadeIsMadeByTheNextCall) {
  Pools pools;
  const auto fail = []() -> int { throw std::runtime_error("no memory pools"); };
  EXPECT_THROW(pools.Of(0, fail), std::runtime_error);
  EXPECT_EQ(pools.Find(0), std::nullopt);
  EXPECT_EQ(pools.Of(0, [] { return 5; }), 5);
}

TEST(DevicePools, ThreadsThatAskAtOnceGetTheSame) {
  Pools pools;
  std::atomic<int> made = 0;
  std::vector<int> got(8, -1);
  std::vector<std::thread> threads;
  for (int& mine : got) {
    threads.emplace_back([&] { mine = pools.Of(0, [&] { return ++made; }); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, std::vector<int>(8, 1));
}

}  // namespace
}  // namespace heed::testing
