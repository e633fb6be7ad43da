// What the results of a request may lie on: copies of inputs, and what functions that were compiled
// from text have captured, are hidden from the functions that check their own arguments.
#ifndef HEED_SRC_REQUEST_SPANS_H_
#define HEED_SRC_REQUEST_SPANS_H_

#include <span>

#include "heed/request.h"

namespace heed {

// Tensors as errors call them: "the gradient of {}".
struct TensorList {
  const char* text;
  std::span<const NamedTensor> tensors;
};

// Throw Error(kShape) unless what is written shares no byte with each other, or with what is read.
// WebAssembly has no need of them.
void CheckResultsApart(const TensorList& written);
void CheckResultsApart(const TensorList& written, const TensorList& read);

// The same, but floats may replace floats of the same layout: whoever writes them knows whether it
// can work in place.
void CheckResultsReplaceOrApart(const TensorList& written, const TensorList& read);

}  // namespace heed

#endif  // HEED_SRC_REQUEST_SPANS_H_
