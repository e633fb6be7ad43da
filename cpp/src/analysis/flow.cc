// heed::AttentionFlow: maximum flows through a layered graph, by Dinic's blocking flows.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "heed/analysis.h"
#include "src/analysis/weights_problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// Node (level, token) = level * len + token: level `layers` on top, level 0 below the first layer.
// Edges go one level down; the rest of an edge and what could be taken back are both matrices.
class LayeredFlow {
 public:
  LayeredFlow(int64_t layers, int64_t len)
      : layers_(static_cast<size_t>(layers)), len_(static_cast<size_t>(len)) {
    down_.resize(layers_ * len_ * len_);
    up_.resize(down_.size());
    distance_.resize((layers_ + 1) * len_);
    next_.resize(distance_.size());
    queue_.resize(distance_.size());
    path_.resize(distance_.size());
  }

  // The largest flow from `source` on top to `sink` at the bottom of a batch entry's maps.
  double Max(const TensorView<const float>& maps, int64_t b, size_t source, size_t sink) {
    for (size_t l = 0; l < layers_; ++l) {
      for (size_t i = 0; i < len_; ++i) {
        const float* row = &maps(b, static_cast<int64_t>(l), static_cast<int64_t>(i), 0);
        std::copy_n(row, len_, &down_[(l * len_ + i) * len_]);
      }
    }
    std::fill(up_.begin(), up_.end(), 0.0);
    const size_t from = layers_ * len_ + source;
    double flow = 0;
    while (Label(from, sink)) {
      std::fill(next_.begin(), next_.end(), size_t{0});
      for (double more = Push(from, sink); more > 0; more = Push(from, sink)) flow += more;
    }
    return flow;
  }

 private:
  static constexpr size_t kUnseen = std::numeric_limits<size_t>::max();

  // Neighbours n < len are tokens of the level below, the others of the level above.
  double* Edge(size_t node, size_t n) {
    const size_t level = node / len_, token = node % len_;
    if (n < len_) return level == 0 ? nullptr : &down_[((level - 1) * len_ + token) * len_ + n];
    return level == layers_ ? nullptr : &up_[(level * len_ + (n - len_)) * len_ + token];
  }
  double* Back(size_t node, size_t n) {
    const size_t level = node / len_, token = node % len_;
    return n < len_ ? &up_[((level - 1) * len_ + token) * len_ + n]
                    : &down_[(level * len_ + (n - len_)) * len_ + token];
  }
  size_t Neighbour(size_t node, size_t n) const {
    return n < len_ ? (node / len_ - 1) * len_ + n : (node / len_ + 1) * len_ + (n - len_);
  }

  // Breadth-first distances over edges with something left; false when the sink is out of reach.
  bool Label(size_t from, size_t sink) {
    std::fill(distance_.begin(), distance_.end(), kUnseen);
    distance_[from] = 0;
    queue_[0] = from;
    for (size_t head = 0, tail = 1; head < tail; ++head) {
      const size_t node = queue_[head];
      for (size_t n = 0; n < 2 * len_; ++n) {
        const double* edge = Edge(node, n);
        if (edge == nullptr || !(*edge > 0)) continue;
        const size_t to = Neighbour(node, n);
        if (distance_[to] != kUnseen) continue;
        distance_[to] = distance_[node] + 1;
        queue_[tail++] = to;
      }
    }
    return distance_[sink] != kUnseen;
  }

  // Sends as much as one path of the labels can carry; 0 when there is none left.
  double Push(size_t from, size_t sink) {
    size_t depth = 0;
    path_[0] = from;
    while (path_[depth] != sink) {
      const size_t node = path_[depth];
      if (Advance(node)) {
        path_[++depth] = Neighbour(node, next_[node]);
      } else if (depth == 0) {
        return 0;
      } else {
        ++next_[path_[--depth]];  // a dead end
      }
    }
    double most = std::numeric_limits<double>::infinity();
    for (size_t d = 0; d < depth; ++d) most = std::min(most, *Edge(path_[d], next_[path_[d]]));
    for (size_t d = 0; d < depth; ++d) {
      *Edge(path_[d], next_[path_[d]]) -= most;
      *Back(path_[d], next_[path_[d]]) += most;
    }
    return most;
  }

  // Moves next_[node] to an edge of the labels that has something left.
  bool Advance(size_t node) {
    for (size_t& n = next_[node]; n < 2 * len_; ++n) {
      const double* edge = Edge(node, n);
      if (edge == nullptr || !(*edge > 0)) continue;
      if (distance_[Neighbour(node, n)] == distance_[node] + 1) return true;
    }
    return false;
  }

  size_t layers_;
  size_t len_;
  std::vector<double> down_, up_;  // [layer][token above][token below]
  std::vector<size_t> distance_, next_, queue_, path_;
};

void CheckMaps(const TensorView<const float>& maps) {
  CheckInput("maps", maps);
  const auto [batch, layers, rows, len] = maps.shape;
  if (rows != len) {
    Fail(ErrorCode::kShape, "maps has shape {}; expected [batch, layers, len, len]", {maps.shape});
  }
  const int64_t most = len == 0 ? kMaxFlowEdges : kMaxFlowEdges / len / len;
  if (layers < 1 || layers > most) {
    Fail(ErrorCode::kRange,
         "maps has {} layers of len {}; expected at least 1 and layers * len^2 <= {}",
         {layers, len, kMaxFlowEdges});
  }
  if (maps.size() == 0) return;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t l = 0; l < layers; ++l) {
      for (int64_t i = 0; i < len; ++i) {
        for (int64_t j = 0; j < len; ++j) {
          const float capacity = maps(b, l, i, j);
          if (capacity >= 0 && capacity < std::numeric_limits<float>::infinity()) continue;
          Fail(ErrorCode::kRange, "maps holds {}; capacities are finite and >= 0",
               {static_cast<double>(capacity)});
        }
      }
    }
  }
}

}  // namespace

void AttentionFlow(TensorView<const float> maps, std::span<const int64_t> sources,
                   TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("attention flow", [&] {
    CheckMaps(maps);
    const int64_t len = maps.shape[2];
    for (const int64_t source : sources) {
      if (source >= 0 && source < len) continue;
      Fail(ErrorCode::kRange, "sources holds {}; tokens lie in [0, {})", {source, len});
    }
    const int64_t num = static_cast<int64_t>(sources.size());
    if (!output.has_value()) Fail(ErrorCode::kOption, "output is missing");
    CheckOutput("output", output, {maps.shape[0], 1, num, len}, "[batch, 1, sources, len]");
    OutputSpans({{"output", output}}).ApartFrom("maps", maps).ApartFrom("sources", sources);
    if (output.size() == 0) return;
    ThreadPool& threads = PoolOrDefault(pool);
    std::vector<LayeredFlow> flows(static_cast<size_t>(threads.NumThreads()),
                                   LayeredFlow(maps.shape[1], len));
    threads.Run(output.size(), [&](int64_t index, int worker) {
      const int64_t j = index % len;
      const int64_t n = index / len % num;
      const int64_t b = index / len / num;
      const size_t source = static_cast<size_t>(sources[static_cast<size_t>(n)]);
      output(b, 0, n, j) = static_cast<float>(
          flows[static_cast<size_t>(worker)].Max(maps, b, source, static_cast<size_t>(j)));
    });
  });
}

}  // namespace heed
