// Linformer: softmax(scale Q (E K)^T) F V.
//
// Source: Wang et al. 2020, arXiv:2006.04768, equation 7.
#include <vector>

#include "inputs.h"
#include "low_rank.h"

namespace heed::reference::linformer {
namespace {

Array ReadProjection(const Request& request, const char* name, const Qkv& qkv) {
  const AnyTensor& tensor = *FindInput(request, name);
  const Array projection = *ReadFloats(request, name, tensor.rank == 3 ? 3 : 2);
  const int64_t heads = projection.shape[1];
  if ((heads != 1 && heads != qkv.num_kv_heads) || projection.shape[3] < qkv.kv_len) {
    throw Error(ErrorCode::kShape, Describe(name, tensor) + ": does not fit k");
  }
  return projection;
}

// Rows of a projection times the tokens of each batch entry within its length.
Array Project(const Array& projection, const Array& tokens, const std::vector<int64_t>& lengths) {
  Array to;
  to.shape = {tokens.shape[0], tokens.shape[1], projection.shape[2], tokens.shape[3]};
  for (int64_t b = 0; b < to.shape[0]; ++b) {
    for (int64_t h = 0; h < to.shape[1]; ++h) {
      for (int64_t n = 0; n < to.shape[2]; ++n) {
        for (int64_t d = 0; d < to.shape[3]; ++d) {
          double sum = 0.0;
          for (int64_t j = 0; j < lengths[b]; ++j) {
            sum += projection(0, h, n, j) * tokens(b, h, j, d);
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
  const Array e = ReadProjection(request, "key_projection", qkv);
  const bool own = FindInput(request, "value_projection") != nullptr;
  const Array f = own ? ReadProjection(request, "value_projection", qkv) : e;
  if (f.shape[2] != e.shape[2]) {
    throw Error(ErrorCode::kShape, "value_projection has not as many rows as key_projection");
  }
  qkv.k = Project(e, qkv.k, lengths);
  qkv.v = Project(f, qkv.v, lengths);
  qkv.kv_len = e.shape[2];
  return AttendTo(request, qkv, [&](int64_t b, int64_t, int64_t) { return lengths[b] > 0; });
}

}  // namespace heed::reference::linformer
