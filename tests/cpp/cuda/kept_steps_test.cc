// What the steps write that choose keys, against plain loops: rows of several words, with little
// room for each.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "emulated_blocks.h"
#include "gtest/gtest.h"
#include "kept_memory.h"
#include "random.h"

namespace heed::testing {
namespace {

using Keys = std::vector<bool>;

// Rows as steps get them: as much room as they may need, and no more.
class StepRows : public KeptMemory {
 public:
  StepRows(int64_t lists, int64_t copies, int64_t len, int64_t kv_len, int64_t most_words)
      : KeptMemory(1, static_cast<int32_t>(lists), static_cast<int32_t>(copies),
                   static_cast<int32_t>(len), std::min(most_words, (kv_len + 63) / 64), kSpare),
        kv_len_(kv_len) {}

  // Of words that are in order and within the room of the row, behind which none is written.
  void ExpectKept(int64_t row, const Keys& keys) const {
    const size_t n = static_cast<size_t>(row);
    const int64_t start = starts[n], end = ends[n];
    ASSERT_EQ(start, row * rows.room);
    ASSERT_LE(end - start, rows.room);
    Keys kept(static_cast<size_t>(kv_len_), false);
    for (int64_t at = start; at < end; ++at) {
      const size_t w = static_cast<size_t>(at);
      EXPECT_NE(words[w], 0u);
      EXPECT_TRUE(at == start || tiles[w] > tiles[w - 1]);
      for (int bit = 0; bit < 64; ++bit) {
        const int64_t j = int64_t{64} * tiles[w] + bit;
        if ((words[w] >> bit & 1) != 0) kept.at(static_cast<size_t>(j)) = true;
      }
    }
    EXPECT_EQ(kept, keys) << "row " << row << " of " << rows.len << ", room " << rows.room;
    for (size_t w = words.size() - kSpare; w < words.size(); ++w) ASSERT_EQ(tiles[w], -1);
  }

 private:
  static constexpr size_t kSpare = 16;
  int64_t kv_len_;
};

int32_t Draw(Random& random, int64_t low, int64_t high) {
  return static_cast<int32_t>(random.Integer(low, high));
}

// A cache of heavy hitters for one KV head, token by token.
std::vector<Keys> HeldTokens(const cuda::HeavyKeepParams& p, int head, int length) {
  const size_t len = static_cast<size_t>(p.len);
  Keys held(len, false);
  std::vector<Keys> kept;
  std::vector<double> sums(len, 0), parts(len);
  for (int t = 0; t < length; ++t) {
    int64_t older = 0, lightest = -1;
    for (int64_t j = 0; j <= t - p.recent; ++j) {
      if (!held[static_cast<size_t>(j)]) continue;
      ++older;
      if (lightest < 0 || sums[static_cast<size_t>(j)] <= sums[static_cast<size_t>(lightest)]) {
        lightest = j;
      }
    }
    if (older > p.heavy) held[static_cast<size_t>(lightest)] = false;
    held[static_cast<size_t>(t)] = true;
    kept.push_back(held);
    for (int h = head * p.group; h < (head + 1) * p.group; ++h) {
      for (size_t j = 0; j < len; ++j) {
        const float *q = p.q.Row(0, h, t), *k = p.k.Row(0, head, static_cast<int64_t>(j));
        const double score = static_cast<double>(q[0]) * static_cast<double>(k[0]) +
                             static_cast<double>(q[1]) * static_cast<double>(k[1]);
        parts[j] = held[j] ? std::exp(score) : 0;
      }
      const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
      for (size_t j = 0; j < len; ++j) sums[j] += parts[j] / total;
    }
  }
  return kept;
}

TEST(KeptSteps, HeavyHitters) {
  Random random(1);
  for (int n = 0; n < 8; ++n) {
    const int32_t len = Draw(random, 130, 420), recent = Draw(random, 1, 90);
    const int32_t heavy = Draw(random, 1, 4), length = len - Draw(random, 0, 20);
    const size_t size = static_cast<size_t>(len);
    StepRows rows(2, 2, len, len, heavy + cuda::WordsOfRun(recent));
    std::vector<float> q(8 * size), k(4 * size), scores(2 * size);
    for (float& x : q) x = random.Normal();
    for (float& x : k) x = random.Normal();
    std::vector<uint8_t> held(2 * size, 9);
    std::vector<double> sums(2 * size, std::nan(""));
    cuda::HeavyKeepParams p{};
    p.q = {q.data(), {8 * len, 2 * len, 2}};
    p.k = {k.data(), {4 * len, 2 * len, 2}};
    p.lengths = &length;
    p.kept = rows.rows;
    p.held = held.data();
    p.sums = sums.data();
    p.scores = scores.data();
    p.scale = 1;
    p.recent = recent;
    p.heavy = heavy;
    p.batch = 1;
    p.heads = p.group = p.width = 2;
    p.len = len;
    RunBlocks(p);
    for (int head = 0; head < 2; ++head) {
      std::vector<Keys> kept = HeldTokens(p, head, length);
      kept.resize(size, Keys(size, false));
      for (int64_t t = 0; t < len; ++t) {
        rows.ExpectKept(head * len + t, kept[static_cast<size_t>(t)]);
      }
    }
  }
}

// Which tokens a round brings together: neighbours of a bucket when all are sorted by bucket, in
// the same chunk or the one before.
std::vector<Keys> Meetings(const std::vector<int32_t>& buckets, int64_t round, int32_t len,
                           int32_t length, int32_t chunk) {
  const size_t size = static_cast<size_t>(len);
  const auto bucket = [&](int32_t i) { return buckets[static_cast<size_t>(round * len + i)]; };
  std::vector<int32_t> order(static_cast<size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return bucket(a) < bucket(b); });
  std::vector<Keys> meet(size, Keys(size, false));
  for (size_t a = 0; a < order.size(); ++a) {
    for (size_t b = 0; b < order.size(); ++b) {
      const size_t of_a = a / static_cast<size_t>(chunk), of_b = b / static_cast<size_t>(chunk);
      const bool near = of_b == of_a || of_b + 1 == of_a;
      if (a != b && near && bucket(order[a]) == bucket(order[b])) {
        meet[static_cast<size_t>(order[a])][static_cast<size_t>(order[b])] = true;
      }
    }
  }
  return meet;
}

TEST(KeptSteps, HashedTokens) {
  Random random(2);
  for (int n = 0; n < 8; ++n) {
    const int32_t len = Draw(random, 130, 420), rounds = Draw(random, 1, 2);
    const int32_t chunk = n % 2 == 0 ? Draw(random, 1, 2) : Draw(random, 3, 40);
    const int32_t length = len - Draw(random, 0, 30), num_buckets = Draw(random, 1, 9);
    const bool causal = random.Chance(0.5);
    std::vector<int32_t> buckets(static_cast<size_t>(rounds * len));
    for (int32_t& bucket : buckets) bucket = Draw(random, 0, num_buckets - 1);
    std::vector<cuda::HashPlaceOnDevice> places(buckets.size());
    RunBlocks(
        cuda::HashPlaceParams{buckets.data(), &length, places.data(), rounds, 1, 1, len, chunk});
    StepRows rows(1, 1, len, len, rounds * 2 * std::min(chunk, len));
    RunBlocks(cuda::HashKeepParams{places.data(), rows.rows, causal, rounds, 1, 1, len});
    std::vector<std::vector<Keys>> meetings;
    for (int64_t r = 0; r < rounds; ++r) {
      meetings.push_back(Meetings(buckets, r, len, length, chunk));
    }
    for (size_t i = 0; i < static_cast<size_t>(len); ++i) {
      Keys keys(static_cast<size_t>(len), false);
      for (const std::vector<Keys>& round : meetings) {
        for (size_t j = 0; j < (causal ? i : keys.size()); ++j) keys[j] = keys[j] || round[i][j];
      }
      if (std::count(keys.begin(), keys.end(), true) == 0) keys[i] = true;
      rows.ExpectKept(static_cast<int64_t>(i), keys);
    }
  }
}

TEST(KeptSteps, FirstAndLastTokens) {
  Random random(3);
  for (int n = 0; n < 40; ++n) {
    const int32_t len = Draw(random, 1, 40), kv_len = Draw(random, 1, 500);
    const int64_t position = random.Integer(-50, kv_len + 80);
    const int64_t recent = random.Integer(1, 300), sinks = random.Integer(1, 150);
    StepRows rows(1, 1, len, kv_len, cuda::WordsOfBlocks(1, sinks) + cuda::WordsOfRun(recent));
    RunBlocks(cuda::StreamKeepParams{rows.rows, &position, recent, sinks, 1, kv_len});
    for (int64_t i = 0; i < len; ++i) {
      Keys keys;
      for (int64_t j = 0; j < kv_len; ++j) {
        keys.push_back(j <= position + i && (j < sinks || j > position + i - recent));
      }
      rows.ExpectKept(i, keys);
    }
  }
}

// The blocks that a query chooses: certain ones first, then the best, of equal ones the lower.
std::vector<int32_t> ChosenBlocks(const cuda::ChooseParams& p, int64_t list, int32_t row) {
  const int64_t position = p.rules.Position(0, p.first + row);
  const auto score = [&](int32_t n) {
    const int64_t own = position / p.kv_block;
    const bool local = position >= 0 && n <= own && n > own - p.local_blocks;
    if (n < p.first_blocks || local) return std::numeric_limits<double>::infinity();
    const double x = p.scores[(list * p.rows + row) * p.count + n];
    return std::isnan(x) ? std::numeric_limits<double>::max() : x;
  };
  std::vector<int32_t> blocks;
  for (int32_t n = 0; n < p.count; ++n) {
    const int64_t begin = int64_t{n} * p.kv_block;
    if (begin < p.rules.lengths[0] && !(p.causal && begin > position)) blocks.push_back(n);
  }
  std::stable_sort(blocks.begin(), blocks.end(),
                   [&](int32_t a, int32_t b) { return score(a) > score(b); });
  blocks.resize(std::min(blocks.size(), static_cast<size_t>(p.most)));
  return blocks;
}

TEST(KeptSteps, ChosenBlocks) {
  Random random(4);
  for (int n = 0; n < 40; ++n) {
    const int32_t len = Draw(random, 1, 9), kv_len = Draw(random, 130, 700);
    const int32_t lists = Draw(random, 1, 3), length = Draw(random, 0, kv_len);
    const int64_t position = random.Integer(-5, kv_len);
    cuda::ChooseParams p{};
    p.rules = {&length, false, &position};
    p.causal = random.Chance(0.5);
    p.first_blocks = random.Integer(0, 1);
    p.local_blocks = random.Integer(0, 1);
    p.batch = 1;
    p.first = Draw(random, 0, len - 1);
    p.rows = len - p.first;
    p.kv_len = kv_len;
    p.kv_block = n % 2 == 0 ? 1 : Draw(random, 1, 150);
    p.count = (kv_len + p.kv_block - 1) / p.kv_block;
    p.most = Draw(random, 1, std::min(p.count, 5));
    StepRows rows(lists, 2, len, kv_len, cuda::WordsOfBlocks(p.most, p.kv_block));
    p.kept = rows.rows;
    std::vector<double> scores(static_cast<size_t>(lists * p.rows * p.count));
    for (double& x : scores) {
      x = random.Chance(0.1) ? std::nan("") : static_cast<double>(Draw(random, 0, 5));
      if (random.Chance(0.1)) x = -std::numeric_limits<double>::infinity();
    }
    p.scores = scores.data();
    RunBlocks(p);
    for (int32_t list = 0; list < lists; ++list) {
      for (int32_t row = 0; row < p.rows; ++row) {
        Keys keys(static_cast<size_t>(kv_len), false);
        for (const int32_t block : ChosenBlocks(p, list, row)) {
          const int32_t begin = block * p.kv_block, end = std::min(begin + p.kv_block, kv_len);
          for (int32_t j = begin; j < end; ++j) keys[static_cast<size_t>(j)] = true;
        }
        rows.ExpectKept(list * len + p.first + row, keys);
      }
    }
  }
}

}  // namespace
}  // namespace heed::testing
