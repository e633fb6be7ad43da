// The thread pool: every task once, never two at a time on one worker, from any number of callers.
#include "heed/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/error.h"

#ifdef __linux__
#include <sched.h>
#endif
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace heed::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(ThreadPool, HasTheThreadsAskedFor) {
  for (const int threads : {1, 2, 3, 7}) EXPECT_EQ(MakeThreadPool(threads)->NumThreads(), threads);
  EXPECT_GE(DefaultThreadPool().NumThreads(), 1);
}

TEST(ThreadPool, RefusesFewerThanOneThread) {
  for (const int threads : {0, -1, -1000}) {
    try {
      MakeThreadPool(threads);
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRange);
      EXPECT_THAT(error.what(), HasSubstr("num_threads"));
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(threads)));
    }
  }
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 7}) {
    const auto pool = MakeThreadPool(threads);
    for (const int64_t count : {0, 1, 2, 6, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      pool->Run(count, [&](int64_t index, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        ++calls[static_cast<size_t>(index)];
      });
      for (const std::atomic<int>& number : calls) EXPECT_EQ(number, 1);
    }
  }
}

#ifndef _WIN32
// Its threads end before such an object, which was there first.
TEST(ThreadPoolDeathTest, TheSharedOneServesDestructorsOfStaticObjects) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto program = [] {
    static const struct Last {
      ~Last() {
        int64_t sum = 0;
        DefaultThreadPool().Run(4, [&](int64_t index, int) { sum += index; });
        std::_Exit(sum == 6 && DefaultThreadPool().NumThreads() == 1 ? 0 : 1);
      }
    } last;
    DefaultThreadPool().Run(4, [](int64_t, int) {});
    std::exit(2);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "");
}

#ifdef __linux__
TEST(ThreadPoolDeathTest, TheSharedOneHasThreadsForTheProcessorsThatTheProcessMayUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto program = [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) std::exit(3);
    std::exit(DefaultThreadPool().NumThreads() == 1 ? 0 : 2);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "");
}
#endif

// Fork leaves a child the memory of the pool, and none of its threads.
TEST(ThreadPool, ForkedChildrenRunOnTheirOwnThread) {
  auto pool = MakeThreadPool(3);
  std::atomic<int> calls = 0;
  const auto count = [&](int64_t, int) { ++calls; };
  pool->Run(100, count);
  DefaultThreadPool().Run(100, count);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that waits for threads
    pool->Run(100, count);
    DefaultThreadPool().Run(100, count);
    pool.reset();
    const auto own = MakeThreadPool(1);
    own->Run(100, count);
    _exit(calls == 500 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  pool->Run(100, count);
  EXPECT_EQ(calls, 300);
}
#endif

TEST(ThreadPool, OneWorkerNeverRunsTwoTasksAtATime) {
  const auto pool = MakeThreadPool(4);
  std::vector<std::atomic<int>> running(4);
  std::atomic<int> overlaps = 0;
  pool->Run(400, [&](int64_t, int worker) {
    if (running[static_cast<size_t>(worker)].fetch_add(1) != 0) ++overlaps;
    std::this_thread::yield();
    running[static_cast<size_t>(worker)].fetch_sub(1);
  });
  EXPECT_EQ(overlaps, 0);
}

TEST(ThreadPool, SeveralThreadsWorkOnOneCall) {
  const auto pool = MakeThreadPool(2);
  std::atomic<int> arrived = 0;
  // Each of two tasks waits for the other: one thread alone would wait for ever.
  pool->Run(2, [&](int64_t, int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, OneThreadRunsTasksInOrder) {
  std::vector<int64_t> order;
  MakeThreadPool(1)->Run(50, [&](int64_t index, int) { order.push_back(index); });
  for (int64_t n = 0; n < 50; ++n) EXPECT_EQ(order[static_cast<size_t>(n)], n);
}

TEST(ThreadPool, CallsFromSeveralThreadsAllFinish) {
  const auto pool = MakeThreadPool(3);
  std::vector<std::atomic<int64_t>> sums(5);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&, caller] {
      for (int repeat = 0; repeat < 50; ++repeat) {
        pool->Run(20, [&](int64_t index, int) { sums[caller] += index; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::atomic<int64_t>& sum : sums) EXPECT_EQ(sum, 50 * 190);
}

TEST(ThreadPool, ResultsOfTasksAreVisibleAfterRun) {
  const auto pool = MakeThreadPool(4);
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::vector<int> values(16, 0);
    pool->Run(16, [&](int64_t index, int) { values[static_cast<size_t>(index)] = repeat; });
    EXPECT_THAT(values, Each(repeat));
  }
}

TEST(ThreadPool, WakesAgainAfterSleeping) {
  const auto pool = MakeThreadPool(3);
  std::atomic<int> calls = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    pool->Run(9, [&](int64_t, int) { ++calls; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(calls, 27);
}

TEST(ThreadPool, MayBeDestroyedWithoutEverRunning) {
  for (int repeat = 0; repeat < 20; ++repeat) MakeThreadPool(5);
}

}  // namespace
}  // namespace heed::testing
