// MultiHeadAttention: the layer that owns its weights, and the two formats that it loads.
#include <algorithm>
#include <string>

#include "heed/layers.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// A size that was left at 0 takes its default.
int64_t OrDefault(int64_t size, int64_t default_size) { return size == 0 ? default_size : size; }

MultiHeadAttentionSizes WithDefaults(MultiHeadAttentionSizes s) {
  const int64_t given[] = {s.embed_dim,  s.num_heads, s.num_kv_heads, s.head_dim,
                           s.head_dim_v, s.kdim,      s.vdim};
  const char* names[] = {"embed_dim",  "num_heads", "num_kv_heads", "head_dim",
                         "head_dim_v", "kdim",      "vdim"};
  // Products of two sizes and sums of a few of those must be addressable.
  constexpr int64_t kLargest = int64_t{1} << 28;
  for (int n = 0; n < 7; ++n) {
    const bool required = n < 2;
    if (given[n] >= (required ? 1 : 0) && given[n] <= kLargest) continue;
    Fail(ErrorCode::kRange, "{} = {}; it must be between 1 and 2^28", {names[n], given[n]});
  }
  s.num_kv_heads = OrDefault(s.num_kv_heads, s.num_heads);
  if (s.num_heads % s.num_kv_heads != 0) {
    Fail(ErrorCode::kRange, "num_heads = {} must be a multiple of num_kv_heads = {}",
         {s.num_heads, s.num_kv_heads});
  }
  if (s.head_dim == 0 && s.embed_dim % s.num_heads != 0) {
    Fail(ErrorCode::kRange, "embed_dim = {} must be a multiple of num_heads = {}, or give head_dim",
         {s.embed_dim, s.num_heads});
  }
  s.head_dim = OrDefault(s.head_dim, s.embed_dim / s.num_heads);
  s.head_dim_v = OrDefault(s.head_dim_v, s.head_dim);
  s.kdim = OrDefault(s.kdim, s.embed_dim);
  s.vdim = OrDefault(s.vdim, s.embed_dim);
  return s;
}

std::vector<int64_t> ShapeOf(const AnyTensor& tensor) {
  return {tensor.shape.begin(), tensor.shape.begin() + tensor.rank};
}

std::string ListText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

// Named tensors of which every one must be taken.
class StateReader {
 public:
  explicit StateReader(std::span<const NamedTensor> tensors)
      : tensors_(tensors), taken_(tensors.size(), false) {}

  bool Has(std::string_view name) const {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&](const NamedTensor& t) { return t.name == name; });
  }

  // The elements in the order of the shape, which must be `expected`.
  std::vector<float> Take(std::string_view name, const std::vector<int64_t>& expected) {
    for (size_t n = 0; n < tensors_.size(); ++n) {
      if (tensors_[n].name != name) continue;
      if (taken_[n]) Fail(ErrorCode::kOption, "{} is given twice", {name});
      taken_[n] = true;
      return Copy(name, tensors_[n].tensor, expected);
    }
    Fail(ErrorCode::kOption, "{} is missing", {name});
  }

  void CheckAllTaken() const {
    for (size_t n = 0; n < tensors_.size(); ++n) {
      if (taken_[n]) continue;
      const bool twice = std::count_if(tensors_.begin(), tensors_.end(), [&](const auto& t) {
                           return t.name == tensors_[n].name;
                         }) > 1;
      Fail(ErrorCode::kOption, "{}{}",
           {tensors_[n].name, (twice ? " is given twice"
                                     : " is not a weight of this layer, as its "
                                       "sizes and flags are")});
    }
  }

 private:
  static std::vector<float> Copy(std::string_view name, const AnyTensor& tensor,
                                 const std::vector<int64_t>& expected) {
    if (tensor.dtype != DType::kFloat32) Fail(ErrorCode::kDType, "{} must be float32", {name});
    if (tensor.rank < 0 || tensor.rank > 4 || ShapeOf(tensor) != expected) {
      Fail(ErrorCode::kShape, "{} has shape {}; expected {}",
           {name, ListText(ShapeOf(tensor)), ListText(expected)});
    }
    Extents shape = {1, 1, 1, 1};
    Extents strides = {};
    for (size_t axis = 0; axis < expected.size(); ++axis) {
      shape[4 - expected.size() + axis] = expected[axis];
      strides[4 - expected.size() + axis] = tensor.strides[axis];
    }
    const TensorView<const float> view = {static_cast<const float*>(tensor.data), shape, strides};
    CheckPresent(name, view);
    std::vector<float> values;
    values.reserve(static_cast<size_t>(view.size()));
    for (int64_t a = 0; a < shape[0]; ++a) {
      for (int64_t b = 0; b < shape[1]; ++b) {
        for (int64_t c = 0; c < shape[2]; ++c) {
          for (int64_t d = 0; d < shape[3]; ++d) values.push_back(view(a, b, c, d));
        }
      }
    }
    return values;
  }

  std::span<const NamedTensor> tensors_;
  std::vector<bool> taken_;
};

// The next `count` values.
std::vector<float> Next(std::vector<float>::const_iterator& from, int64_t count) {
  std::vector<float> part(from, from + count);
  from += count;
  return part;
}

// [in, out] from [out, in].
std::vector<float> Transposed(const std::vector<float>& values, int64_t rows, int64_t cols) {
  std::vector<float> result(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      result[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * cols + c)];
    }
  }
  return result;
}

TensorView<const float> View(const std::vector<float>& values, int64_t a, int64_t b, int64_t c) {
  return Contiguous(values.data(), 1, a, b, c);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionSizes& sizes)
    : sizes_(WithDefaults(sizes)) {
  const MultiHeadAttentionSizes& s = sizes_;
  const auto zeros = [](int64_t rows, int64_t cols) {
    return std::vector<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  };
  const int64_t q = s.num_heads * s.head_dim;
  const int64_t k = s.num_kv_heads * s.head_dim;
  const int64_t v = s.num_kv_heads * s.head_dim_v;
  WithMemoryErrors("the weights of a layer", [&] {
    storage_.w_q = zeros(q, s.embed_dim);
    storage_.w_k = zeros(k, s.kdim);
    storage_.w_v = zeros(v, s.vdim);
    storage_.w_o = zeros(s.embed_dim, s.num_heads * s.head_dim_v);
    if (s.bias) {
      storage_.b_q = zeros(q, 1);
      storage_.b_k = zeros(k, 1);
      storage_.b_v = zeros(v, 1);
      storage_.b_o = zeros(s.embed_dim, 1);
    }
    if (s.add_bias_kv) {
      storage_.bias_k = zeros(k, 1);
      storage_.bias_v = zeros(v, 1);
    }
  });
}

void MultiHeadAttention::LoadStateDict(std::span<const NamedTensor> state) {
  WithMemoryErrors("the weights of a layer", [&] {
    const MultiHeadAttentionSizes& s = sizes_;
    const int64_t q = s.num_heads * s.head_dim;
    const int64_t k = s.num_kv_heads * s.head_dim;
    const int64_t v = s.num_kv_heads * s.head_dim_v;
    const int64_t e = s.embed_dim;
    StateReader reader(state);
    Storage next;
    if (s.kdim == e && s.vdim == e && !reader.Has("q_proj_weight")) {
      const std::vector<float> all = reader.Take("in_proj_weight", {q + k + v, e});
      auto from = all.begin();
      next.w_q = Next(from, q * e);
      next.w_k = Next(from, k * e);
      next.w_v = Next(from, v * e);
    } else {
      next.w_q = reader.Take("q_proj_weight", {q, e});
      next.w_k = reader.Take("k_proj_weight", {k, s.kdim});
      next.w_v = reader.Take("v_proj_weight", {v, s.vdim});
    }
    next.w_o = reader.Take("out_proj.weight", {e, s.num_heads * s.head_dim_v});
    if (s.bias) {
      const std::vector<float> all = reader.Take("in_proj_bias", {q + k + v});
      auto from = all.begin();
      next.b_q = Next(from, q);
      next.b_k = Next(from, k);
      next.b_v = Next(from, v);
      next.b_o = reader.Take("out_proj.bias", {e});
    }
    if (s.add_bias_kv) {
      next.bias_k = reader.Take("bias_k", {1, 1, k});
      next.bias_v = reader.Take("bias_v", {1, 1, v});
    }
    reader.CheckAllTaken();
    storage_ = std::move(next);
  });
}

void MultiHeadAttention::LoadKerasWeights(std::span<const NamedTensor> weights) {
  WithMemoryErrors("the weights of a layer", [&] {
    const MultiHeadAttentionSizes& s = sizes_;
    if (s.add_bias_kv) Fail(ErrorCode::kUnsupported, "Keras has no bias_k and bias_v");
    StateReader reader(weights);
    Storage next;
    const auto kernel = [&](std::string_view name, int64_t in, int64_t heads, int64_t dim) {
      return Transposed(reader.Take(name, {in, heads, dim}), in, heads * dim);
    };
    next.w_q = kernel("query/kernel", s.embed_dim, s.num_heads, s.head_dim);
    next.w_k = kernel("key/kernel", s.kdim, s.num_kv_heads, s.head_dim);
    next.w_v = kernel("value/kernel", s.vdim, s.num_kv_heads, s.head_dim_v);
    next.w_o =
        Transposed(reader.Take("attention_output/kernel", {s.num_heads, s.head_dim_v, s.embed_dim}),
                   s.num_heads * s.head_dim_v, s.embed_dim);
    if (s.bias) {
      next.b_q = reader.Take("query/bias", {s.num_heads, s.head_dim});
      next.b_k = reader.Take("key/bias", {s.num_kv_heads, s.head_dim});
      next.b_v = reader.Take("value/bias", {s.num_kv_heads, s.head_dim_v});
      next.b_o = reader.Take("attention_output/bias", {s.embed_dim});
    }
    reader.CheckAllTaken();
    storage_ = std::move(next);
  });
}

MultiHeadWeights MultiHeadAttention::weights() const {
  const MultiHeadAttentionSizes& s = sizes_;
  MultiHeadWeights w;
  w.w_q = View(storage_.w_q, s.num_heads, s.head_dim, s.embed_dim);
  w.w_k = View(storage_.w_k, s.num_kv_heads, s.head_dim, s.kdim);
  w.w_v = View(storage_.w_v, s.num_kv_heads, s.head_dim_v, s.vdim);
  w.w_o = View(storage_.w_o, s.embed_dim, s.num_heads, s.head_dim_v);
  w.b_q = storage_.b_q;
  w.b_k = storage_.b_k;
  w.b_v = storage_.b_v;
  w.b_o = storage_.b_o;
  w.bias_k = storage_.bias_k;
  w.bias_v = storage_.bias_v;
  return w;
}

void MultiHeadAttention::Forward(TensorView<const float> query, TensorView<const float> key,
                                 TensorView<const float> value, const MultiHeadOptions& options,
                                 const MultiHeadOutputs& outputs, ThreadPool* pool) const {
  MultiHead(query, key, value, weights(), options, outputs, pool);
}

}  // namespace heed
