#include <algorithm>

#include "heed/training/layers.h"
#include "src/parallel/pieces.h"
#include "src/training/checks.h"

namespace heed::training {

EmbeddingLayer::EmbeddingLayer(ParameterSet& parameters, const std::string& name, int64_t count,
                               int64_t dim, double deviation)
    : table_(WithMemoryErrors("an embedding", [&] {
        return &parameters.Add(name + ".weight", {count, dim}, {.deviation = deviation});
      })) {}

const Matrix& EmbeddingLayer::Forward(std::span<const int32_t> ids, ThreadPool* pool) {
  WithMemoryErrors("an embedding", [&] {
    const int64_t count = table_->shape[0], dim = table_->shape[1];
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && ids[i] < count) continue;
      Fail(ErrorCode::kRange, "ids[{}] = {}; rows of {} lie in [0, {})",
           {i, ids[i], table_->name, count});
    }
    ids_.clear();
    y_.Resize(static_cast<int64_t>(ids.size()), dim);
    MakeRoom("ids", y_.rows(), ids_);
    std::copy(ids.begin(), ids.end(), ids_.begin());
    ForEachRows(y_.rows(), dim, pool, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::copy_n(table_->value.data() + ids_[static_cast<size_t>(i)] * dim, dim, y_.Row(i));
      }
    });
  });
  return y_;
}

void EmbeddingLayer::Backward(const Matrix& d_y, ThreadPool* pool) {
  WithMemoryErrors("an embedding", [&] {
    CheckHasForward(y_.dim() > 0);
    CheckSize("d_y", d_y, static_cast<int64_t>(ids_.size()), y_.dim());
    const int64_t dim = d_y.dim();
    AddToTable(
        d_y.rows(), dim, pool, table_->gradient.data(),
        [&](int64_t i) { return ids_[static_cast<size_t>(i)]; },
        [&](int64_t i) { return [d = d_y.Row(i)](int64_t c) { return d[c]; }; });
  });
}

}  // namespace heed::training
