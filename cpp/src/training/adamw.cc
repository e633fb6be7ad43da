#include "heed/training/adamw.h"

#include <cmath>
#include <new>
#include <numbers>
#include <string_view>

#include "src/parallel/pieces.h"
#include "src/training/checks.h"

namespace heed::training {
namespace {

void CheckIn(std::string_view name, double value, bool holds, std::string_view range) {
  if (!holds) Fail(ErrorCode::kRange, "{} = {}; it must lie in {}", {name, value, range});
}

void CheckSchedule(const Schedule& s) {
  CheckIn("learning_rate", s.learning_rate, s.learning_rate > 0 && std::isfinite(s.learning_rate),
          "(0, inf)");
  CheckIn("min_learning_rate", s.min_learning_rate,
          s.min_learning_rate >= 0 && s.min_learning_rate <= s.learning_rate, "[0, learning_rate]");
  CheckIn("warmup_steps", static_cast<double>(s.warmup_steps), s.warmup_steps >= 0, "[0, inf)");
  CheckIn("total_steps", static_cast<double>(s.total_steps),
          s.total_steps == 0 || s.total_steps > s.warmup_steps, "(warmup_steps, inf), or be 0");
}

const AdamWOptions& Checked(const AdamWOptions& o) {
  CheckSchedule(o.schedule);
  CheckIn("beta1", o.beta1, o.beta1 >= 0 && o.beta1 < 1, "[0, 1)");
  CheckIn("beta2", o.beta2, o.beta2 >= 0 && o.beta2 < 1, "[0, 1)");
  CheckIn("epsilon", o.epsilon, o.epsilon > 0 && std::isfinite(o.epsilon), "(0, inf)");
  CheckIn("weight_decay", o.weight_decay, o.weight_decay >= 0 && std::isfinite(o.weight_decay),
          "[0, inf)");
  CheckIn("max_gradient_norm", o.max_gradient_norm, o.max_gradient_norm > 0, "(0, inf]");
  return o;
}

// The factors of one step, the same for all elements of a parameter.
struct Update {
  float clip, beta1, beta2, keep, rate, second_factor, epsilon;

  void Apply(float gradient, float& x, float& first, float& second) const {
    const float g = gradient * clip;
    first = beta1 * first + (1 - beta1) * g;
    second = beta2 * second + (1 - beta2) * (g * g);
    x = keep * x - rate * first / (std::sqrt(second * second_factor) + epsilon);
  }
};

}  // namespace

double Schedule::At(int64_t step) const {
  if (step < warmup_steps) {
    return learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (total_steps == 0) return learning_rate;
  if (step >= total_steps) return min_learning_rate;
  const double u =
      static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
  const double range = learning_rate - min_learning_rate;
  return min_learning_rate + range * (1 + std::cos(std::numbers::pi * u)) / 2;
}

double GradientNorm(const ParameterSet& parameters, ThreadPool* pool) {
  return WithMemoryErrors("the norm of gradients", [&] {
    double squares = 0;
    std::vector<double> sums;
    for (const Parameter& parameter : parameters) {
      const std::vector<float>& gradient = parameter.gradient;
      const int64_t count = static_cast<int64_t>(gradient.size());
      MakeRoom("the sums of squares", PiecesOf(count, kTaskElements), sums);
      ForEachPiece(count, kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t piece) {
        double sum = 0;
        for (int64_t n = begin; n < end; ++n) {
          const double g = static_cast<double>(gradient[static_cast<size_t>(n)]);
          sum += g * g;
        }
        sums[static_cast<size_t>(piece)] = sum;
      });
      for (const double sum : sums) squares += sum;
    }
    return std::sqrt(squares);
  });
}

AdamW::AdamW(ParameterSet& parameters, const AdamWOptions& options)
    : options_(WithMemoryErrors("an optimiser", [&] { return Checked(options); })) {
  try {
    for (Parameter& parameter : parameters) {
      const size_t count = parameter.value.size();
      moments_.push_back({&parameter, std::vector<float>(count), std::vector<float>(count)});
    }
  } catch (const std::bad_alloc&) {
    Fail(ErrorCode::kMemory, "could not allocate the moments of {} parameters",
         {parameters.NumElements()});
  }
}

void AdamW::Step(double gradient_norm, ThreadPool* pool) {
  WithMemoryErrors("an optimiser", [&] {
    if (!std::isfinite(gradient_norm) || gradient_norm < 0) {
      Fail(ErrorCode::kRange, "gradient_norm = {}; it must be finite and not negative",
           {gradient_norm});
    }
    ThreadPool& threads = PoolOf(pool);  // all that could fail
    const AdamWOptions& o = options_;
    const double rate = learning_rate(), t = static_cast<double>(++steps_);
    const double clip =
        gradient_norm > o.max_gradient_norm ? o.max_gradient_norm / gradient_norm : 1;
    Update update = {.clip = static_cast<float>(clip),
                     .beta1 = static_cast<float>(o.beta1),
                     .beta2 = static_cast<float>(o.beta2),
                     .keep = 1,
                     .rate = static_cast<float>(rate / (1 - std::pow(o.beta1, t))),
                     .second_factor = static_cast<float>(1 / (1 - std::pow(o.beta2, t))),
                     .epsilon = static_cast<float>(o.epsilon)};
    for (Moments& moments : moments_) {
      Parameter& parameter = *moments.parameter;
      update.keep = parameter.decays() ? static_cast<float>(1 - rate * o.weight_decay) : 1;
      const int64_t count = static_cast<int64_t>(parameter.value.size());
      ForEachPiece(count, kTaskElements, &threads, [&](int64_t begin, int64_t end, int64_t) {
        for (size_t n = static_cast<size_t>(begin); n < static_cast<size_t>(end); ++n) {
          update.Apply(parameter.gradient[n], parameter.value[n], moments.first[n],
                       moments.second[n]);
        }
      });
    }
  });
}

}  // namespace heed::training
