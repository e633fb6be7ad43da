// The same mathematics over another SIMD library: an own tiled online softmax written with
// xsimd 13. It shares no line with heed's kernels, so a fault in either shows.
#include <memory>
#include <new>
#include <vector>
#include <xsimd/xsimd.hpp>

#include "native_bench/peer.h"
#include "native_bench/peers/xsimd/flash.h"

namespace heed::bench {
namespace {

using xsimd_peer::Kernel;

// The widest kernel that this machine runs. The question is asked here and not in the kernels' own
// files: an inline function compiled there may hold instructions that this machine lacks.
Kernel Widest() {
#if defined(HEED_BENCH_XSIMD_X86)
  const auto available = xsimd::available_architectures();
  if (available.has(xsimd::avx512bw{})) return xsimd_peer::Avx512Kernel();
  if (available.has(xsimd::fma3<xsimd::avx2>{})) return xsimd_peer::Avx2Kernel();
#endif
  return xsimd_peer::BaselineKernel();
}

const Kernel& Best() {
  static const Kernel best = Widest();
  return best;
}

std::string Details() { return std::string("xsimd architecture ") + Best().name; }

std::string Refuse(const Case& c) {
  if (c.mechanism != "scaled_dot_product") return "computes only scaled_dot_product";
  if (c.dtype != DType::kFloat32) return "computes float32 only";
  if (c.ValueDim() != c.head_dim) return "wants values as wide as keys";
  if (c.window_left.has_value() || c.softcap.has_value() || c.sinks) {
    return "knows no window, softcap or sinks";
  }
  if (c.head_dim % Best().lanes != 0) {
    return "wants a head_dim that is a multiple of " + std::to_string(Best().lanes);
  }
  return "";
}

struct Release {
  void operator()(float* data) const { ::operator delete[](data, std::align_val_t{64}); }
};
using Buffer = std::unique_ptr<float[], Release>;

Buffer Allocate(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  return Buffer(static_cast<float*>(::operator new[](bytes, std::align_val_t{64})));
}

xsimd_peer::Head HeadOf(const Problem& problem, int64_t index) {
  const Case& c = problem.shape();
  const int64_t batch = index / c.heads.num_heads;
  const int64_t h = index % c.heads.num_heads;
  const int64_t kv_head = h / (c.heads.num_heads / c.heads.num_kv_heads);
  return {.q = &problem.q()(batch, h, 0, 0),
          .k = &problem.k()(batch, kv_head, 0, 0),
          .v = &problem.v()(batch, kv_head, 0, 0),
          .output = &problem.output()(batch, h, 0, 0),
          .q_len = c.lengths.q_len,
          .kv_len = c.lengths.kv_len,
          .head_dim = c.head_dim,
          .causal = c.mask == Mask::kCausal,
          .query_offset = problem.query_offset()};
}

// Buffers of a prepared problem, kept between calls.
struct Workspace {
  Workspace(const Case& c, int workers)
      : packed_size(Best().packed_size(c.lengths.kv_len, c.head_dim)),
        packed(Allocate(c.batch * c.heads.num_kv_heads * packed_size)) {
    for (int i = 0; i < workers; ++i) {
      scratch.push_back(Allocate(Best().scratch_size(c.head_dim)));
    }
  }
  int64_t packed_size;
  Buffer packed;                // [batch * num_kv_heads][packed_size]
  std::vector<Buffer> scratch;  // one a worker
};

void Run(Problem& problem, ThreadPool& pool, Workspace& workspace) {
  const Case& c = problem.shape();
  const Kernel& kernel = Best();
  const int64_t group = c.heads.num_heads / c.heads.num_kv_heads;
  pool.Run(c.batch * c.heads.num_kv_heads, [&](int64_t kv_head, int) {
    kernel.pack(HeadOf(problem, kv_head * group),
                workspace.packed.get() + kv_head * workspace.packed_size);
  });
  const int64_t blocks = (c.lengths.q_len + kernel.block - 1) / kernel.block;
  const int64_t num_heads = c.batch * c.heads.num_heads;
  // Last blocks first: with a causal mask they are the longest.
  pool.Run(blocks * num_heads, [&](int64_t task, int worker) {
    const int64_t head = task % num_heads;
    kernel.attend(HeadOf(problem, head),
                  workspace.packed.get() + head / group * workspace.packed_size,
                  (blocks - 1 - task / num_heads) * kernel.block,
                  workspace.scratch[static_cast<size_t>(worker)].get());
  });
}

std::function<void()> Prepare(Problem& problem, ThreadPool& pool) {
  auto workspace = std::make_shared<Workspace>(problem.shape(), pool.NumThreads());
  return [&problem, &pool, workspace] { Run(problem, pool, *workspace); };
}

}  // namespace

Peer XsimdPeer() {
  return {.id = "xsimd",
          .summary = "an independent tiled online softmax in xsimd, keys packed once a call",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
