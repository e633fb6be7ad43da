// Draws the parameters of a request: which ones its other words make readable, and their values.
#ifndef HEED_TESTS_DRAWN_PARAMS_H_
#define HEED_TESTS_DRAWN_PARAMS_H_

#include <optional>
#include <string>

#include "random_request.h"

namespace heed::testing {

// Looks at a request while it is drawn. All three outlive this.
class DrawnParams {
 public:
  DrawnParams(const Mechanism& row, Random& random, const DrawnRequest& request)
      : row_(row), random_(random), r_(request) {}

  // The words of the sockets, given or fixed by the row.
  std::string score() const;
  std::string normalize() const;
  bool has_lse() const;
  bool has_sinks() const { return has_lse() && !Lists("softmax1 kernel_sum", normalize()); }
  // Whether keys are chosen by comparing scores, or a threshold: then rounding decides.
  bool chooses() const;

  // A width at which most keys have mass: |q - k|^2 is about 2 head_dim.
  double KernelWidth();
  // Whether the request has what gives the parameter a meaning.
  bool Reads(const std::string& name) const;
  // Whether it has what `read_by` of its row asks for; without it the call is refused.
  bool HasReader(const std::string& name) const;
  // Whether it cannot be left out.
  bool Needs(const std::string& name) const;
  // A value within the range; nothing where there is none to draw.
  std::optional<ParamValue> Value(const std::string& name);

 private:
  int64_t extent(const std::string& symbol) const;
  double Uniform(double low, double high);
  double Whole(int64_t low, int64_t high);
  bool Takes(std::string_view param) const { return Lists(row_.params, param); }
  std::string pattern() const;

  std::optional<ParamValue> Number(const std::string& name);
  std::optional<ParamValue> Count(const std::string& name);
  std::optional<ParamValue> PatternValue(const std::string& name);
  ParamValue Offset();
  std::vector<double> Grid(size_t axes);
  double Divisor(double extent);

  const Mechanism& row_;
  Random& random_;
  const DrawnRequest& r_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_DRAWN_PARAMS_H_
