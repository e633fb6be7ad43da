// The boundary of Linear and Bmm.
#include "heed/linear.h"

#include <string>

#include "src/linear/gemm.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/output_spans.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// The packing reads contiguous runs along one dimension of the second matrix.
void CheckUnitStride(std::string_view name, const TensorView<const float>& view) {
  CheckPresent(name, view);
  const bool rows = view.shape[3] <= 1 || view.strides[3] == 1;
  const bool cols = view.shape[2] <= 1 || view.strides[2] == 1;
  if (rows || cols) return;
  Fail(ErrorCode::kShape,
       "{} has strides {}; one of its last two dimensions must be contiguous (1)",
       {name, view.strides});
}

// Strides of dimensions of extent 0 or 1 are never stepped over: makes the unit stride visible.
TensorView<const float> WithUnitStride(TensorView<const float> view) {
  if (view.shape[3] <= 1 && view.strides[2] != 1) view.strides[3] = 1;
  if (view.shape[2] <= 1 && view.strides[3] != 1) view.strides[2] = 1;
  return view;
}

int64_t BroadcastExtent(const char* what, int64_t a, int64_t b) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  Fail(ErrorCode::kShape, "a and b have {} and {} {}; they must be equal, or one of them 1",
       {a, b, what});
}

TensorView<const float> WithOuterExtents(TensorView<const float> view, int64_t batch,
                                         int64_t heads) {
  if (view.shape[0] == 1) view.strides[0] = 0;
  if (view.shape[1] == 1) view.strides[1] = 0;
  view.shape[0] = batch;
  view.shape[1] = heads;
  return view;
}

}  // namespace

void Linear(TensorView<const float> x, TensorView<const float> weight, std::span<const float> bias,
            TensorView<float> out, ThreadPool* pool) {
  WithMemoryErrors("a linear layer", [&] {
    CheckInput("x", x);
    CheckUnitStride("weight", weight);
    const int64_t out_dim = weight.shape[2];
    CheckShape("weight", weight.shape, {1, 1, out_dim, x.shape[3]},
               "[1, 1, out_dim, in_dim], in_dim as in x");
    if (!bias.empty() && bias.size() != static_cast<size_t>(out_dim)) {
      Fail(ErrorCode::kShape, "bias has {} values; expected out_dim = {}", {bias.size(), out_dim});
    }
    CheckOutput("out", out, {x.shape[0], x.shape[1], x.shape[2], out_dim},
                "[batch, heads, len, out_dim]");
    OutputSpans({{"out", out}})
        .ApartFrom("x", x)
        .ApartFrom("weight", weight)
        .ApartFrom("bias", bias);
    const TensorView<const float> b = TransposedView(WithUnitStride(weight));
    Gemm({x, WithOuterExtents(b, x.shape[0], x.shape[1]), bias, out},
         pool != nullptr ? *pool : DefaultThreadPool());
  });
}

void Bmm(TensorView<const float> a, TensorView<const float> b, TensorView<float> out,
         ThreadPool* pool) {
  WithMemoryErrors("a matrix product", [&] {
    CheckInput("a", a);
    CheckUnitStride("b", b);
    const int64_t batch = BroadcastExtent("batch entries", a.shape[0], b.shape[0]);
    const int64_t heads = BroadcastExtent("heads", a.shape[1], b.shape[1]);
    CheckShape("b", b.shape, {b.shape[0], b.shape[1], a.shape[3], b.shape[3]},
               "[batch, heads, k, n], k as in a");
    CheckOutput("out", out, {batch, heads, a.shape[2], b.shape[3]}, "[batch, heads, m, n]");
    OutputSpans({{"out", out}}).ApartFrom("a", a).ApartFrom("b", b);
    Gemm({WithOuterExtents(a, batch, heads),
          WithOuterExtents(WithUnitStride(b), batch, heads),
          {},
          out},
         pool != nullptr ? *pool : DefaultThreadPool());
  });
}

}  // namespace heed
