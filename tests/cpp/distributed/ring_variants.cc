// One of each option that attention over ranks takes.
#include <cmath>
#include <limits>

#include "distributed/ring_case.h"

namespace heed::testing {
namespace {

void DrawBias(RingCase& c, const Extents& shape) {
  c.bias = NormalBuffer(shape, 71);
  c.options.bias = c.bias.view();
}

void DrawKeep(RingCase& c, const Extents& shape) {
  c.keep = Buffer<uint8_t>(shape, Layout::kDense, 0);
  Random random(72);
  c.keep.ForEach([&](int64_t, int64_t, int64_t, int64_t, uint8_t& cell) {
    cell = random.Chance(0.6) ? 1 : 0;
  });
  c.options.keep = c.keep.view();
}

void SetDocuments(RingCase& c) {
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t i = 0; i < c.sharding.q_len; ++i) {
      c.query_documents.push_back(i % 11 == 3 ? -1 : static_cast<int32_t>((i + b) / 9));
    }
    for (int64_t j = 0; j < c.sharding.kv_len; ++j) {
      c.key_documents.push_back(static_cast<int32_t>((j + b) / 9));
    }
  }
  c.options.query_documents = c.query_documents;
  c.options.key_documents = c.key_documents;
}

void SetTable(RingCase& c, const Extents& shape) { c.table = NormalBuffer(shape, 73, 0.5f); }

}  // namespace

const std::vector<RingVariant>& RingVariants() {
  static const std::vector<RingVariant> variants = {
      {"plain", [](RingCase&) {}},
      {"causal", [](RingCase& c) { c.options.causal = true; }},
      {"window",
       [](RingCase& c) {
         c.options.window = Window{5, 2};
       }},
      {"key_lengths",
       [](RingCase& c) {
         c.lengths = {31, 0};
         c.options.key_lengths = c.lengths;
       }},
      {"key_lengths_of_queries",
       [](RingCase& c) {
         for (int64_t n = 0; n < c.batch * c.sharding.q_len; ++n) {
           c.lengths.push_back(static_cast<int32_t>(n * 7 % (c.sharding.kv_len + 1)));
         }
         c.options.key_lengths = c.lengths;
       }},
      {"end",
       [](RingCase& c) {
         c.sharding.q_len = 21;
         c.lengths = {50, 37};
         c.options.key_lengths = c.lengths;
         c.options.causal = true;
         c.options.query_offset = QueryOffset::End();
       }},
      {"offsets",
       [](RingCase& c) {
         c.sharding.kv_len = 30;
         c.options.window = Window{9, 9};
         c.options.query_offset = QueryOffset::PerBatch({-4, 6});
       }},
      {"prefix",
       [](RingCase& c) {
         c.lengths = {17, 40};
         c.options.prefix_lengths = c.lengths;
         c.options.query_offset = QueryOffset::At(0);
       }},
      {"documents", SetDocuments},
      {"bias",
       [](RingCase& c) {
         DrawBias(c, {1, 4, c.sharding.q_len, c.sharding.kv_len});
       }},
      {"bias_of_keys",
       [](RingCase& c) {
         DrawBias(c, {2, 1, 1, c.sharding.kv_len});
       }},
      {"keep",
       [](RingCase& c) {
         DrawKeep(c, {2, 1, c.sharding.q_len, c.sharding.kv_len});
       }},
      {"keep_of_queries",
       [](RingCase& c) {
         DrawKeep(c, {1, 4, c.sharding.q_len, 1});
       }},
      {"alibi",
       [](RingCase& c) {
         c.numbers = AlibiSlopes(c.num_heads);
         c.options.alibi_slopes = c.numbers;
       }},
      {"softcap",
       [](RingCase& c) {
         c.options.softcap = 0.7;
         c.options.scale = 0.5;
       }},
      {"sinks",
       [](RingCase& c) {
         c.numbers = {0.5f, -std::numeric_limits<float>::infinity(), 3.0f, 0.0f};
         c.options.sinks = c.numbers;
         c.options.window = Window{3, 0};
       }},
      {"softmax1",
       [](RingCase& c) {
         c.options.normalize = Normalize::kSoftmax1;
         c.options.causal = true;
       }},
      {"dropout",
       [](RingCase& c) {
         c.options.dropout = {0.3, 1234567};
         c.options.causal = true;
       }},
      {"distance_bias",
       [](RingCase& c) {
         SetTable(c, {1, 1, 4, 15});
         c.options.distance_bias = c.table.view();
       }},
      {"bucket_bias",
       [](RingCase& c) {
         SetTable(c, {1, 1, 32, 4});
         c.options.bucket_bias = c.table.view();
       }},
      {"relative",
       [](RingCase& c) {
         SetTable(c, {1, 1, 19, c.head_dim});
         c.other_table = NormalBuffer({1, 4, 19, c.head_dim_v}, 74, 0.5f);
         c.options.relative_keys = c.table.view();
         c.options.relative_values = c.other_table.view();
       }},
      {"squared_distance", [](RingCase& c) { c.options.score = Score::kSquaredDistance; }},
      {"cosine", [](RingCase& c) { c.options.score = Score::kCosine; }},
      {"bilinear",
       [](RingCase& c) {
         SetTable(c, {1, 4, c.head_dim, c.head_dim});
         c.options.score = Score::kBilinear;
         c.options.score_matrix = c.table.view();
       }},
      {"dilated",
       [](RingCase& c) {
         c.options.patterns = {DilatedWindow{4, {3}}};
       }},
      {"strided", [](RingCase& c) { c.options.patterns = {Strided{7}}; }},
      {"score_mod",
       [](RingCase& c) {
         c.options.score_mod = [](const PairTile& tile) {
           for (size_t r = 0; r < tile.num_rows; ++r) {
             const PairTile::Row& row = tile.rows[r];
             for (size_t n = 0; n < tile.num_keys; ++n) {
               const int64_t key = tile.key_begin + static_cast<int64_t>(n);
               float& score = tile.values[r * tile.row_stride + n];
               score = 0.5f * score + 0.01f * static_cast<float>(row.query) -
                       0.02f * static_cast<float>(key % 5) +
                       0.1f * static_cast<float>((row.position - key) % 3) +
                       static_cast<float>(row.head + tile.batch) / 8;
             }
           }
         };
       }},
      {"keep_mod",
       [](RingCase& c) {
         c.options.keep_mod = [](const PairTile& tile) {
           for (size_t r = 0; r < tile.num_rows; ++r) {
             for (size_t n = 0; n < tile.num_keys; ++n) {
               const int64_t key = tile.key_begin + static_cast<int64_t>(n);
               if ((tile.rows[r].query + 2 * key + tile.rows[r].position) % 5 == 0) {
                 tile.values[r * tile.row_stride + n] = 0;
               }
             }
           }
         };
       }},
      {"few_tokens",
       [](RingCase& c) {
         c.sharding = {.q_len = 3, .kv_len = 6};
         c.options.query_offset = QueryOffset::At(2);
         c.options.causal = true;
       }},
      {"no_keys", [](RingCase& c) { c.sharding = {.q_len = 9, .kv_len = 0}; }},
      {"no_queries", [](RingCase& c) { c.sharding = {.q_len = 0, .kv_len = 9}; }},
      {"longer_than_tiles",
       [](RingCase& c) {
         c.batch = 1;
         c.sharding = {.q_len = 700, .kv_len = 700};
         c.options.causal = true;
       }},
  };
  return variants;
}

}  // namespace heed::testing
