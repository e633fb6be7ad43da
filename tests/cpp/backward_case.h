// Gradients by name of rows that are plain functions of their inputs, and what they are compared
// with.
#ifndef HEED_TESTS_BACKWARD_CASE_H_
#define HEED_TESTS_BACKWARD_CASE_H_

#include <string>
#include <vector>

#include "gradient_oracle.h"
#include "heed/gradient.h"
#include "random.h"
#include "request_builder.h"
#include "request_tensors.h"

namespace heed::testing {

// Results and gradients of a request, with random numbers arriving at all results.
struct Backward {
  Tensors results, d_results, gradients;

  explicit Backward(const Request& request, ThreadPool* pool = nullptr);
  void Run(const Request& request, ThreadPool* pool = nullptr);
};

// Compares every element with differences of the oracle, relative to the largest of its gradient.
void ExpectElementsMatch(const Request& request, double bound, const std::string& what);

// Compares the derivative along a random direction of each input.
void ExpectDirectionsMatch(const Request& request, double bound, const std::string& what);

// The bits of all gradients are the same with one, two and three threads.
void ExpectSameGradientsForAnyThreads(const Request& request, const std::string& what);

// The code and message of what PlanBackward() throws; empty when nothing is thrown.
std::string BackwardRefusal(const Request& request);

}  // namespace heed::testing

#endif  // HEED_TESTS_BACKWARD_CASE_H_
