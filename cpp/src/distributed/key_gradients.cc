#include "src/distributed/key_gradients.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

namespace heed::distributed {

KeyGradients::KeyGradients(const Whole& whole, bool wants_k, bool wants_v)
    : whole_(whole),
      wants_k_(wants_k),
      wants_v_(wants_v),
      tokens_(whole.KeyCounts()),
      sums_(MostCount()),
      arriving_(MostCount()),
      leaving_(MostCount()) {}

size_t KeyGradients::MostCount() const {
  size_t most = 0;
  for (int rank = 0; rank < whole_.size; ++rank) most = std::max(most, Count(rank));
  return most;
}

size_t KeyGradients::CountOf(const StoredTensor& tensor, bool wanted, int rank) const {
  if (!wanted) return 0;
  const int64_t tokens = tokens_[static_cast<size_t>(rank)];
  return static_cast<size_t>(tensor.shape[0] * tensor.shape[1] * tokens * tensor.shape[3]);
}

size_t KeyGradients::Count(int rank) const {
  return CountOf(whole_.k, wants_k_, rank) + CountOf(whole_.v, wants_v_, rank);
}

TensorView<float> KeyGradients::View(const KeptArray<float>& sums, const StoredTensor& like,
                                     bool wanted, int owner, size_t offset) const {
  if (!wanted) return {};
  return Contiguous(sums.data() + offset, like.shape[0], like.shape[1],
                    tokens_[static_cast<size_t>(owner)], like.shape[3]);
}

void KeyGradients::Begin(int owner) { std::fill_n(sums_.data(), Count(owner), 0.0f); }

void KeyGradients::Pass(int owner, Communicator& communicator) {
  if (!wants_k_ && !wants_v_) return;
  const size_t count = Count(owner);
  if (!first_step_) {
    std::transform(sums_.data(), sums_.data() + count, arriving_.data(), sums_.data(), std::plus());
  }
  first_step_ = false;
  std::swap(sums_, leaving_);
  const int next_owner = (owner - 1 + whole_.size) % whole_.size;
  communicator.BeginReceive((whole_.rank - 1 + whole_.size) % whole_.size,
                            std::as_writable_bytes(arriving_.first(Count(next_owner))));
  communicator.BeginSend((whole_.rank + 1) % whole_.size, std::as_bytes(leaving_.first(count)));
}

void AddTo(const TensorView<float>& sums, const TensorView<const float>& terms) {
  for (int64_t b = 0; b < terms.shape[0]; ++b) {
    for (int64_t h = 0; h < terms.shape[1]; ++h) {
      for (int64_t i = 0; i < terms.shape[2]; ++i) {
        float* to = &sums(b, h, i, 0);
        const float* from = &terms(b, h, i, 0);
        for (int64_t d = 0; d < terms.shape[3]; ++d) to[d] += from[d];
      }
    }
  }
}

}  // namespace heed::distributed
