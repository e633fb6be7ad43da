// From text to a Program: a recursive descent parser that emits instructions as it reads.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "heed/error.h"
#include "src/expression/program.h"
#include "src/from_javascript.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr size_t kMaxText = 4096;

constexpr int kMaxDepth = 64;

struct Function {
  std::string_view name;
  Op op;
  int arity;
};

constexpr Function kFunctions[] = {
    {"abs", Op::kAbs, 1}, {"floor", Op::kFloor, 1}, {"sqrt", Op::kSqrt, 1},
    {"exp", Op::kExp, 1}, {"log", Op::kLog, 1},     {"tanh", Op::kTanh, 1},
    {"sin", Op::kSin, 1}, {"cos", Op::kCos, 1},     {"sigmoid", Op::kSigmoid, 1},
    {"min", Op::kMin, 2}, {"max", Op::kMax, 2},
};

constexpr LeafName kPairNames[] = {
    {"b", Op::kBatch},       {"h", Op::kHead},      {"qIndex", Op::kQuery},
    {"q_index", Op::kQuery}, {"q_idx", Op::kQuery}, {"kvIndex", Op::kKey},
    {"kv_index", Op::kKey},  {"kv_idx", Op::kKey},  {"position", Op::kPosition},
};
constexpr LeafName kFeatureNames[] = {
    {"b", Op::kBatch},     {"h", Op::kHead},       {"d", Op::kKey},
    {"isKey", Op::kQuery}, {"is_key", Op::kQuery},
};

struct Operator {
  std::string_view text;
  Op op;
  bool swap;  // a > b is b < a
};

// Binary operators by precedence, weakest first; longer texts before their prefixes.
constexpr int kLevels = 6;
constexpr Operator kOperators[kLevels][4] = {
    {{"||", Op::kOr, false}},
    {{"&&", Op::kAnd, false}},
    {{"==", Op::kEqual, false}, {"!=", Op::kNotEqual, false}},
    {{"<=", Op::kLessEqual, false},
     {">=", Op::kLessEqual, true},
     {"<", Op::kLess, false},
     {">", Op::kLess, true}},
    {{"+", Op::kAdd, false}, {"-", Op::kSubtract, false}},
    {{"*", Op::kMultiply, false}, {"/", Op::kDivide, false}, {"%", Op::kModulo, false}},
};

class Parser {
 public:
  Parser(std::string_view what, std::string_view text, Vocabulary names,
         std::vector<CapturedTensor> captured)
      : what_(what), text_(text), names_(names) {
    program_.captured = std::move(captured);
  }

  Program Parse() {
    if (text_.size() > kMaxText) Fail("is longer than 4096 characters");
    CheckCaptured();
    Ternary();
    SkipSpace();
    if (at_ < text_.size()) Fail("expected an operator or the end");
    if (!AssignSlots(program_)) Fail("keeps more than 24 intermediate values at once");
    return std::move(program_);
  }

 private:
  using Value = uint16_t;

  [[noreturn]] void Fail(const std::string& message, ErrorCode code = ErrorCode::kOption) const {
    const std::string rest(text_.substr(std::min(at_, text_.size()), 16));
    const std::string place = rest.empty() ? "at its end" : "at `" + rest + "`";
    heed::Fail(code, "{}: {}, {} (character {})", {what_, message, place, at_ + 1});
  }

  // One name must not mean two things. What JavaScript captures are tensors with names.
  void CheckCaptured() const {
    std::set<std::string_view> names;
    for (const CapturedTensor& tensor : program_.captured) {
      const bool is_new = kFromJavaScript || names.insert(tensor.name).second;
      if (IsBuiltIn(tensor.name) || !is_new) {
        heed::Fail(ErrorCode::kOption,
                   "{}: a captured tensor is called `{}`, which already means something; give it "
                   "another name",
                   {what_, tensor.name});
      }
      if (!kFromJavaScript) CheckTensor(tensor);
    }
  }
  void CheckTensor(const CapturedTensor& tensor) const {
    const std::string name = Join("{}: captured `{}`", {what_, tensor.name});
    if (tensor.rank < 0 || tensor.rank > 4) {
      heed::Fail(ErrorCode::kShape, "{} has rank {}; expected 0 to 4", {name, tensor.rank});
    }
    Extents shape = {1, 1, 1, 1}, strides = {};
    std::copy_n(tensor.shape.begin(), tensor.rank, shape.begin());
    std::copy_n(tensor.strides.begin(), tensor.rank, strides.begin());
    CheckPresent(name, TensorView<const float>{tensor.data, shape, strides});
  }

  bool IsBuiltIn(std::string_view name) const {
    const auto is_named = [&](const auto& known) { return known.name == name; };
    return name == "inf" || (name == names_.value && !name.empty()) ||
           std::ranges::any_of(kFunctions, is_named) ||
           std::ranges::any_of(names_.others, is_named);
  }

  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool Take(std::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void Expect(std::string_view token) {
    if (!Take(token)) Fail("expected `" + std::string(token) + "`");
  }

  Value Emit(Op op, std::initializer_list<Value> operands = {}) {
    return EmitList(op, operands.begin(), operands.size());
  }

  Value EmitList(Op op, const Value* operands, size_t count) {
    if (program_.instructions.size() == kMaxInstructions) Fail("has more than 1024 operations");
    Instruction instruction = {};
    instruction.op = op;
    instruction.arity = static_cast<uint8_t>(count);
    instruction.varies = op == Op::kKey || op == Op::kValue;
    for (size_t i = 0; i < count; ++i) {
      instruction.operands[i] = operands[i];
      instruction.varies = instruction.varies || program_.instructions[operands[i]].varies;
    }
    program_.instructions.push_back(instruction);
    return static_cast<Value>(program_.instructions.size() - 1);
  }

  // One level of nesting: a sign, parentheses, the arguments of a call, indices, a branch of `?:`.
  Value Nested(Value (Parser::*parse)()) {
    if (depth_ == kMaxDepth) Fail("is nested more than 64 deep");
    ++depth_;
    const Value value = (this->*parse)();
    --depth_;
    return value;
  }

  Value Ternary() {
    const Value value = Binary(0);
    if (!Take("?")) return value;
    const Value then = Nested(&Parser::Ternary);
    Expect(":");
    const Value otherwise = Nested(&Parser::Ternary);
    return Emit(Op::kSelect, {value, then, otherwise});
  }

  Value Binary(int level) {
    if (level == kLevels) return Unary();
    Value left = Binary(level + 1);
    while (const Operator* found = TakeOperator(level)) {
      const Value right = Binary(level + 1);
      left = found->swap ? Emit(found->op, {right, left}) : Emit(found->op, {left, right});
    }
    return left;
  }

  const Operator* TakeOperator(int level) {
    for (const Operator& candidate : kOperators[level]) {
      if (!candidate.text.empty() && Take(candidate.text)) return &candidate;
    }
    return nullptr;
  }

  Value Unary() {
    if (Take("-")) return Emit(Op::kNegate, {Nested(&Parser::Unary)});
    if (Take("!")) return Emit(Op::kNot, {Nested(&Parser::Unary)});
    if (!Take("(")) return Leaf();
    const Value value = Nested(&Parser::Ternary);
    Expect(")");
    return value;
  }

  Value Leaf() {
    SkipSpace();
    if (at_ == text_.size()) Fail("expected a number, a name or `(`");
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return Number();
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') return NameOrCall();
    Fail("expected a number, a name or `(`");
  }

  Value NumberValue(double number) {
    const Value value = Emit(Op::kNumber);
    program_.instructions.back().number = static_cast<float>(number);
    return value;
  }

  // Digits are added up and shifted by powers of ten in float64, a few units in its last place from
  // exact, which float32 does not see. strtod would bring its own decimal arithmetic into
  // WebAssembly.
  Value Number() {
    double number = 0;
    int64_t shift = 0;
    // More digits than float64 holds only move the point.
    const auto add = [&](int digit) {
      const bool fits = number < 1e18;
      if (fits) number = number * 10 + digit;
      return fits;
    };
    size_t count = Digits([&](int digit) { shift += add(digit) ? 0 : 1; });
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      count += Digits([&](int digit) { shift -= add(digit) ? 1 : 0; });
    }
    if (count == 0) Fail("expected a number");
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      const bool negative = at_ < text_.size() && text_[at_] == '-';
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      int64_t exponent = 0;
      if (Digits([&](int digit) { exponent = std::min<int64_t>(exponent * 10 + digit, 100000); }) ==
          0) {
        Fail("expected digits after the `e` of a number");
      }
      shift += negative ? -exponent : exponent;
    }
    return NumberValue(Shifted(number, shift));
  }

  // How many digits there are here; each is given to `use`.
  template <class Use>
  size_t Digits(const Use& use) {
    const size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      use(text_[at_++] - '0');
    }
    return at_ - begin;
  }

  // number * 10^shift.
  static double Shifted(double number, int64_t shift) {
    if (number == 0) return 0;
    double power = 1;
    double base = 10;
    for (uint64_t n = static_cast<uint64_t>(std::abs(shift)); n > 0; n /= 2) {
      if (n % 2 == 1) power *= base;
      base *= base;
    }
    return shift < 0 ? number / power : number * power;
  }

  Value NameOrCall() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
      ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    for (size_t t = 0; t < program_.captured.size(); ++t) {
      if (program_.captured[t].name == name) return Load(t);
    }
    for (const Function& function : kFunctions) {
      if (function.name == name) return Call(function);
    }
    for (const LeafName& known : names_.others) {
      if (known.name == name) return Emit(known.op);
    }
    if (name == names_.value && !name.empty()) return Emit(Op::kValue);
    if (name == "inf") return NumberValue(std::numeric_limits<double>::infinity());
    at_ = begin;
    Fail(std::string("`").append(name) + "` is unknown; known names are " + KnownNames());
  }

  // Of each leaf the first spelling.
  std::string KnownNames() const {
    std::string names;
    if (!names_.value.empty()) names.append(names_.value) += ", ";
    for (size_t n = 0; n < names_.others.size(); ++n) {
      const LeafName& leaf = names_.others[n];
      if (n == 0 || leaf.op != names_.others[n - 1].op) names.append(leaf.name) += ", ";
    }
    names += "inf";
    for (const CapturedTensor& tensor : program_.captured) names += ", " + tensor.name;
    for (const Function& function : kFunctions) names += ", " + std::string(function.name) + "()";
    return names;
  }

  Value Call(const Function& function) {
    Expect("(");
    const Value first = Nested(&Parser::Ternary);
    Value result;
    if (function.arity == 1) {
      result = Emit(function.op, {first});
    } else {
      Expect(",");
      const Value second = Nested(&Parser::Ternary);
      result = Emit(function.op, {first, second});
    }
    Expect(")");
    return result;
  }

  Value Load(size_t tensor_index) {
    const CapturedTensor& tensor = program_.captured[tensor_index];
    Value indices[4];
    size_t count = 0;
    if (Take("[")) {
      do {
        if (count == 4) Fail("a tensor has at most 4 indices");
        indices[count++] = Nested(&Parser::Ternary);
      } while (Take(","));
      Expect("]");
    }
    if (count != static_cast<size_t>(tensor.rank) && !(count == 0 && HasOneElement(tensor))) {
      Fail("`" + tensor.name + "` has " + std::to_string(tensor.rank) + " dimensions and got " +
               std::to_string(count) + " indices",
           ErrorCode::kShape);
    }
    const Value value = EmitList(Op::kLoad, indices, count);
    program_.instructions.back().tensor = static_cast<uint16_t>(tensor_index);
    return value;
  }

  static bool HasOneElement(const CapturedTensor& tensor) {
    for (int axis = 0; axis < tensor.rank; ++axis) {
      if (tensor.shape[static_cast<size_t>(axis)] != 1) return false;
    }
    return true;
  }

  std::string_view what_;
  std::string_view text_;
  Vocabulary names_;
  size_t at_ = 0;
  int depth_ = 0;
  Program program_;
};

}  // namespace

bool AssignSlots(Program& program) {
  std::vector<Instruction>& list = program.instructions;
  std::vector<size_t> last_use(list.size(), 0);
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t a = 0; a < list[i].arity; ++a) last_use[list[i].operands[a]] = i;
  }
  last_use.back() = list.size();
  bool taken[kMaxSlots] = {};
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t a = 0; a < list[i].arity; ++a) {
      const Instruction& operand = list[list[i].operands[a]];
      if (operand.varies && last_use[list[i].operands[a]] == i) taken[operand.slot] = false;
    }
    if (!list[i].varies) continue;
    const auto free_slot = std::find(std::begin(taken), std::end(taken), false);
    if (free_slot == std::end(taken)) return false;
    *free_slot = true;
    list[i].slot = static_cast<uint8_t>(free_slot - std::begin(taken));
  }
  return true;
}

Vocabulary VocabularyOf(ExpressionValue value) {
  CheckEnum("value", value, ExpressionValue::kProb);
  if (value == ExpressionValue::kScore) return {"score", kPairNames};
  return {value == ExpressionValue::kProb ? "prob" : "", kPairNames};
}

Vocabulary FeatureVocabulary() { return {"x", kFeatureNames}; }

Program ParseExpression(std::string_view what, std::string_view text, Vocabulary names,
                        std::vector<CapturedTensor> captured) {
  return Parser(what, text, names, std::move(captured)).Parse();
}

}  // namespace heed
