// Attention over all ranks' keys from what each rank has attended to.
#include "heed/merge.h"

#include <span>
#include <vector>

#include "heed/distributed.h"
#include "src/distributed/agreement.h"
#include "src/message.h"
#include "src/output_spans.h"
#include "src/view_checks.h"

namespace heed::distributed {
namespace {

constexpr const char* kWhat = "merged attention of ranks";

struct Shapes {
  Extents output{}, lse{};
};

Shapes Validate(const PartialAttention& mine, const TensorView<float>& output,
                const TensorView<float>& lse) {
  CheckInput("mine.output", mine.output);
  CheckInput("mine.lse", mine.lse);
  const Extents& shape = mine.output.shape;
  const Shapes shapes = {shape, {shape[0], shape[1], shape[2], 1}};
  CheckShape("mine.lse", mine.lse.shape, shapes.lse, "[batch, num_heads, q_len, 1]");
  if (!output.has_value() && mine.output.size() > 0) {
    Fail(ErrorCode::kOption, "output is missing");
  }
  CheckOutput("output", output, shape, "[batch, num_heads, q_len, head_dim_v], as mine.output");
  if (lse.has_value()) CheckOutput("lse", lse, shapes.lse, "[batch, num_heads, q_len, 1]");
  CheckSameOrApart("output", output, "mine.output", mine.output);
  CheckNoAlias("output", output, "mine.lse", mine.lse);
  CheckNoAlias("lse", lse, "mine.output", mine.output);
  CheckSameOrApart("lse", lse, "mine.lse", mine.lse);
  CheckNoAlias("output", output, "lse", lse);
  return shapes;
}

size_t CountOf(const Extents& shape) {
  return static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
}

TensorView<const float> View(const float* values, const Extents& shape) {
  return Contiguous(values, shape[0], shape[1], shape[2], shape[3]);
}

void Append(const TensorView<const float>& view, std::vector<float>& to) {
  for (int64_t b = 0; b < view.shape[0]; ++b) {
    for (int64_t h = 0; h < view.shape[1]; ++h) {
      for (int64_t i = 0; i < view.shape[2]; ++i) {
        const float* row = &view(b, h, i, 0);
        to.insert(to.end(), row, row + view.shape[3]);
      }
    }
  }
}

}  // namespace

void Merge(const PartialAttention& mine, TensorView<float> output, TensorView<float> lse,
           Communicator& communicator, ThreadPool* pool) {
  WithMemoryErrors(kWhat, [&] {
    CheckCommunicator(communicator);
    Shapes shapes;
    std::vector<float> packed, all;
    std::vector<PartialAttention> states;
    Failure failure;
    failure.Catch(kWhat, [&] {
      shapes = Validate(mine, output, lse);
      packed.reserve(CountOf(shapes.output) + CountOf(shapes.lse));
      Append(mine.output, packed);
      Append(mine.lse, packed);
      states.resize(static_cast<size_t>(communicator.Size()));
      all.resize(packed.size() * states.size());
    });
    Terms terms;
    terms.Add("batch", shapes.output[0]);
    terms.Add("num_heads", shapes.output[1]);
    terms.Add("q_len", shapes.output[2]);
    terms.Add("head_dim_v", shapes.output[3]);
    Agree(communicator, failure.error(), terms);
    AllGather<float>(communicator, packed, all);
    const float* state = all.data();
    for (PartialAttention& rank : states) {
      rank = {View(state, shapes.output), View(state + CountOf(shapes.output), shapes.lse)};
      state += packed.size();
    }
    heed::Merge(states, output, lse, pool);
  });
}

}  // namespace heed::distributed
