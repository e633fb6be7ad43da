#include "src/exact/keep/plugs.h"

#include "src/exact/keep/axial.h"
#include "src/exact/keep/block_list.h"
#include "src/exact/keep/dense.h"
#include "src/exact/keep/documents.h"
#include "src/exact/keep/fixed.h"
#include "src/exact/keep/keep_mod.h"
#include "src/exact/keep/longformer.h"
#include "src/exact/keep/neighborhood.h"
#include "src/exact/keep/sink_window.h"
#include "src/exact/keep/strided.h"
#include "src/exact/keep/swin_window.h"

namespace heed {
namespace {

using Plug = std::shared_ptr<const CellKeep>;

// One overload for each alternative of KeepPattern.
struct MakePattern {
  const AttentionProblem& p;

  Plug operator()(const DilatedWindow& rule) const {
    return std::make_shared<LongformerKeep>(Longformer{rule.reach, rule.dilation, {}}, p.kv_len);
  }
  Plug operator()(const Longformer& rule) const {
    return std::make_shared<LongformerKeep>(rule, p.kv_len);
  }
  Plug operator()(const BigBird& rule) const {
    return std::make_shared<BlockListKeep>(BlocksOfBigBird(rule, p), p.position, p);
  }
  Plug operator()(const Strided& rule) const { return std::make_shared<StridedKeep>(rule); }
  Plug operator()(const Fixed& rule) const { return std::make_shared<FixedKeep>(rule); }
  Plug operator()(const Axial& rule) const { return std::make_shared<AxialKeep>(rule); }
  Plug operator()(const SwinWindow& rule) const { return std::make_shared<SwinWindowKeep>(rule); }
  Plug operator()(const Neighborhood& rule) const {
    return std::make_shared<NeighborhoodKeep>(rule);
  }
  Plug operator()(const BlockList& rule) const {
    return std::make_shared<BlockListKeep>(BlocksOfList(rule, p), std::vector<int64_t>(), p);
  }
  Plug operator()(const PairList& rule) const {
    return std::make_shared<BlockListKeep>(BlocksOfPairs(rule, p), std::vector<int64_t>(), p);
  }
};

}  // namespace

KeepPlugs MakeKeepPlugs(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  KeepPlugs plugs;
  if (p.chosen != nullptr) plugs.push_back(p.chosen);
  for (const KeepPattern& pattern : o.patterns) {
    plugs.push_back(std::visit(MakePattern{p}, pattern));
  }
  if (!o.query_documents.empty()) {
    plugs.push_back(
        std::make_shared<DocumentKeep>(o.query_documents, o.key_documents, p.q_len, p.kv_len));
  }
  if (o.keep.has_value()) plugs.push_back(std::make_shared<DenseKeep>(o.keep));
  if (p.sink_keys > 0 && o.window && o.window->left) {
    plugs.push_back(std::make_shared<SinkWindow>(p.sink_keys, *o.window->left));
  }
  // The costliest comes last: it is not asked about rows that the others have emptied.
  if (o.keep_mod) plugs.push_back(std::make_shared<KeepMod>(o.keep_mod));
  return plugs;
}

}  // namespace heed
