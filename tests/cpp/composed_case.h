// One problem of a mechanism that composes attention: the attention inside and what surrounds it.
#ifndef HEED_TESTS_COMPOSED_CASE_H_
#define HEED_TESTS_COMPOSED_CASE_H_

#include <functional>
#include <string>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "request_builder.h"

namespace heed::testing {

// Owns every tensor. `inner` holds q, k, v and the options that pass through.
struct ComposedCase {
  std::string id;
  AttentionCase inner;

  struct Extra {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  std::vector<Extra> extras;
  std::vector<NamedParam> params;

  // Draws an extra input ~ N(0, 1).
  void AddNormal(const std::string& name, const std::vector<int64_t>& shape, uint64_t seed = 99);
  Extra& extra(const std::string& name);

  // The request by name; the case must outlive it.
  Request request() const;
  std::string Describe() const { return id + ": " + inner.Describe(); }
};

// Problems that between them use every option that passes through: shapes, layouts, grouped heads,
// causal, window, lengths, keep, bias, softcap, ALiBi, sinks.
std::vector<AttentionCase> PassThroughCases(int64_t head_dim = 24);

// Runs the case by name and on the oracle. Outputs may differ by `output_factor` times what plain
// attention may, plus `slack` of each row; weights by `weight_factor` times.
void ExpectComposedMatches(const ComposedCase& c, double output_factor, double weight_factor = 1);

// Every element of a result.
void ExpectAllNear(const std::vector<double>& actual, const std::vector<double>& expected,
                   double error);

// Code and name of the argument that both the library and the oracle refuse a request with.
void ExpectBothRefuse(const Request& request, ErrorCode code, const std::string& name);

// The same request gives the same bits with 1, 2 and 5 threads.
void ExpectSameBitsForAnyThreads(const Request& request);

// What heed::Run gives on a pool.
Values RunOnPool(const Request& request, ThreadPool* pool);

}  // namespace heed::testing

#endif  // HEED_TESTS_COMPOSED_CASE_H_
