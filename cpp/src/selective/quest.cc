// Quest: pages are chosen by what their smallest and largest keys let a query score at most.
#include <algorithm>
#include <vector>

#include "src/cache/page_bounds.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/selective/choose.h"
#include "src/selective/dots.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

// The bound is a product: [max(q, 0), min(q, 0)] times [maxima, minima].
class PageChooser final : public Chooser {
 public:
  PageChooser(const AttentionProblem& p, const TensorView<const float>& q,
              const TensorView<const float>& k, int64_t page_size, ThreadPool& pool)
      : p_(p),
        page_size_(page_size),
        signed_(q.shape[0] * q.shape[1] == 0
                    ? Extents{0, 0, 0, 0}
                    : Extents{q.shape[0], q.shape[1], q.shape[2], 2 * q.shape[3]}) {
    ForEachRow(signed_.view().shape, pool, [&](int64_t b, int64_t h, int64_t i) {
      for (int64_t d = 0; d < p.head_dim; ++d) {
        const float x = q(b, h, i, d);
        signed_.view()(b, h, i, d) = x < 0 ? 0.0f : x;
        signed_.view()(b, h, i, p.head_dim + d) = x > 0 ? 0.0f : x;
      }
    });
    const int64_t pages = NumPages();
    for (int64_t n = 0; n < p.batch * p.num_kv_heads; ++n) {
      bounds_.emplace_back(pages, 2 * p.head_dim);
    }
    pool.Run(p.batch * p.num_kv_heads * pages, [&](int64_t task, int) {
      const int64_t unit = task / pages, page = task % pages;
      const DotPanels& bounds = bounds_[static_cast<size_t>(unit)];
      SetBounds(k, unit / p.num_kv_heads, unit % p.num_kv_heads, page, bounds);
      if (page == 0) bounds.FillGap();
    });
  }

  int64_t NumPages() const { return (p_.kv_len + page_size_ - 1) / page_size_; }

  int64_t Candidates(int64_t batch, int64_t query) const override {
    const int64_t pages = (p_.KeyLength(batch, query) + page_size_ - 1) / page_size_;
    const int64_t position = p_.Position(batch, query);
    return position < 0 ? 0 : std::min(pages, position / page_size_ + 1);
  }

  void Score(int64_t batch, int64_t list, int64_t first, size_t num_rows, int64_t count, int,
             double* scores, size_t stride) const override {
    const float* rows[kDotRows] = {};
    for (size_t r = 0; r < num_rows; ++r) {
      rows[r] = &signed_.view()(batch, list, first + static_cast<int64_t>(r), 0);
    }
    const int64_t unit = batch * p_.num_kv_heads + list / p_.group;
    ExactDots(rows, num_rows, bounds_[static_cast<size_t>(unit)], count, scores, stride);
    for (size_t r = 0; r < num_rows; ++r) {
      double* row = scores + r * stride;
      for (int64_t n = 0; n < count; ++n) row[n] = Comparable(row[n]);
      const int64_t position = p_.Position(batch, first + static_cast<int64_t>(r));
      if (position >= 0 && position / page_size_ < count) row[position / page_size_] = kCertain;
    }
  }

  double Flops() const override { return 4 * static_cast<double>(p_.head_dim); }

 private:
  void SetBounds(const TensorView<const float>& k, int64_t b, int64_t h, int64_t page,
                 const DotPanels& bounds) const {
    const int64_t begin = page * page_size_;
    const int64_t end = std::min(begin + page_size_, p_.KeyLength(b, 0));
    for (int64_t d = 0; d < p_.head_dim; ++d) {
      Bounds both;
      for (int64_t j = begin; j < end; ++j) both.Add(k(b, h, j, d));
      bounds.at(page, d) = both.max;
      bounds.at(page, p_.head_dim + d) = both.min;
    }
  }

  const AttentionProblem& p_;
  int64_t page_size_;
  OwnedTensor signed_;
  std::vector<DotPanels> bounds_;
};

}  // namespace

AttentionOptions ValidateQuest(const QuestOptions& o, int64_t batch) {
  CheckCount("page_size", o.page_size);
  CheckCount("pages", o.pages);
  CheckChoosable(o.attention, batch);
  AttentionOptions options = o.attention;
  options.causal = true;
  return options;
}

void QuestAttention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    const QuestOptions& options, const AttentionOutputs& outputs,
                    ThreadPool* pool) {
  AttentionProblem p = ValidateComposed(q, k, v, ValidateQuest(options, q.shape[0]), outputs);
  const PageChooser chooser(p, q, k, options.page_size, PoolOrDefault(pool));
  AttendToChosen(p, chooser, {p.num_heads, options.page_size, options.pages, chooser.NumPages()},
                 pool);
}

}  // namespace heed
