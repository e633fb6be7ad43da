// Which normaliser that streams sits in its socket for one problem.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/exact/plugs_normalize.cc"
#include <memory>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/normalize/kernel_sum-inl.h"
#include "src/exact/normalize/pointwise-inl.h"
#include "src/exact/normalize/softmax-inl.h"
#include "src/exact/plugs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace {

std::unique_ptr<NormalizePlug> MakeSoftmax(const AttentionProblem& p) {
  const float sink = p.options.normalize == Normalize::kSoftmax1 ? 0.0f : kMinusInfinity;
  if (FoldsLog2E(p)) return std::make_unique<Softmax<Log2Units>>(p.options.sinks, sink);
  return std::make_unique<Softmax<NaturalUnits>>(p.options.sinks, sink);
}

std::unique_ptr<NormalizePlug> MakeKernelSum(const AttentionProblem& p) {
  switch (p.options.kernel) {
    case Kernel::kBoxcar:
      return std::make_unique<KernelSum<BoxcarKernel>>();
    case Kernel::kTriangular:
      return std::make_unique<KernelSum<TriangularKernel>>();
    case Kernel::kEpanechnikov:
      return std::make_unique<KernelSum<EpanechnikovKernel>>();
    case Kernel::kConstant:
      return std::make_unique<KernelSum<ConstantKernel>>();
    case Kernel::kGaussian:
      break;
  }
  return MakeSoftmax(p);
}

}  // namespace

std::unique_ptr<NormalizePlug> MakeNormalize(const AttentionProblem& p) {
  const Normalize normalize = p.options.normalize;
  if (normalize == Normalize::kSoftmax || normalize == Normalize::kSoftmax1) return MakeSoftmax(p);
  if (normalize == Normalize::kKernelSum) return MakeKernelSum(p);
  std::unique_ptr<NormalizePlug> plug;
  WithPointwise(p, [&]<class Weight>(Weight weight, double power) {
    plug = std::make_unique<Pointwise<Weight>>(weight, power);
  });
  return plug;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
