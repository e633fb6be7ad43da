// The registry: every mechanism of heed, as listed in mechanisms.inc, and how to call one by id.
// The rows themselves are in mechanisms/<family>.inc.
#ifndef HEED_REGISTRY_H_
#define HEED_REGISTRY_H_

#include <span>
#include <string_view>
#include <vector>

#include "heed/request.h"
#include "heed/thread_pool.h"

namespace heed {

// A row of the list (mechanisms.inc includes one file a family). Lists are words separated by one
// space; an input that ends in '?' may be left out. Every word of `params` is a row of params.inc.
struct Mechanism {
  std::string_view id;      // snake_case; file stem everywhere
  std::string_view family;  // "exact", "selective", "low_rank", "recurrent", "layer",
                            // "position"
  std::string_view title;
  int year = 0;
  std::string_view source;   // authors, title, arXiv id
  std::string_view summary;  // one sentence
  std::string_view formula;  // LaTeX
  std::string_view inputs;
  std::string_view params;
  std::string_view cost;  // "quadratic", "linear", "n log n", "pattern", "edges": growth of time
  // "lse weights scores gqa ..."; "approximates" stands in for exact attention to q, k and v;
  // "gradient" has one, with most options (heed/gradient.h).
  std::string_view capabilities;
};

// A row of params.inc: everything a page, a command line or a check needs to know of a parameter.
struct Parameter {
  std::string_view name;  // snake_case
  // "bool", "number", "count", "word", "choice" (a word that must be given), "offset", "numbers"
  // and "integers" (one or a list), "seed", "expression" (text, heed/expression.h)
  std::string_view type;
  std::string_view default_value;  // as text; empty = absent
  std::string_view range;          // words "a|b|c", or an interval such as "(0, inf)"
  std::string_view symbol;         // the letter in the formula
  std::string_view summary;
  // What has to be given for a call to read it, else the call is refused: words separated by
  // spaces, of which one will do. "name" is a parameter or input, "name=a|b" a parameter with one
  // of these words (or a mechanism that does without the parameter). Empty = it is always read.
  // read_by.inc
  std::string_view read_by;
};

// A row of inputs.inc: what a tensor holds, how large it is, and how to draw an example.
struct Input {
  std::string_view name;   // snake_case
  std::string_view kind;   // "float", "keep" (bytes), "int" (int32), "named" (captured.<name>)
  std::string_view shape;  // extents by symbol, alternatives separated by " | ", '?' = may be 1
  std::string_view draw;   // "normal", "weight", "positive", "slopes", "keep", "lengths", ...
  std::string_view summary;
  std::string_view read_by;  // as of a parameter
};

// All rows, in the order of mechanisms.inc. Static memory.
std::span<const Mechanism> Mechanisms();
std::span<const Input> Inputs();
std::span<const Parameter> Parameters();

// The row with this id, or nullptr.
const Mechanism* FindMechanism(std::string_view id);

// Validates the request and returns what it produces, "output" first. Names: output, lse, weights,
// scores, state, running_max, running_sum, rescale, residual, projection. "output" has the element
// type of q (of v in a row without q), and is float32 in rows that have neither. All other results
// are float32. Throws Error.
std::vector<OutputSpec> PlanOutputs(const Request& request);

// Validates the request and runs it. `outputs` holds one tensor for each entry of
// PlanOutputs(request), by name, of its element type, any strides with a contiguous last dimension.
// Throws Error, of which kMemory may leave results half written.
void Run(const Request& request, std::span<const NamedTensor> outputs, ThreadPool* pool = nullptr);

// Explain() of heed/attention.h for a request of the exact family: which keys each query sees.
// `picture` is [batch, num_heads, q_len, kv_len] as q and k have it; of q, k and v only the shapes
// are read. Throws Error.
void Explain(const Request& request, TensorView<uint8_t> picture);

}  // namespace heed

#endif  // HEED_REGISTRY_H_
