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

const RingVariant kVariants[] = {
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
    {"key_lengths_of_few_queries",  // ranks with one query of each entry, or none
     [](RingCase& c) {
       c.sharding.q_len = 3;
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
       c.options.distance_bias = c.Table({1, 1, 4, 15});
     }},
    {"bucket_bias",
     [](RingCase& c) {
       c.options.causal = true;
       c.options.bucket_direction = T5Direction::kCausal;
       c.options.bucket_bias = c.Table({1, 1, 32, 4});
     }},
    {"relative",
     [](RingCase& c) {
       c.options.relative_keys = c.Table({1, 1, 19, c.head_dim});
       c.options.relative_values = c.Table({1, 4, 19, c.head_dim_v});
     }},
    {"deberta",
     [](RingCase& c) {
       c.options.relative_rows = RelativeRows::kSpan;
       c.options.relative_keys = c.Table({1, 4, 24, c.head_dim});
       c.options.relative_queries = c.Table({1, 4, 24, c.head_dim});
     }},
    {"deberta_v2",
     [](RingCase& c) {
       c.options.relative_rows = RelativeRows::kLogSpan;
       c.options.relative_max_distance = 40;
       c.options.relative_keys = c.Table({1, 1, 16, c.head_dim});
       c.options.relative_queries = c.Table({1, 1, 16, c.head_dim});
     }},
    {"transformer_xl",
     [](RingCase& c) {
       c.options.causal = true;
       c.options.relative_keys = c.Table({1, 4, 31, c.head_dim});
       c.options.content_bias = c.Table({1, 1, 4, c.head_dim});
       c.options.position_bias = c.Table({1, 1, 4, c.head_dim});
     }},
    {"squared_distance",
     [](RingCase& c) {
       c.options.score = Score::kSquaredDistance;
       c.numbers = {1.5f};
       c.options.width = c.numbers;
     }},
    {"cosine",
     [](RingCase& c) {
       c.options.score = Score::kCosine;
       c.numbers = {0.5f, 1, 2, 0.001f};
       c.options.temperature = c.numbers;
       c.options.min_temperature = 0.01;
     }},
    {"additive",
     [](RingCase& c) {
       c.options.score = Score::kAdditive;
       c.head_dim_k = 5;
       c.options.query_weight = c.Table({1, 4, 6, c.head_dim});
       c.options.key_weight = c.Table({1, 1, 6, 5});
       c.options.score_vector = c.Table({1, 1, 4, 6});
       c.numbers = {0.1f, 0.2f, 0.3f, -0.1f, -0.2f, -0.3f};
       c.options.score_bias = c.numbers;
     }},
    {"one_sided_window",
     [](RingCase& c) {
       c.options.window = Window{std::nullopt, 4};
     }},
    {"shared_documents",
     [](RingCase& c) {
       SetDocuments(c);
       c.options.query_documents = c.options.query_documents.first(53);
       c.options.key_documents = c.options.key_documents.first(53);
     }},
    {"everything",
     [](RingCase& c) {
       c.numbers = {0.5f, 1, -1, 0};
       c.more_numbers = AlibiSlopes(4);
       c.options.sinks = c.numbers;
       c.options.alibi_slopes = c.more_numbers;
       c.options.causal = true;
       c.options.softcap = 3;
       c.options.dropout = {0.2, 9, {1, 2, 3, 4}};
       DrawBias(c, {2, 4, c.sharding.q_len, c.sharding.kv_len});
       DrawKeep(c, {1, 1, c.sharding.q_len, c.sharding.kv_len});
       SetDocuments(c);
       c.lengths = {44, 53};
       c.options.key_lengths = c.lengths;
       c.options.query_offset = QueryOffset::PerBatch({2, -3});
     }},
    {"bilinear",
     [](RingCase& c) {
       c.head_dim_k = 5;
       c.options.score = Score::kBilinear;
       c.options.score_matrix = c.Table({1, 4, c.head_dim, 5});
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

}  // namespace

std::span<const RingVariant> RingVariants() { return kVariants; }

}  // namespace heed::testing
