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

void AppendShapes(const Grid& grid, const Case& base, std::vector<Case>& cases) {
  for (const Lengths& lengths : grid.lengths) {
    for (Mask mask : grid.masks) {
      if (mask == Mask::kCausal && !HasWord(Lookup(base.mechanism).params, "causal")) continue;
      for (int threads : grid.threads) {
        Case c = base;
        c.lengths = lengths;
        c.mask = mask;
        c.threads = threads;
        cases.push_back(c);
      }
    }
  }
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

std::string Case::Name() const {
  std::string name = mechanism;
  if (batch != 1) name += "/b" + std::to_string(batch);
  name += "/h" + std::to_string(heads.num_heads);
  if (heads.num_kv_heads != heads.num_heads) name += ":" + std::to_string(heads.num_kv_heads);
  name += "/d" + std::to_string(head_dim) + "/l" + std::to_string(lengths.q_len);
  if (lengths.kv_len != lengths.q_len) name += "x" + std::to_string(lengths.kv_len);
  return name + "/" + MaskName(mask) + "/t" + std::to_string(threads);
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
  return 4.0 * static_cast<double>(c.batch * c.heads.num_heads * c.head_dim) * pairs;
}

std::vector<Case> MakeCases(const Grid& grid, const std::string& filter) {
  std::vector<Case> cases;
  for (const std::string& mechanism : grid.mechanisms) {
    Lookup(mechanism);
    for (const Heads& heads : grid.heads) {
      for (int64_t head_dim : grid.head_dims) {
        Case base;
        base.mechanism = mechanism;
        base.batch = grid.batch;
        base.heads = heads;
        base.head_dim = head_dim;
        AppendShapes(grid, base, cases);
      }
    }
  }
  const std::regex expression = CompileFilter(filter);
  std::erase_if(cases, [&](const Case& c) { return !std::regex_search(c.Name(), expression); });
  return cases;
}

}  // namespace heed::bench
