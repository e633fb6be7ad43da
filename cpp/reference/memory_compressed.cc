// Memory-compressed attention: keys and values of blocks of tokens, by convolution or mean.
//
// Source: Liu et al. 2018, arXiv:1801.10198, section 4.2.4.
#include <algorithm>
#include <string>
#include <vector>

#include "inputs.h"
#include "low_rank.h"
#include "visibility.h"

namespace heed::reference::memory_compressed {
namespace {

// The tokens of a block, by kernel and by channel; weights [heads, out, in, compression].
struct Convolution {
  std::optional<Array> weights, bias;
};

Convolution ReadConvolution(const Request& request, const std::string& name, const Qkv& qkv,
                            int64_t width) {
  Convolution conv;
  if (const AnyTensor* tensor = FindInput(request, name)) {
    conv.weights = ReadFloats(request, name, tensor->rank == 3 ? 3 : 4);
    const Extents& s = conv.weights->shape;
    if ((s[0] != 1 && s[0] != qkv.num_kv_heads) || s[1] != width || s[2] != width) {
      throw Error(ErrorCode::kShape, Describe(name, *tensor) + ": does not fit the tokens");
    }
  }
  const std::string bias = name + "_bias";
  if (const AnyTensor* tensor = FindInput(request, bias)) {
    if (!conv.weights) throw Error(ErrorCode::kOption, bias + " needs " + name);
    conv.bias = ReadFloats(request, bias, tensor->rank == 1 ? 1 : 2);
    const Extents& s = conv.bias->shape;
    if ((s[2] != 1 && s[2] != qkv.num_kv_heads) || s[3] != width) {
      throw Error(ErrorCode::kShape, Describe(bias, *tensor) + ": does not fit the tokens");
    }
  }
  return conv;
}

int64_t ReadCompression(const Request& request, const Convolution& key, const Convolution& value) {
  const std::optional<int64_t> given = ReadCount(request, "compression");
  const int64_t compression = given           ? *given
                              : key.weights   ? key.weights->shape[3]
                              : value.weights ? value.weights->shape[3]
                                              : 3;
  if (compression < 1) throw Error(ErrorCode::kRange, "compression must be at least 1");
  for (const Convolution* conv : {&key, &value}) {
    if (conv->weights && conv->weights->shape[3] != compression) {
      throw Error(ErrorCode::kShape, "a convolution's kernel is not the compression");
    }
  }
  return compression;
}

Array Compress(const Convolution& conv, const Array& tokens, const std::vector<int64_t>& lengths,
               int64_t compression, int64_t blocks) {
  Array to;
  to.shape = {tokens.shape[0], tokens.shape[1], blocks, tokens.shape[3]};
  for (int64_t b = 0; b < to.shape[0]; ++b) {
    for (int64_t h = 0; h < to.shape[1]; ++h) {
      for (int64_t n = 0; n < blocks; ++n) {
        const int64_t begin = n * compression;
        const int64_t end = std::min(begin + compression, lengths[b]);
        for (int64_t out = 0; out < to.shape[3]; ++out) {
          double sum = conv.bias ? (*conv.bias)(0, 0, h, out) : 0.0;
          for (int64_t j = begin; j < end; ++j) {
            if (!conv.weights) sum += tokens.Row(b, h, j)[out] / (end - begin);
            for (int64_t in = 0; in < to.shape[3] && conv.weights; ++in) {
              sum += (*conv.weights)(h, out, in, j - begin) * tokens.Row(b, h, j)[in];
            }
          }
          to.values.push_back(sum);
        }
      }
    }
  }
  return to;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  Qkv qkv = ReadQkv(request);
  const std::vector<int64_t> lengths = ReadBatchLengths(request, qkv);
  const Visibility visibility(request, qkv);
  const Convolution key = ReadConvolution(request, "key_conv", qkv, qkv.head_dim);
  const Convolution value = ReadConvolution(request, "value_conv", qkv, qkv.head_dim_v);
  const int64_t compression = ReadCompression(request, key, value);
  const bool causal = ReadFlag(request, "causal");
  const int64_t blocks = (qkv.kv_len + compression - 1) / compression;
  Qkv made = qkv;
  made.k = Compress(key, qkv.k, lengths, compression, blocks);
  made.v = Compress(value, qkv.v, lengths, compression, blocks);
  made.kv_len = blocks;
  return AttendTo(request, made, [&](int64_t b, int64_t i, int64_t n) {
    const int64_t last = (n + 1) * compression - 1;
    if (causal) return last <= visibility.Position(b, i) && last < lengths[b];
    return n * compression < lengths[b];
  });
}

}  // namespace heed::reference::memory_compressed
