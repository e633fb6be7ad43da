// Runs a Program on tiles: one operation after the other, each over all columns of a row, so that
// choosing the operation costs nothing next to the work.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/expression/interpret.cc"
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "heed/expression.h"
#include "heed/feature_map.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/expression/operations-inl.h"
#include "src/expression/program.h"
#include "src/memory_errors.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// One row of one tile under way.
class RowRun {
 public:
  // The tile's columns count up to `period` and begin again.
  RowRun(const Program& program, const PairTile& tile, size_t period, float* slots, float* uniforms)
      : program_(program), tile_(tile), period_(period), slots_(slots), uniforms_(uniforms) {}

  void Run(size_t r) {
    row_ = &tile_.rows[r];
    values_ = tile_.values + r * tile_.row_stride;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (instruction.varies) {
        RunVarying(instruction);
      } else {
        // A row's own value is computed by the same code, in one vector.
        RunUniform(instruction, i);
      }
    }
    const Operand result = OperandOf(program_.instructions.size() - 1);
    if (result.slot != nullptr) {
      std::copy_n(result.slot, tile_.num_keys, values_);
    } else {
      std::fill_n(values_, tile_.num_keys, result.value);
    }
  }

 private:
  Operand OperandOf(size_t index) const {
    const Instruction& instruction = program_.instructions[index];
    if (instruction.varies) return {slots_ + instruction.slot * kSlotFloats, 0};
    return {nullptr, uniforms_[index]};
  }

  void RunUniform(const Instruction& instruction, size_t index) {
    HWY_ALIGN float lanes[hn::MaxLanes(DF())];
    Compute(instruction, lanes, 1);
    uniforms_[index] = lanes[0];
  }

  void RunVarying(const Instruction& instruction) {
    Compute(instruction, slots_ + instruction.slot * kSlotFloats, tile_.num_keys);
  }

  void Compute(const Instruction& instruction, float* to, size_t count) {
    Operand operands[4] = {};
    for (size_t i = 0; i < instruction.arity; ++i) operands[i] = OperandOf(instruction.operands[i]);
    if (instruction.op == Op::kLoad) {
      Load(instruction, operands, to, count);
    } else if (instruction.op == Op::kSin || instruction.op == Op::kCos) {
      Wave(instruction.op, operands[0], to, count);
    } else if (instruction.arity == 0) {
      Leaf(instruction, to, count);
    } else {
      RunOperation(instruction.op, {operands[0], operands[1], operands[2], to, count});
    }
  }

  // Element by element: exact for any angle, which a vector version would not be.
  static void Wave(Op op, const Operand& angle, float* to, size_t count) {
    for (size_t c = 0; c < count; ++c) {
      to[c] = op == Op::kSin ? std::sin(angle.Scalar(c)) : std::cos(angle.Scalar(c));
    }
  }

  void Leaf(const Instruction& instruction, float* to, size_t count) {
    switch (instruction.op) {
      case Op::kNumber:
        to[0] = instruction.number;
        break;
      case Op::kBatch:
        to[0] = static_cast<float>(tile_.batch);
        break;
      case Op::kHead:
        to[0] = static_cast<float>(row_->head);
        break;
      case Op::kQuery:
        to[0] = static_cast<float>(row_->query);
        break;
      case Op::kPosition:
        to[0] = static_cast<float>(row_->position);
        break;
      case Op::kKey:
        for (size_t c = 0; c < count; ++c) {
          to[c] = c < period_ ? static_cast<float>(tile_.key_begin + static_cast<int64_t>(c))
                              : to[c - period_];
        }
        break;
      default:
        std::copy_n(values_, count, to);
        break;
    }
  }

  // Elements outside of the tensor are NaN. What does not vary is looked up once.
  void Load(const Instruction& instruction, const Operand* indices, float* to, size_t count) {
    const CapturedTensor& tensor = program_.captured[instruction.tensor];
    for (size_t c = 0; c < count; ++c) {
      int64_t at = 0;
      bool inside = tensor.data != nullptr;
      for (size_t axis = 0; axis < instruction.arity; ++axis) {
        const float index = std::floor(indices[axis].Scalar(c));
        // NaN fails the comparison; 2^24 and more are beyond what a float32 index can name.
        if (!(index >= 0 && index < static_cast<float>(tensor.shape[axis]))) {
          inside = false;
          break;
        }
        at += static_cast<int64_t>(index) * tensor.strides[axis];
      }
      to[c] = inside ? tensor.data[at] : kNan;
    }
  }

  const Program& program_;
  const PairTile& tile_;
  size_t period_;
  float* slots_;
  float* uniforms_;
  const PairTile::Row* row_ = nullptr;
  float* values_ = nullptr;
};

void RunProgram(const Program& program, const PairTile& tile) {
  HWY_ALIGN float slots[kMaxSlots * kSlotFloats];
  float uniforms[kMaxInstructions];
  // Tiles are at most a slot wide; wider ones, from callers of their own, come in pieces.
  for (size_t begin = 0; begin < tile.num_keys; begin += kSlotFloats) {
    PairTile piece = tile;
    piece.key_begin += static_cast<int64_t>(begin);
    piece.num_keys = std::min(kSlotFloats, tile.num_keys - begin);
    piece.values += begin;
    RowRun run(program, piece, piece.num_keys, slots, uniforms);
    for (size_t r = 0; r < piece.num_rows; ++r) run.Run(r);
  }
}

// Narrow rows in a row: operations on as many elements as a slot holds cost least. What does not
// depend on the element is the same for all of them.
void RunNarrowRows(const Program& program, const FeatureRows& rows, const PairTile::Row& row) {
  HWY_ALIGN float slots[kMaxSlots * kSlotFloats];
  HWY_ALIGN float packed[kSlotFloats];
  float uniforms[kMaxInstructions];
  const size_t dims = rows.num_dims, most = kSlotFloats / dims;
  for (size_t first = 0; first < rows.num_rows; first += most) {
    const size_t count = std::min(most, rows.num_rows - first);
    float* from = rows.values + first * rows.row_stride;
    for (size_t r = 0; r < count; ++r) {
      std::copy_n(from + r * rows.row_stride, dims, packed + r * dims);
    }
    const PairTile tile = {rows.batch, &row, 1, 0, count * dims, packed, kSlotFloats};
    RowRun(program, tile, dims, slots, uniforms).Run(0);
    for (size_t r = 0; r < count; ++r) {
      std::copy_n(packed + r * dims, dims, from + r * rows.row_stride);
    }
  }
}

void RunFeatureProgram(const Program& program, const FeatureRows& rows) {
  const PairTile::Row row = {rows.head, rows.is_key ? 1 : 0, 0};
  if (rows.num_dims == 0) return;
  if (rows.num_dims <= kSlotFloats) return RunNarrowRows(program, rows, row);
  for (size_t r = 0; r < rows.num_rows; ++r) {
    float* values = rows.values + r * rows.row_stride;
    RunProgram(program, {rows.batch, &row, 1, 0, rows.num_dims, values, rows.row_stride});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunProgram);
HWY_EXPORT(RunFeatureProgram);

TileFunction FunctionOf(Program program) {
  return [shared = std::make_shared<const Program>(std::move(program))](const PairTile& tile) {
    HWY_DYNAMIC_DISPATCH(RunProgram)
    (*shared, tile);
  };
}

FeatureFunction FeatureFunctionOf(Program program) {
  return [program = std::move(program)](const FeatureRows& rows) {
    HWY_DYNAMIC_DISPATCH(RunFeatureProgram)
    (program, rows);
  };
}

Expression MakeExpression(std::string_view what, std::string_view text, ExpressionValue value,
                          std::vector<CapturedTensor> captured) {
  Program program = ParseExpression(what, text, VocabularyOf(value), std::move(captured));
  const bool uses_position =
      std::any_of(program.instructions.begin(), program.instructions.end(),
                  [](const Instruction& i) { return i.op == Op::kPosition; });
  return {FunctionOf(std::move(program)), uses_position};
}

TileFunction CompileExpression(std::string_view what, std::string_view text, ExpressionValue value,
                               std::vector<CapturedTensor> captured) {
  return WithMemoryErrors("an expression", [&] {
    return MakeExpression(what, text, value, std::move(captured)).function;
  });
}

FeatureFunction CompileFeatureMap(std::string_view what, std::string_view text,
                                  std::vector<CapturedTensor> captured) {
  return WithMemoryErrors("an expression", [&] {
    return FeatureFunctionOf(ParseExpression(what, text, FeatureVocabulary(), std::move(captured)));
  });
}

}  // namespace heed
#endif  // HWY_ONCE
