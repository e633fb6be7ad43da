#include "visibility.h"

#include <string>
#include <variant>

namespace heed::reference {

Visibility::Visibility(const Request& request, const Qkv& qkv)
    : causal_(ReadFlag(request, "causal") || request.id == "forgetting"),
      window_left_(ReadCount(request, "window_left")),
      window_right_(ReadCount(request, "window_right")),
      keep_(ReadPairs(request, "keep", qkv, DType::kUint8)),
      keep_mod_(ReadFormula(request, "keep_mod", "")),
      q_len_(qkv.q_len) {
  ReadLengths(request, qkv);
  ReadOffsets(request, qkv);
  patterns_ = ReadPatterns(request, qkv, offsets_);
}

bool Visibility::operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const int64_t position = Position(b, i);
  if (j >= lengths_[b * q_len_ + i]) return false;
  if (causal_ && j > position) return false;
  if (window_left_ && j < position - *window_left_) return false;
  if (window_right_ && j > position + *window_right_) return false;
  if (keep_ && (*keep_)(b, h, i, j) == 0.0) return false;
  for (const PairRule& sees : patterns_) {
    if (!sees({b, h, i, position, j})) return false;
  }
  if (keep_mod_) {
    const double kept = (*keep_mod_)({1.0, b, h, i, j, position});
    return kept > 0 || kept < 0;
  }
  return true;
}

void Visibility::ReadLengths(const Request& request, const Qkv& qkv) {
  lengths_.assign(qkv.batch * qkv.q_len, qkv.kv_len);
  const std::optional<Array> given = ReadIntegers(request, "key_lengths");
  if (!given) return;
  const AnyTensor& tensor = *FindInput(request, "key_lengths");
  if (tensor.shape[0] != qkv.batch || (tensor.rank == 2 && tensor.shape[1] != qkv.q_len)) {
    throw Error(ErrorCode::kShape,
                Describe("key_lengths", tensor) + ": expected [batch] or [batch, " + "q_len], [" +
                    std::to_string(qkv.batch) + ", " + std::to_string(qkv.q_len) + "]");
  }
  for (const double length : given->values) {
    if (length < 0.0 || length > static_cast<double>(qkv.kv_len)) {
      throw Error(ErrorCode::kRange, "key_lengths has a value of " +
                                         std::to_string(static_cast<int64_t>(length)) +
                                         ": expected 0 to kv_len, " + std::to_string(qkv.kv_len));
    }
  }
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t i = 0; i < qkv.q_len; ++i) {
      const size_t at = tensor.rank == 2 ? b * qkv.q_len + i : b;
      lengths_[b * qkv.q_len + i] = static_cast<int64_t>(given->values[at]);
    }
  }
}

void Visibility::ReadOffsets(const Request& request, const Qkv& qkv) {
  offsets_.assign(qkv.batch, 0);
  const ParamValue* offset = FindParam(request, "query_offset");
  if (offset == nullptr) {
    bool needed = causal_ || window_left_ || window_right_ || PatternsReadPositions(request);
    for (const char* name : {"alibi_slopes", "distance_bias", "bucket_bias", "relative_keys",
                             "relative_queries", "relative_values"}) {
      needed = needed || FindInput(request, name) != nullptr;
    }
    if (needed && qkv.q_len != qkv.kv_len) {
      throw Error(ErrorCode::kOption,
                  "query_offset is missing: q_len " + std::to_string(qkv.q_len) + " and kv_len " +
                      std::to_string(qkv.kv_len) +
                      " differ and causal, windows, patterns and what depends on distances need "
                      "positions; give 0 (query 0 "
                      "stands at key 0) or \"end\" (the queries are the last tokens)");
    }
  } else if (const auto* number = std::get_if<double>(offset)) {
    offsets_.assign(qkv.batch, WholeNumber(*number, "query_offset"));
  } else if (const auto* list = std::get_if<std::vector<double>>(offset)) {
    if (static_cast<int64_t>(list->size()) != qkv.batch) {
      throw Error(ErrorCode::kShape, "query_offset has " + std::to_string(list->size()) +
                                         " values: expected one per batch entry, " +
                                         std::to_string(qkv.batch));
    }
    for (int64_t b = 0; b < qkv.batch; ++b) offsets_[b] = WholeNumber((*list)[b], "query_offset");
  } else {
    ReadWord(request, "query_offset", {"end"});
    const AnyTensor* lengths = FindInput(request, "key_lengths");
    if (lengths != nullptr && lengths->rank == 2 && qkv.q_len > 1 && qkv.batch > 0) {
      throw Error(
          ErrorCode::kUnsupported,
          "query_offset \"end\" with key_lengths per query: the end of a batch entry is not "
          "one number; give positions");
    }
    for (int64_t b = 0; b < qkv.batch; ++b) {
      const int64_t length = qkv.q_len == 0 ? qkv.kv_len : lengths_[b * qkv.q_len];
      offsets_[b] = length - qkv.q_len;
    }
  }
}

}  // namespace heed::reference
