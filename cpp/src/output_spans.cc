#include "src/output_spans.h"

#include <string>

#include "src/message.h"

namespace heed {

void OutputSpans::Start(std::span<const NamedSpan> outputs) {
  for (const NamedSpan& output : outputs) {
    if (output.span.empty) continue;
    Check({}, output.name, output.span);
    outputs_[count_++] = output;
  }
  has_first_ = !outputs[0].span.empty;
}

void OutputSpans::Check(std::string_view owner, const char* name, const ViewSpan& input,
                        size_t first) const {
  if (input.empty) return;
  for (size_t n = first; n < count_; ++n) {
    const auto& [output, span] = outputs_[n];
    if (span.low >= input.high || input.low >= span.high) continue;
    CheckNoAlias(output, span, owner.empty() ? std::string(name) : Join("{}{}", {owner, name}),
                 input);
  }
}

void OutputSpans::CheckReplaced(const char* name, const ViewSpan& input) const {
  Check({}, name, input, has_first_ && IsSameView(outputs_[0].span, input) ? 1 : 0);
}

bool IsSameView(const ViewSpan& a, const ViewSpan& b) {
  return a.start == b.start && a.element_bytes == b.element_bytes && a.shape == b.shape &&
         a.byte_strides == b.byte_strides;
}

}  // namespace heed
