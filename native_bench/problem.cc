#include "native_bench/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "heed/registry.h"
#include "native_bench/words.h"

namespace heed::bench {

AnyTensor AsAnyTensor(TensorView<const float> view) {
  return {.dtype = DType::kFloat32,
          .data = const_cast<float*>(view.data),
          .rank = 4,
          .shape = view.shape,
          .strides = view.strides};
}

Problem::Buffer Problem::Allocate(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  return Buffer(static_cast<float*>(::operator new[](bytes, std::align_val_t{64})));
}

Problem::Buffer Problem::RandomNormal(int64_t count, uint64_t seed) {
  Buffer buffer = Allocate(count);
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::generate_n(buffer.get(), count, [&] { return normal(generator); });
  return buffer;
}

Problem::Problem(const Case& c, uint64_t seed)
    : shape_(c), width_(std::sqrt(static_cast<double>(c.head_dim))) {
  const int64_t q_count = c.batch * c.heads.num_heads * c.lengths.q_len * c.head_dim;
  const int64_t kv_count = c.batch * c.heads.num_kv_heads * c.lengths.kv_len * c.head_dim;
  q_ = RandomNormal(q_count, 3 * seed);
  k_ = RandomNormal(kv_count, 3 * seed + 1);
  v_ = RandomNormal(kv_count, 3 * seed + 2);
  output_ = Allocate(q_count);
  request_.id = c.mechanism;
  DescribeInputs();
  DescribeParams();
}

void Problem::DescribeInputs() {
  for (std::string_view word : SplitWords(FindMechanism(shape_.mechanism)->inputs)) {
    if (word == "q") {
      request_.inputs.push_back({"q", AsAnyTensor(q())});
    } else if (word == "k") {
      request_.inputs.push_back({"k", AsAnyTensor(k())});
    } else if (word == "v") {
      request_.inputs.push_back({"v", AsAnyTensor(v())});
    } else if (!word.ends_with('?')) {
      throw Error(ErrorCode::kUnsupported, shape_.mechanism + " requires the input '" +
                                               std::string(word) +
                                               "', which heed-bench cannot make");
    }
  }
}

void Problem::DescribeParams() {
  const std::string_view params = FindMechanism(shape_.mechanism)->params;
  if (HasWord(params, "width")) request_.params.push_back({"width", width_});
  if (shape_.mask == Mask::kCausal) {
    request_.params.push_back({"causal", true});
    request_.params.push_back({"query_offset", static_cast<double>(query_offset())});
  }
}

TensorView<const float> Problem::q() const {
  return Contiguous<const float>(q_.get(), shape_.batch, shape_.heads.num_heads,
                                 shape_.lengths.q_len, shape_.head_dim);
}

TensorView<const float> Problem::k() const {
  return Contiguous<const float>(k_.get(), shape_.batch, shape_.heads.num_kv_heads,
                                 shape_.lengths.kv_len, shape_.head_dim);
}

TensorView<const float> Problem::v() const {
  return Contiguous<const float>(v_.get(), shape_.batch, shape_.heads.num_kv_heads,
                                 shape_.lengths.kv_len, shape_.head_dim);
}

TensorView<float> Problem::output() const {
  return Contiguous(output_.get(), shape_.batch, shape_.heads.num_heads, shape_.lengths.q_len,
                    shape_.head_dim);
}

NamedTensor Problem::output_tensor() const { return {"output", AsAnyTensor(output())}; }

void Problem::FillOutputWithNan() {
  std::fill_n(output_.get(), output().size(), std::numeric_limits<float>::quiet_NaN());
}

}  // namespace heed::bench
