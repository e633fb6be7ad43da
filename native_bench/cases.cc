#include "native_bench/cases.h"

#include <algorithm>
#include <regex>

#include "heed/registry.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

const Mechanism& Lookup(const std::string& id) {
  const Mechanism* mechanism = FindMechanism(id);
  if (mechanism != nullptr) return *mechanism;
  throw Error(ErrorCode::kOption,
              "--mechanisms: '" + id + "' is not an id of heed; --list prints them");
}

// Whether the mechanism has every parameter and input that the case wants.
bool Takes(const Mechanism& mechanism, const Case& c) {
  const auto param = [&](std::string_view name) { return HasWord(mechanism.params, name); };
  if (c.mask == Mask::kCausal && !param("causal")) return false;
  if (c.window_left.has_value() && !param("window_left")) return false;
  if (c.softcap.has_value() && !param("softcap")) return false;
  return !c.sinks || HasWord(mechanism.inputs, "sinks") || HasWord(mechanism.inputs, "sinks?");
}

// The axes that tensors are made of.
std::vector<Case> Shapes(const Grid& grid) {
  std::vector<Case> shapes = grid.shapes;
  for (Case& shape : shapes) shape.batch = grid.batch;
  if (!shapes.empty()) return shapes;
  for (const Heads& heads : grid.heads) {
    for (int64_t head_dim : grid.head_dims) {
      for (const Lengths& lengths : grid.lengths) {
        for (Mask mask : grid.masks) {
          shapes.push_back({.mechanism = "",
                            .batch = grid.batch,
                            .heads = heads,
                            .lengths = lengths,
                            .head_dim = head_dim,
                            .mask = mask});
        }
      }
    }
  }
  return shapes;
}

}  // namespace

bool IsAlwaysCausal(const std::string& mechanism) {
  const Mechanism& row = Lookup(mechanism);
  return HasWord(row.capabilities, "causal") && !HasWord(row.params, "causal");
}

std::regex CompileFilter(const std::string& filter) {
  try {
    return std::regex(filter);
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kOption,
                "--filter: '" + filter + "' is not a regular expression: " + error.what());
  }
}

const char* MaskName(Mask mask) { return mask == Mask::kCausal ? "causal" : "full"; }

const char* DeviceName(Device device) { return device == Device::kCuda ? "cuda" : "cpu"; }

std::string Case::Name() const {
  std::string name = model.empty() ? mechanism : model + "/" + mechanism;
  if (batch != 1) name += "/b" + std::to_string(batch);
  name += "/h" + std::to_string(heads.num_heads);
  if (heads.num_kv_heads != heads.num_heads) name += ":" + std::to_string(heads.num_kv_heads);
  name += "/d" + std::to_string(head_dim);
  if (ValueDim() != head_dim) name += ":" + std::to_string(ValueDim());
  name += "/l" + std::to_string(lengths.q_len);
  if (lengths.kv_len != lengths.q_len) name += "x" + std::to_string(lengths.kv_len);
  name += std::string("/") + MaskName(mask);
  if (window_left.has_value()) name += "/w" + std::to_string(*window_left);
  if (softcap.has_value()) name += "/cap" + std::to_string(static_cast<int64_t>(*softcap));
  if (sinks) name += "/sinks";
  if (alibi) name += "/alibi";
  if (key_length.has_value()) {
    name += std::string(device_lengths ? "/device_keys" : "/keys") + std::to_string(*key_length);
  }
  if (dtype != DType::kFloat32) name += std::string("/") + DTypeName(dtype);
  return name + (device == Device::kCuda ? "/cuda" : "/t" + std::to_string(threads));
}

double FlopCount(const Case& c) {
  const double q_len = static_cast<double>(c.lengths.q_len);
  const double kv_len = static_cast<double>(c.lengths.kv_len);
  double pairs = q_len * kv_len;
  if (c.mask == Mask::kCausal) {
    // With more queries than keys the first q_len - kv_len rows see nothing.
    const double rows = std::min(q_len, kv_len);
    pairs = rows * (kv_len - rows / 2);
  }
  const int64_t depth = c.head_dim + c.ValueDim();
  return 2.0 * static_cast<double>(c.batch * c.heads.num_heads * depth) * pairs;
}

std::vector<Case> MakeCases(const Grid& grid, const std::string& filter) {
  std::vector<Case> cases;
  for (const std::string& mechanism : grid.mechanisms) {
    const Mechanism& row = Lookup(mechanism);
    for (DType dtype : grid.dtypes) {
      for (Case c : Shapes(grid)) {
        c.mechanism = mechanism;
        c.dtype = dtype;
        if (!Takes(row, c)) continue;
        for (int threads : grid.threads) {
          c.threads = threads;
          cases.push_back(c);
        }
      }
    }
  }
  const std::regex expression = CompileFilter(filter);
  std::erase_if(cases, [&](const Case& c) { return !std::regex_search(c.Name(), expression); });
  return cases;
}

}  // namespace heed::bench
