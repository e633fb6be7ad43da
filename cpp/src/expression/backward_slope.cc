// The derivative of an expression by the value that it starts from: one more program.
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "heed/gradient.h"
#include "src/expression/program.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed {
namespace {

// Appends to a program, instruction by instruction, the slopes of its values.
class Slopes {
 public:
  explicit Slopes(const Program& program) : program_(program) {
    const size_t count = program.instructions.size();
    slopes_.reserve(count);
    for (size_t i = 0; i < count; ++i) slopes_.push_back(SlopeOf(static_cast<Value>(i)));
  }

  // The instructions that the slope of the result needs.
  Program Result() {
    const Value result = OrZero(slopes_.back());
    const std::vector<Instruction>& list = program_.instructions;
    std::vector<bool> needed(list.size(), false);
    needed[result] = true;
    for (size_t i = result + size_t{1}; i-- > 0;) {
      for (size_t a = 0; a < list[i].arity && needed[i]; ++a) needed[list[i].operands[a]] = true;
    }
    Program slope;
    slope.captured = program_.captured;
    std::vector<Value> moved(list.size(), 0);
    for (size_t i = 0; i <= result; ++i) {
      if (!needed[i]) continue;
      Instruction instruction = list[i];
      for (size_t a = 0; a < instruction.arity; ++a) {
        instruction.operands[a] = moved[instruction.operands[a]];
      }
      moved[i] = static_cast<Value>(slope.instructions.size());
      slope.instructions.push_back(instruction);
    }
    return slope;
  }

 private:
  using Value = uint16_t;
  static constexpr Value kZero = 0xffff;  // a slope that is 0 everywhere

  Value Emit(Op op, std::initializer_list<Value> operands) {
    Instruction instruction = {};
    instruction.op = op;
    for (const Value operand : operands) {
      instruction.operands[instruction.arity++] = operand;
      instruction.varies = instruction.varies || program_.instructions[operand].varies;
    }
    program_.instructions.push_back(instruction);
    return static_cast<Value>(program_.instructions.size() - 1);
  }
  Value Number(float number) {
    const Value value = Emit(Op::kNumber, {});
    program_.instructions[value].number = number;
    return value;
  }
  Value OrZero(Value slope) { return slope == kZero ? Number(0) : slope; }

  Value Sum(Value a, Value b) {
    if (a == kZero || b == kZero) return a == kZero ? b : a;
    return Emit(Op::kAdd, {a, b});
  }
  Value Negated(Value a) { return a == kZero ? kZero : Emit(Op::kNegate, {a}); }
  Value Times(Value slope, Value factor) {
    return slope == kZero ? kZero : Emit(Op::kMultiply, {slope, factor});
  }
  Value Over(Value slope, Value divisor) {
    return slope == kZero ? kZero : Emit(Op::kDivide, {slope, divisor});
  }
  // A slope is chosen, not multiplied by 0: what is not taken may be NaN.
  Value Choice(Value condition, Value then, Value otherwise) {
    if (then == kZero && otherwise == kZero) return kZero;
    return Emit(Op::kSelect, {condition, OrZero(then), OrZero(otherwise)});
  }

  // Of a function of one operand x with the slope dx.
  Value OfFunction(Op op, Value self, Value x, Value dx) {
    switch (op) {
      case Op::kNegate:
        return Negated(dx);
      case Op::kAbs: {
        const Value zero = Number(0);
        const Value rising = Choice(Emit(Op::kLess, {zero, x}), dx, kZero);
        return Choice(Emit(Op::kLess, {x, zero}), Negated(dx), rising);
      }
      case Op::kSqrt:
        return Over(dx, Emit(Op::kAdd, {self, self}));
      case Op::kExp:
        return Times(dx, self);
      case Op::kLog:
        return Over(dx, x);
      case Op::kTanh:
        return Times(dx, Emit(Op::kSubtract, {Number(1), Emit(Op::kMultiply, {self, self})}));
      case Op::kSigmoid:
        return Times(Times(dx, self), Emit(Op::kSigmoid, {Emit(Op::kNegate, {x})}));
      case Op::kSin:
        return Times(dx, Emit(Op::kCos, {x}));
      case Op::kCos:
        return Negated(Times(dx, Emit(Op::kSin, {x})));
      default:
        return kZero;  // !, floor
    }
  }

  // How many times y went into x, where `rest` is x % y. The floor of the rounded x / y may be
  // another number.
  Value Multiples(Value rest, Value x, Value y) {
    const Value quotient = Emit(Op::kDivide, {Emit(Op::kSubtract, {x, rest}), y});
    return Emit(Op::kFloor, {Emit(Op::kAdd, {quotient, Number(0.5f)})});
  }

  Value OfOperator(Op op, Value self, Value x, Value y) {
    const Value dx = slopes_[x], dy = slopes_[y];
    switch (op) {
      case Op::kAdd:
        return Sum(dx, dy);
      case Op::kSubtract:
        return Sum(dx, Negated(dy));
      case Op::kMultiply:
        return Sum(Times(dx, y), Times(dy, x));
      case Op::kDivide:
        return Sum(Over(dx, y), Negated(Over(Times(dy, self), y)));
      case Op::kModulo:
        return Sum(dx, Negated(Times(dy, dy == kZero ? kZero : Multiples(self, x, y))));
      case Op::kMin:
        return Choice(Emit(Op::kLess, {y, x}), dy, dx);
      case Op::kMax:
        return Choice(Emit(Op::kLess, {x, y}), dy, dx);
      default:
        return kZero;  // comparisons, && and ||
    }
  }

  Value SlopeOf(Value self) {
    const Instruction i = program_.instructions[self];
    const Value x = i.operands[0], y = i.operands[1];
    if (i.op == Op::kValue) return Number(1);
    if (i.op == Op::kLoad) return kZero;  // its indices are rounded down
    if (i.op == Op::kSelect) return Choice(x, slopes_[y], slopes_[i.operands[2]]);
    if (i.arity == 2) return OfOperator(i.op, self, x, y);
    if (i.arity == 1 && slopes_[x] != kZero) return OfFunction(i.op, self, x, slopes_[x]);
    return kZero;
  }

  Program program_;  // with the slopes behind
  std::vector<Value> slopes_;
};

// The derivative of a program by its value.
Program SlopeOf(std::string_view what, const Program& program) {
  Program slope = Slopes(program).Result();
  if (slope.instructions.size() > kMaxInstructions || !AssignSlots(slope)) {
    Fail(ErrorCode::kUnsupported,
         "the derivative of {} takes more than 1024 operations, or keeps more than 24 intermediate "
         "values at once: it has no gradient in heed",
         {std::string(what)});
  }
  return slope;
}

}  // namespace

TileFunction CompileSlope(std::string_view what, std::string_view text, ExpressionValue value,
                          std::vector<CapturedTensor> captured) {
  return WithMemoryErrors("an expression", [&] {
    return FunctionOf(
        SlopeOf(what, ParseExpression(what, text, VocabularyOf(value), std::move(captured))));
  });
}

FeatureBackward CompileFeatureBackward(std::string_view what, std::string_view text,
                                       std::vector<CapturedTensor> captured) {
  return WithMemoryErrors("an expression", [&] {
    return [slope = FeatureFunctionOf(SlopeOf(
                what, ParseExpression(what, text, FeatureVocabulary(), std::move(captured))))](
               const FeatureRows& rows, const float* arriving) {
      slope(rows);
      for (size_t r = 0; r < rows.num_rows; ++r) {
        for (size_t c = 0; c < rows.num_dims; ++c) {
          const size_t at = r * rows.row_stride + c;
          rows.values[at] = arriving[at] == 0 ? 0.0f : rows.values[at] * arriving[at];
        }
      }
    };
  });
}

}  // namespace heed
