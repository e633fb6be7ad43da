// Set Transformer blocks: MAB, and SAB, ISAB and PMA made of it.
//
// Source: Lee et al. 2019, arXiv:1810.00825, equations 6 to 11; rFF is relu(h W + b). With a
// projected residual: MAB of modules.py in juho-lee/set_transformer.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "inner.h"
#include "multi_head.h"
#include "row_blocks.h"

namespace heed::reference::induced_set {
namespace {

using Doubles = std::vector<double>;

// The weights of one block: q, k, v, ff, o and the norms.
struct Weights {
  Doubles w[5], b[5], factor[2], shift[2];
};

Doubles Part(const std::optional<Array>& all, int64_t index, int64_t size) {
  if (!all) return {};
  return {all->values.begin() + index * size, all->values.begin() + (index + 1) * size};
}

std::optional<Array> ReadStack(const Request& request, const char* name, int64_t blocks,
                               int64_t rows, int64_t dim) {
  const std::optional<Array> stack = ReadFloats(request, name, 3);
  if (stack && stack->shape != Extents{1, blocks, rows, dim}) {
    throw Error(ErrorCode::kShape, Describe(name, *FindInput(request, name)) + ": does not fit");
  }
  return stack;
}

// With or without output matrices.
std::vector<Weights> ReadWeights(const Request& request, int64_t blocks, int64_t dim,
                                 bool has_output) {
  const Array w = ReadNeeded(request, "set_weights", 4);
  const std::vector<int64_t> places =
      has_output ? std::vector<int64_t>{0, 1, 2, 4, 3} : std::vector<int64_t>{0, 1, 2, 3};
  const int64_t count = static_cast<int64_t>(places.size());
  if (w.shape != Extents{blocks, count, dim, dim}) {
    throw Error(ErrorCode::kShape,
                Describe("set_weights", *FindInput(request, "set_weights")) + ": does not fit");
  }
  const auto b = ReadStack(request, "set_biases", blocks, count, dim);
  const auto factors = ReadStack(request, "norm_weights", blocks, 2, dim);
  const auto shifts = ReadStack(request, "norm_biases", blocks, 2, dim);
  std::vector<Weights> weights(blocks);
  for (int64_t n = 0; n < blocks; ++n) {
    for (int64_t m = 0; m < count; ++m) {
      weights[n].w[m] = Part(w, n * count + places[m], dim * dim);
      weights[n].b[m] = Part(b, n * count + places[m], dim);
    }
    for (int64_t m = 0; m < 2; ++m) weights[n].factor[m] = Part(factors, n * 2 + m, dim);
    for (int64_t m = 0; m < 2; ++m) weights[n].shift[m] = Part(shifts, n * 2 + m, dim);
  }
  return weights;
}

struct Options {
  int64_t heads;
  double epsilon;
  bool norm, projected;
};

Array Norm(const Array& x, const Weights& w, int which, const Options& o) {
  return o.norm ? LayerNormRows(x, w.factor[which], w.shift[which], o.epsilon) : x;
}

// MAB(x, y) with whatever of the request is left in `base`.
Array Block(const Request& base, const Array& x, const Array& y, const Weights& w,
            const Options& o) {
  const int64_t dim = x.shape[3], head_dim = dim / o.heads;
  InnerRequest inner(base, "multi_head", {});
  inner.SetInput("query", 3, {x.shape[0], x.shape[2], dim}, x.values);
  for (const char* name : {"key", "value"}) {
    inner.SetInput(name, 3, {y.shape[0], y.shape[2], dim}, y.values);
  }
  const char* names[] = {"w_q", "w_k", "w_v"};
  const char* biases[] = {"b_q", "b_k", "b_v"};
  for (int m = 0; m < 3; ++m) {
    inner.SetInput(names[m], 3, {o.heads, head_dim, dim}, w.w[m]);
    if (!w.b[m].empty()) inner.SetInput(biases[m], 2, {o.heads, head_dim}, w.b[m]);
  }
  if (!o.projected) {
    inner.SetInput("w_o", 3, {dim, o.heads, head_dim}, w.w[4]);
    if (!w.b[4].empty()) inner.SetInput("b_o", 1, {dim}, w.b[4]);
  } else if (!ReadNumber(base, "scale")) {
    inner.SetParam("scale", 1 / std::sqrt(static_cast<double>(dim)));
  }
  const Array residual = o.projected ? LinearRows(x, w.w[0], w.b[0], dim) : x;
  const Array h = Norm(SumRows({x.shape, inner.Run()}, residual), w, 0, o);
  Array ff = LinearRows(h, w.w[3], w.b[3], dim);
  for (double& value : ff.values) value = value < 0.0 ? 0.0 : value;
  return Norm(SumRows(ff, h), w, 1, o);
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Array x = ReadRows(request, "x");
  const std::string kind = ReadWord(request, "set_block", {"isab", "pma", "sab"}).value_or("isab");
  const int64_t dim = x.shape[3];
  if ((kind != "sab") != (FindInput(request, "inducing") != nullptr)) {
    throw Error(ErrorCode::kOption, "inducing belongs to isab and pma, not to sab");
  }
  Options o = {ReadCount(request, "num_heads").value_or(1),
               ReadNumber(request, "epsilon").value_or(1e-5),
               ReadWord(request, "set_norm", {"layer", "none"}).value_or("layer") == "layer",
               ReadWord(request, "set_residual", {"input", "projected"}) == "projected"};
  if (o.heads < 1 || dim % o.heads != 0) {
    throw Error(ErrorCode::kRange, "num_heads must divide embed_dim");
  }
  if (!(o.epsilon > 0.0)) throw Error(ErrorCode::kRange, "epsilon must be greater than 0");
  const std::vector<Weights> weights =
      ReadWeights(request, kind == "isab" ? 2 : 1, dim, !o.projected);

  // The set's block takes lengths and scale, the one that goes back the scale only.
  Request over_set, back;
  for (const NamedTensor& input : request.inputs) {
    if (input.name != "key_lengths") continue;
    if (input.tensor.rank != 1) {
      throw Error(ErrorCode::kShape, Describe("key_lengths", input.tensor) + ": expected [batch]");
    }
    over_set.inputs.push_back(input);
  }
  for (const NamedParam& param : request.params) {
    if (param.name != "scale") continue;
    over_set.params.push_back(param);
    back.params.push_back(param);
  }
  Array output;
  if (kind == "sab") {
    output = Block(over_set, x, x, weights[0], o);
  } else {
    Array points = ReadNeeded(request, "inducing", 2);
    if (points.shape[3] != dim) {
      throw Error(ErrorCode::kShape, "inducing must have rows of embed_dim values");
    }
    output = Block(over_set, RepeatBatch(points, x.shape[0]), x, weights[0], o);
    if (kind == "isab") output = Block(back, x, output, weights[1], o);
  }
  return {{"output", 3, {output.shape[0], output.shape[2], dim}, output.values}};
}

}  // namespace heed::reference::induced_set
