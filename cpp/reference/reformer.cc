// Reformer: attention among tokens that some round of hashing brings together, keys being the
// normalised queries.
//
// Source: Kitaev et al. 2020, arXiv:2001.04451, section 2 (equations 4 to 6). A token is seen once
// however many rounds bring it: equation 6 with the N of appendix A.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "choice.h"
#include "dropout.h"
#include "inputs.h"
#include "visibility.h"

namespace heed::reference::reformer {
namespace {

struct Hash {
  int64_t rounds, buckets, chunk;
  Array rotations;  // [1, rounds, head_dim, buckets / 2]
};

void DrawRotations(const Request& request, const Qkv& qkv, Hash& hash) {
  hash.rotations.shape = {1, hash.rounds, qkv.head_dim, hash.buckets / 2};
  const int64_t count = hash.rounds * qkv.head_dim * (hash.buckets / 2);
  hash.rotations.values = SeededNormals(ReadSeed(request, "hash_seed"), count);
}

Hash ReadHash(const Request& request, const Qkv& qkv) {
  Hash hash;
  hash.chunk = ReadAtLeastOne(request, "hash_chunk", 64);
  if (const auto given = ReadFloats(request, "rotations", 3)) {
    for (const char* name : {"hash_rounds", "hash_buckets", "hash_seed"}) {
      if (FindParam(request, name) == nullptr) continue;
      throw Error(ErrorCode::kOption, std::string(name) + " beside rotations");
    }
    hash.rounds = given->shape[1];
    hash.buckets = 2 * given->shape[3];
    if (hash.rounds < 1 || hash.buckets < 1) {
      throw Error(ErrorCode::kRange, "rotations has no rounds or no buckets");
    }
    if (given->shape[2] != qkv.head_dim) {
      throw Error(ErrorCode::kShape, "rotations does not fit head_dim");
    }
    hash.rotations = *given;
    return hash;
  }
  const int64_t chunks = (qkv.q_len + hash.chunk - 1) / hash.chunk;
  hash.rounds = ReadAtLeastOne(request, "hash_rounds", 4);
  hash.buckets = ReadAtLeastOne(request, "hash_buckets", chunks <= 1 ? 1 : (chunks + 1) / 2 * 2);
  if (hash.buckets > 1 && hash.buckets % 2 != 0) {
    throw Error(ErrorCode::kRange, "hash_buckets must be 1 or even");
  }
  DrawRotations(request, qkv, hash);
  return hash;
}

int64_t BucketOf(const Hash& hash, int64_t round, std::span<const double> token) {
  if (hash.buckets == 1) return 0;
  std::vector<double> x(hash.buckets / 2, 0.0);
  for (size_t n = 0; n < x.size(); ++n) {
    for (size_t d = 0; d < token.size(); ++d) {
      x[n] += token[d] * hash.rotations.values[(round * token.size() + d) * x.size() + n];
    }
  }
  std::vector<double> both = x;
  for (const double product : x) both.push_back(-product);
  int64_t best = 0;
  for (size_t n = 1; n < both.size(); ++n) {
    if (both[n] > both[best]) best = n;
  }
  return best;
}

// sees[i][j] of one round: the same bucket, and the chunk of j is that of i or the one before.
std::vector<std::vector<bool>> Round(const Hash& hash, int64_t round, const Qkv& qkv, int64_t b,
                                     int64_t h, int64_t length) {
  std::vector<int64_t> bucket(length), order(length), chunk(length);
  for (int64_t t = 0; t < length; ++t) bucket[t] = BucketOf(hash, round, qkv.q.Row(b, h, t));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int64_t t) { return bucket[t]; });
  for (int64_t place = 0; place < length; ++place) chunk[order[place]] = place / hash.chunk;
  std::vector<std::vector<bool>> sees(length, std::vector<bool>(length));
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j < length; ++j) {
      const int64_t back = chunk[i] - chunk[j];
      sees[i][j] = bucket[i] == bucket[j] && (back == 0 || back == 1);
    }
  }
  return sees;
}

// What each token of a head sees in the end.
std::vector<std::vector<bool>> Seen(const Hash& hash, const Qkv& qkv, int64_t b, int64_t h,
                                    int64_t length, bool causal) {
  std::vector<std::vector<bool>> seen(qkv.q_len, std::vector<bool>(qkv.kv_len));
  for (int64_t round = 0; round < hash.rounds; ++round) {
    const auto sees = Round(hash, round, qkv, b, h, length);
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t j = 0; j < length; ++j) {
        if (sees[i][j] && i != j && (!causal || j < i)) seen[i][j] = true;
      }
    }
  }
  for (int64_t i = 0; i < length; ++i) {
    if (std::ranges::find(seen[i], true) == seen[i].end()) seen[i][i] = true;
  }
  return seen;
}

// The queries, and their directions as keys.
Qkv ReadShared(const Request& request) {
  InnerRequest with_keys(request, "scaled_dot_product", {});
  const AnyTensor& v = *FindInput(request, "v");
  Array q = ReadArray(request, "q");
  if (FindInput(request, "q")->rank != 4 || v.rank != 4) {
    throw Error(ErrorCode::kShape, "q and v have rank 4");
  }
  const int64_t heads = q.shape[1], kv_heads = v.shape[1];
  if (heads > 0 && (kv_heads == 0 || heads % kv_heads != 0)) {
    throw Error(ErrorCode::kShape, "the heads of q are not a multiple of those of v");
  }
  Array k = q;
  k.shape[1] = kv_heads;
  k.values.resize(k.shape[0] * k.shape[1] * k.shape[2] * k.shape[3]);
  with_keys.SetInput("k", k);
  return ReadQkv(with_keys.request());
}

Array Repeated(const Qkv& qkv) {
  Array v;
  v.shape = {qkv.batch, qkv.num_heads, qkv.kv_len, qkv.head_dim_v};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      for (int64_t j = 0; j < qkv.kv_len; ++j) {
        const auto row = qkv.v.Row(b, qkv.KvHead(h), j);
        v.values.insert(v.values.end(), row.begin(), row.end());
      }
    }
  }
  return v;
}

Array Directions(Array q) {
  const int64_t width = q.shape[3];
  for (size_t start = 0; width > 0 && start < q.values.size(); start += width) {
    double squares = 0.0;
    for (int64_t d = 0; d < width; ++d) squares += q.values[start + d] * q.values[start + d];
    for (int64_t d = 0; d < width; ++d) {
      q.values[start + d] = squares == 0.0 ? 0.0 : q.values[start + d] / std::sqrt(squares);
    }
  }
  return q;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadShared(request);
  RefuseRankOfLengths(request);
  const bool causal = ReadFlag(request, "causal");
  const Visibility visible(request, qkv);
  const Hash hash = ReadHash(request, qkv);
  InnerRequest inner(
      request, "scaled_dot_product",
      {"rotations", "hash_rounds", "hash_buckets", "hash_chunk", "hash_seed", "causal"});
  inner.SetInput("k", Directions(qkv.q));
  inner.SetInput("v", Repeated(qkv));
  std::vector<std::vector<bool>> seen;
  return RunOverChosen(inner, qkv, [&](int64_t b, int64_t h, int64_t i) {
    if (i == 0) seen = Seen(hash, qkv, b, h, visible.Length(b, 0), causal);
    return seen[i];
  });
}

}  // namespace heed::reference::reformer
