// Native sparse attention: compressed keys, blocks of keys chosen by them, and a window; each
// branch may have keys and values of its own.
//
// Source: Yuan et al. 2025, arXiv:2502.11089, equations 5 (gates), 7 (compression), 8 to 12
// (selection) and section 3.3.3 (window). Equation 9 counts the strides that a compressed key and a
// block share; here it is their tokens, which is the same up to a factor and needs no divisibility.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "choice.h"
#include "exact.h"
#include "inner.h"
#include "inputs.h"
#include "softmax.h"
#include "visibility.h"

namespace heed::reference::native_sparse {
namespace {

const std::vector<std::string_view> kOwnNames = {
    "branch_gates",      "compress_k",        "compress_v",     "window_k",        "window_v",
    "compress_k_weight", "compress_v_weight", "compress_block", "compress_stride", "key_block",
    "top_blocks",        "first_blocks",      "local_blocks",   "window_len"};

struct Sizes {
  int64_t block, stride, key_block, top_blocks, first_blocks, local_blocks, window_len;
  int64_t Compressed(int64_t length) const {
    return length < block ? 0 : (length - block) / stride + 1;
  }
};

Sizes ReadSizes(const Request& request) {
  Sizes s = {ReadAtLeastOne(request, "compress_block", 32),
             ReadAtLeastOne(request, "compress_stride", 16),
             ReadAtLeastOne(request, "key_block", 64),
             ReadAtLeastOne(request, "top_blocks", 8),
             ReadCount(request, "first_blocks").value_or(1),
             ReadAtLeastOne(request, "local_blocks", 2),
             ReadAtLeastOne(request, "window_len", 512)};
  if (s.first_blocks + s.local_blocks > s.top_blocks) {
    throw Error(ErrorCode::kRange, "first_blocks and local_blocks are more than top_blocks");
  }
  return s;
}

std::optional<Array> ReadWeight(const Request& request, const char* name, const Qkv& qkv,
                                const Sizes& sizes) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  const Array weight = ReadArray(request, name);
  const bool heads = weight.shape[2] == 1 || weight.shape[2] == qkv.num_kv_heads;
  if (tensor->rank < 1 || tensor->rank > 2 || !heads || weight.shape[3] != sizes.block) {
    throw Error(ErrorCode::kShape, std::string(name) + " must be [num_kv_heads, compress_block]");
  }
  return weight;
}

// What a branch has of its own, else what the call has.
Array ReadOwn(const Request& request, const char* name, const Array& otherwise) {
  if (FindInput(request, name) == nullptr) return otherwise;
  const Array own = ReadFloats(request, name, 4).value();
  if (own.shape != otherwise.shape) {
    throw Error(ErrorCode::kShape, std::string(name) + " must be shaped as k or v");
  }
  return own;
}

// What reaches beyond the length is never seen.
Array Compressed(const Array& x, const std::optional<Array>& weight, const Sizes& s,
                 const Visibility& visible, int64_t queries) {
  Array out;
  const int64_t count = s.Compressed(x.shape[2]);
  out.shape = {x.shape[0], x.shape[1], count, x.shape[3]};
  for (int64_t b = 0; b < x.shape[0]; ++b) {
    for (int64_t h = 0; h < x.shape[1]; ++h) {
      for (int64_t j = 0; j < count; ++j) {
        const bool exists = queries > 0 && j < s.Compressed(visible.Length(b, 0));
        for (int64_t d = 0; d < x.shape[3]; ++d) {
          double sum = 0.0;
          for (int64_t n = 0; n < s.block && exists; ++n) {
            const double factor = weight ? (*weight)(0, 0, h, n) : 1.0;
            sum += factor * x(b, h, j * s.stride + n, d);
          }
          if (!weight) sum /= static_cast<double>(s.block);
          out.values.push_back(sum);
        }
      }
    }
  }
  return out;
}

// As choices see it: in float32.
Array Rounded(Array x) {
  for (double& value : x.values) value = static_cast<float>(value);
  return x;
}

class Branches {
 public:
  Branches(const Request& request, const Qkv& qkv, const Sizes& s, const Visibility& visible)
      : request_(request), qkv_(qkv), s_(s), visible_(visible) {
    keys_ = Compressed(ReadOwn(request, "compress_k", qkv.k),
                       ReadWeight(request, "compress_k_weight", qkv, s), s, visible, qkv.q_len);
    values_ = Compressed(ReadOwn(request, "compress_v", qkv.v),
                         ReadWeight(request, "compress_v_weight", qkv, s), s, visible, qkv.q_len);
    window_keys_ = ReadOwn(request, "window_k", qkv.k);
    window_values_ = ReadOwn(request, "window_v", qkv.v);
    rounded_keys_ = Rounded(keys_);
    scale_ = static_cast<float>(ReadScale(request, qkv));
  }

  std::vector<double> OfCompressed() const {
    InnerRequest inner(request_, "scaled_dot_product", kOwnNames);
    InnerRequest bare(inner.request(), "scaled_dot_product", {"key_lengths", "query_offset"});
    bare.SetInput("k", keys_);
    bare.SetInput("v", values_);
    Qkv small = qkv_;
    small.kv_len = keys_.shape[2];
    const auto results = RunOverChosen(bare, small, [&](int64_t b, int64_t, int64_t i) {
      std::vector<bool> seen(small.kv_len, false);
      std::fill_n(seen.begin(), NumVisible(b, i), true);
      return seen;
    });
    return Values(results, "output");
  }

  std::vector<double> OfSelected() const {
    InnerRequest inner(request_, "scaled_dot_product", kOwnNames);
    inner.SetParam("causal", true);
    const auto results = RunOverChosen(inner, qkv_, [&](int64_t b, int64_t h, int64_t i) {
      std::vector<bool> seen(qkv_.kv_len, false);
      for (const int64_t n : Chosen(b, qkv_.KvHead(h), i)) {
        for (int64_t j = n * s_.key_block; j < std::min(qkv_.kv_len, (n + 1) * s_.key_block); ++j) {
          seen[j] = true;
        }
      }
      return seen;
    });
    return Values(results, "output");
  }

  std::vector<double> OfWindow() const {
    InnerRequest inner(request_, "scaled_dot_product", kOwnNames);
    inner.SetParam("causal", true);
    inner.SetParam("window_left", static_cast<double>(s_.window_len - 1));
    inner.SetInput("k", window_keys_);
    inner.SetInput("v", window_values_);
    return inner.Run();
  }

 private:
  int64_t NumVisible(int64_t b, int64_t i) const {
    return s_.Compressed(std::min(visible_.Length(b, i), visible_.Position(b, i) + 1));
  }

  std::vector<int64_t> Chosen(int64_t b, int64_t kv, int64_t i) const {
    const int64_t position = visible_.Position(b, i), length = visible_.Length(b, i);
    if (position < 0) return {};
    const int64_t own = position / s_.key_block;
    const int64_t blocks = std::min((length + s_.key_block - 1) / s_.key_block, own + 1);
    std::vector<double> scores(blocks, 0.0);
    const int64_t group = qkv_.num_heads / qkv_.num_kv_heads;
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) AddWeights(b, h, kv, i, scores);
    std::vector<int64_t> certain;
    for (int64_t n = 0; n < blocks; ++n) {
      if (n < s_.first_blocks || n > own - s_.local_blocks) certain.push_back(n);
    }
    return BestOf(scores, s_.top_blocks, certain);
  }

  // Weights are rounded to float32, and so are scores.
  void AddWeights(int64_t b, int64_t h, int64_t kv, int64_t i, std::vector<double>& scores) const {
    std::vector<double> weights;
    for (int64_t j = 0; j < NumVisible(b, i); ++j) {
      const double product = DotInOrder(qkv_.q.Row(b, h, i), rounded_keys_.Row(b, kv, j));
      weights.push_back(static_cast<float>(product * scale_));
    }
    double largest = kMinusInfinity, sum = 0.0;
    for (const double s : weights) {
      if (s > largest) largest = s;
    }
    for (double& s : weights) sum += s = std::exp(s - largest);
    for (size_t j = 0; j < weights.size(); ++j) {
      const double weight = static_cast<float>(weights[j] / sum);
      const int64_t begin = j * s_.stride;
      for (int64_t n = begin / s_.key_block;
           n < static_cast<int64_t>(scores.size()) && n * s_.key_block < begin + s_.block; ++n) {
        const int64_t shared =
            std::min(begin + s_.block, (n + 1) * s_.key_block) - std::max(begin, n * s_.key_block);
        scores[n] += weight * static_cast<double>(shared);
      }
    }
  }

  const Request& request_;
  const Qkv& qkv_;
  const Sizes& s_;
  const Visibility& visible_;
  Array keys_, rounded_keys_, values_;
  Array window_keys_, window_values_;
  double scale_;
};

// Lengths and positions as a causal mechanism reads them.
Request Causal(const Request& request) {
  Request causal = request;
  causal.params.push_back({"causal", true});
  return causal;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const Sizes sizes = ReadSizes(request);
  RefuseRankOfLengths(request);
  const Visibility visible(Causal(request), qkv);
  const Array gates = ReadFloats(request, "branch_gates", 4).value();
  if (gates.shape != Extents{qkv.batch, qkv.num_heads, qkv.q_len, 3}) {
    throw Error(ErrorCode::kShape, "branch_gates must be [batch, num_heads, q_len, 3]");
  }
  const Branches branches(request, qkv, sizes, visible);
  const std::vector<double> parts[] = {branches.OfCompressed(), branches.OfSelected(),
                                       branches.OfWindow()};
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  for (size_t n = 0; n < parts[0].size(); ++n) {
    double sum = 0.0;
    for (size_t branch = 0; branch < 3; ++branch) {
      const double gate = gates.values[n / qkv.head_dim_v * 3 + branch];
      if (gate != 0.0) sum += gate * parts[branch][n];
    }
    output.values.push_back(sum);
  }
  return {output};
}

}  // namespace heed::reference::native_sparse
