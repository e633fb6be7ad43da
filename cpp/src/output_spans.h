// What the outputs of a call may lie on: nothing that the call reads, and not each other. Every
// public function that writes says so here.
#ifndef HEED_SRC_OUTPUT_SPANS_H_
#define HEED_SRC_OUTPUT_SPANS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/from_javascript.h"
#include "src/view_checks.h"

namespace heed {

// A view, or nothing, and the argument that it is.
struct NamedSpan {
  NamedSpan() = default;
  template <class View>
  NamedSpan(const char* argument, const View& view) : name(argument) {
    if constexpr (!kFromJavaScript) span = SpanOf(view);
  }

  const char* name = nullptr;
  ViewSpan span;  // of outputs that are given
};

// The outputs of one call, whose shapes and strides have been checked. They are compared with all
// that the call reads, named as in the public headers, before anything is written:
//   OutputSpans({{"out", out}}).ApartFrom("x", x).ApartFrom("weight", weight);
// Absent views are skipped. All throw Error(kShape); WebAssembly has none of this.
class OutputSpans {
 public:
  static constexpr size_t kMost = 8;

  // Throws unless the outputs lie apart from each other.
  template <size_t kCount>
  explicit OutputSpans(const NamedSpan (&outputs)[kCount]) {
    static_assert(kCount <= kMost);
    if constexpr (!kFromJavaScript) Start(outputs);
  }

  // Throws unless every output shares no byte with the view.
  template <class View>
  const OutputSpans& ApartFrom(const char* name, const View& view) const {
    if constexpr (!kFromJavaScript) {
      if (IsGiven(view)) Check({}, name, SpanOf(view));
    }
    return *this;
  }

  template <class Value>
  const OutputSpans& ApartFrom(const char* name, const std::span<Value>& values) const {
    if constexpr (!kFromJavaScript) {
      const uintptr_t begin = reinterpret_cast<uintptr_t>(values.data());
      if (Meets(begin, begin + values.size_bytes())) Check({}, name, SpanOf(values));
    }
    return *this;
  }

  // For functions that work in place: the first output may be exactly the view.
  template <class View>
  const OutputSpans& MayReplace(const char* name, const View& view) const {
    if constexpr (!kFromJavaScript) {
      if (IsGiven(view)) CheckReplaced(name, SpanOf(view));
    }
    return *this;
  }

  // ApartFrom() for all views of weights or options that ForEachView() knows. `owner` stands before
  // their names where a call has two of a kind: "first.".
  template <class Struct>
  const OutputSpans& ApartFrom(const Struct& all, std::string_view owner = {}) const {
    if constexpr (!kFromJavaScript) {
      ForEachView(all, [&](const char* name, const auto& view) {
        if (IsGiven(view)) Check(owner, name, SpanOf(view));
      });
    }
    return *this;
  }

 private:
  template <class View>
  static bool IsGiven(const View& view) {
    return view.data != nullptr;
  }
  template <class Value>
  static bool IsGiven(const std::span<Value>& values) {
    return !values.empty();
  }
  bool Meets(uintptr_t begin, uintptr_t end) const {
    bool meets = false;
    for (size_t n = 0; n < count_; ++n) {
      meets = meets || (outputs_[n].span.low < end && begin < outputs_[n].span.high);
    }
    return meets;
  }

  void Start(std::span<const NamedSpan> outputs);
  void Check(std::string_view owner, const char* name, const ViewSpan& input,
             size_t first = 0) const;
  void CheckReplaced(const char* name, const ViewSpan& input) const;

  size_t count_ = 0;
  bool has_first_ = false;
  NamedSpan outputs_[kFromJavaScript ? 1 : kMost];  // the first count_
};

bool IsSameView(const ViewSpan& a, const ViewSpan& b);
// An output that is exactly the view, or shares no byte with it.
template <class Output, class Input>
void CheckSameOrApart(std::string_view name, const Output& output, std::string_view other,
                      const Input& input) {
  if constexpr (!kFromJavaScript) {
    const ViewSpan written = SpanOf(output), read = SpanOf(input);
    if (!IsSameView(written, read)) CheckNoAlias(name, written, other, read);
  }
}

}  // namespace heed

#endif  // HEED_SRC_OUTPUT_SPANS_H_
