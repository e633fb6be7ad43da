// Rotary position embedding: every pair of dimensions turns by position * frequency.
//
// Source: Su et al. 2021, arXiv:2104.09864, equation 34. Two-dimensional: the first half of the
// pairs turns by the row of a patch, the second by its column (Heo et al. 2024, arXiv:2403.13298,
// call it axial). Given tables stand for cosines and sines, a row per position.
#include <cmath>
#include <vector>

#include "positions.h"

namespace heed::reference::rope {
namespace {

struct Turn {
  double cos, sin;
};

// What turns pair t of row i.
class Turns {
 public:
  Turns(const Request& request, const PositionedInput& in, int64_t rotary_dim)
      : in_(in), rotary_dim_(rotary_dim), inverse_(ReadFlag(request, "inverse")) {
    if (FindInput(request, "cos") != nullptr || FindInput(request, "sin") != nullptr) {
      ReadTables(request);
      return;
    }
    width_ = ReadCount(request, "image_width").value_or(0);
    height_ = ReadCount(request, "image_height").value_or(0);
    image_ = FindParam(request, "image_width") != nullptr;
    if (image_ != (FindParam(request, "image_height") != nullptr)) {
      throw Error(ErrorCode::kOption, "image_height and image_width belong together");
    }
    const double base = ReadBase(request);
    if (image_) {
      CheckImage(request);
      rotation_ = ReadRotation(request, rotary_dim / 2, std::max(height_, width_), base);
    } else {
      rotation_ = ReadRotation(request, rotary_dim, in.LargestPosition() + 1, base);
    }
  }

  Turn operator()(int64_t b, int64_t i, int64_t t) const {
    const double sign = inverse_ ? -1.0 : 1.0;
    if (!cos_.values.empty()) {
      const int64_t row = in_.Position(b, i);
      return {cos_(0, b, row, t), sign * sin_(0, b, row, t)};
    }
    double angle = 0;
    if (image_) {
      const int64_t half = rotary_dim_ / 4;
      angle = t < half ? (i / width_) * rotation_.frequency[t]
                       : (i % width_) * rotation_.frequency[t - half];
    } else {
      angle = in_.Position(b, i) * rotation_.frequency[t];
    }
    const double m = inverse_ ? 1.0 / rotation_.magnitude : rotation_.magnitude;
    return {m * std::cos(angle), m * sign * std::sin(angle)};
  }

 private:
  void CheckImage(const Request& request) const {
    bool moved = FindInput(request, "positions") != nullptr;
    for (const int64_t b : {int64_t{0}, in_.batch - 1}) {
      moved = moved || (in_.batch > 0 && in_.len > 0 && in_.Position(b, 0) != 0);
    }
    if (moved) throw Error(ErrorCode::kOption, "positions and image are both given");
    if (height_ * width_ != in_.len) {
      throw Error(ErrorCode::kShape, "image_height times image_width must be len");
    }
  }

  void ReadTables(const Request& request) {
    for (const char* name : {"cos", "sin"}) {
      if (FindInput(request, name) == nullptr) {
        throw Error(ErrorCode::kOption, std::string(name) + " is missing: cos and sin go together");
      }
      Array& table = name[0] == 'c' ? cos_ : sin_;
      table = ReadFloats(request, name);
      const int rank = FindInput(request, name)->rank;
      if ((rank != 2 && rank != 3) || table.shape[3] != rotary_dim_ / 2 ||
          (table.shape[1] != 1 && table.shape[1] != in_.batch)) {
        throw Error(ErrorCode::kShape, std::string(name) +
                                           " must be [rows, rotary_dim / 2] or [batch, rows, "
                                           "rotary_dim / 2]");
      }
    }
    if (cos_.shape[2] != sin_.shape[2]) {
      throw Error(ErrorCode::kShape, "cos and sin must have as many rows as each other");
    }
    for (const char* name : {"image_width", "image_height", "base"}) {
      if (FindParam(request, name) != nullptr) {
        throw Error(ErrorCode::kOption, std::string(name) + " is given beside cos and sin");
      }
    }
    if (ReadWord(request, "scaling", {"none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"})
            .value_or("none") != "none") {
      throw Error(ErrorCode::kOption, "scaling is given beside cos and sin");
    }
    for (const int64_t position : in_.position) {
      if (position < 0 || position >= cos_.shape[2]) {
        throw Error(ErrorCode::kRange, "positions reach beyond the rows of cos and sin");
      }
    }
  }

  const PositionedInput& in_;
  int64_t rotary_dim_;
  bool inverse_;
  bool image_ = false;
  int64_t height_ = 0, width_ = 0;
  Rotation rotation_;
  Array cos_, sin_;  // [1, 1 or batch, rows, pairs]
};

}  // namespace

std::vector<Result> Run(const Request& request) {
  const PositionedInput in = ReadPositioned(request);
  const std::string pairing = ReadChoice(request, "pairing", {"half", "interleaved"});
  const bool image = FindParam(request, "image_width") != nullptr;
  const int64_t rotary_dim = ReadRotaryDim(request, in, image ? 4 : 2);
  const Turns turns(request, in, rotary_dim);
  std::vector<double> y = in.x.values;
  for (int64_t b = 0; b < in.batch; ++b) {
    for (int64_t h = 0; h < in.num_heads; ++h) {
      for (int64_t i = 0; i < in.len; ++i) {
        const auto x = in.x.Row(b, h, i);
        double* row = &y[((b * in.num_heads + h) * in.len + i) * in.dim];
        for (int64_t t = 0; t < rotary_dim / 2; ++t) {
          const auto [first, second] = DimsOfPair(pairing, t, rotary_dim);
          const Turn turn = turns(b, i, t);
          row[first] = x[first] * turn.cos - x[second] * turn.sin;
          row[second] = x[second] * turn.cos + x[first] * turn.sin;
        }
      }
    }
  }
  return OutputLike(in, std::move(y));
}

}  // namespace heed::reference::rope
