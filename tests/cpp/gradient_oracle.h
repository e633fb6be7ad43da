// Gradients of the float64 oracle, by central differences.
#ifndef HEED_TESTS_GRADIENT_ORACLE_H_
#define HEED_TESTS_GRADIENT_ORACLE_H_

#include <deque>
#include <string>
#include <vector>

#include "heed/request.h"
#include "random.h"
#include "request_builder.h"

namespace heed::testing {

// L = sum over results of cotangent * result, as a function of the float inputs of a request, which
// it keeps in float64. Results without a cotangent do not count.
class GradientOracle {
 public:
  GradientOracle(const Request& request, Values cotangents);

  // dL / d every element of an input.
  std::vector<double> Gradient(const std::string& input);

  // The derivative of L along a direction: numbers by input, each as many as it has elements.
  double Along(const Values& directions);

 private:
  double Value() const;
  void Move(const Values& directions, double step);

  Request request_;
  Values cotangents_;
  Values inputs_;
};

// Compares the derivative along a random direction of one input with its gradient, whose error may
// be `bound` times the sum of the terms.
void ExpectAlong(GradientOracle& oracle, const std::string& input,
                 const std::vector<double>& gradient, double bound, Random& random,
                 const std::string& what);

}  // namespace heed::testing

#endif  // HEED_TESTS_GRADIENT_ORACLE_H_
