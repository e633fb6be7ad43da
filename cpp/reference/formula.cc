#include "formula.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace heed::reference {
namespace {

struct Table {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

std::vector<Table> ReadCaptured(const Request& request) {
  std::vector<Table> tables;
  const std::string prefix = "captured.";
  for (const NamedTensor& input : request.inputs) {
    if (input.name.rfind(prefix, 0) != 0) continue;
    const AnyTensor& tensor = input.tensor;
    if (tensor.dtype != DType::kFloat32 && tensor.dtype != DType::kFloat64) {
      throw Error(ErrorCode::kDType, input.name + " must hold floats");
    }
    Table table{input.name.substr(prefix.size()), {}, {}};
    int64_t count = 1;
    for (int axis = 0; axis < tensor.rank; ++axis) {
      table.shape.push_back(tensor.shape[axis]);
      count *= tensor.shape[axis];
    }
    for (int64_t n = 0; n < count; ++n) {
      int64_t rest = n;
      int64_t at = 0;
      for (int axis = tensor.rank - 1; axis >= 0; --axis) {
        at += rest % tensor.shape[axis] * tensor.strides[axis];
        rest /= tensor.shape[axis];
      }
      table.values.push_back(tensor.dtype == DType::kFloat32
                                 ? static_cast<const float*>(tensor.data)[at]
                                 : static_cast<const double*>(tensor.data)[at]);
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

// What is left of x beside the largest multiple of y: 0, or with the sign of y.
double Remainder(double x, double y) {
  const double rest = std::fmod(x, y);
  return rest + (rest != 0 && (rest < 0) != (y < 0) ? y : 0.0);
}

bool True(double x) { return x > 0 || x < 0; }

// Grammar, weakest binding first:
//   choice  = or [ "?" choice ":" choice ]
//   or      = and { "||" and }         and = equal { "&&" equal }
//   equal   = order { ("==" | "!=") order }
//   order   = sum { ("<=" | ">=" | "<" | ">") sum }
//   sum     = product { ("+" | "-") product }
//   product = prefix { ("*" | "/" | "%") prefix }
//   prefix  = ("-" | "!") prefix | "(" choice ")" | number | name [ "[" list "]" | "(" list ")" ]
class Reader {
 public:
  Reader(std::string_view param, std::string text, std::string value, std::vector<Table> tables)
      : param_(param),
        text_(std::move(text)),
        value_(std::move(value)),
        tables_(std::move(tables)) {}

  Formula Read() {
    Formula formula = Choice();
    Space();
    if (at_ != text_.size()) Fail("something is left over");
    return formula;
  }

 private:
  [[noreturn]] void Fail(const std::string& message, ErrorCode code = ErrorCode::kOption) const {
    throw Error(code, param_ + ": " + message + " at character " + std::to_string(at_ + 1));
  }

  void Space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool Next(const std::string& token) {
    Space();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }

  void Need(const std::string& token) {
    if (!Next(token)) Fail("no " + token);
  }

  Formula Choice() {
    Formula condition = Or();
    if (!Next("?")) return condition;
    Formula yes = Choice();
    Need(":");
    Formula no = Choice();
    return [=](const Point& p) { return True(condition(p)) ? yes(p) : no(p); };
  }

  Formula Or() {
    Formula left = And();
    while (Next("||")) {
      left = [a = left, b = And()](const Point& p) -> double { return True(a(p)) || True(b(p)); };
    }
    return left;
  }

  Formula And() {
    Formula left = Equal();
    while (Next("&&")) {
      left = [a = left, b = Equal()](const Point& p) -> double { return True(a(p)) && True(b(p)); };
    }
    return left;
  }

  Formula Equal() {
    Formula left = Order();
    for (;;) {
      if (Next("==")) {
        left = [a = left, b = Order()](const Point& p) -> double { return a(p) == b(p); };
      } else if (Next("!=")) {
        left = [a = left, b = Order()](const Point& p) -> double { return a(p) != b(p); };
      } else {
        return left;
      }
    }
  }

  Formula Order() {
    Formula left = Sum();
    for (;;) {
      if (Next("<=")) {
        left = [a = left, b = Sum()](const Point& p) -> double { return a(p) <= b(p); };
      } else if (Next(">=")) {
        left = [a = left, b = Sum()](const Point& p) -> double { return a(p) >= b(p); };
      } else if (Next("<")) {
        left = [a = left, b = Sum()](const Point& p) -> double { return a(p) < b(p); };
      } else if (Next(">")) {
        left = [a = left, b = Sum()](const Point& p) -> double { return a(p) > b(p); };
      } else {
        return left;
      }
    }
  }

  Formula Sum() {
    Formula left = Product();
    for (;;) {
      if (Next("+")) {
        left = [a = left, b = Product()](const Point& p) { return a(p) + b(p); };
      } else if (Next("-")) {
        left = [a = left, b = Product()](const Point& p) { return a(p) - b(p); };
      } else {
        return left;
      }
    }
  }

  Formula Product() {
    Formula left = Prefix();
    for (;;) {
      if (Next("*")) {
        left = [a = left, b = Prefix()](const Point& p) { return a(p) * b(p); };
      } else if (Next("/")) {
        left = [a = left, b = Prefix()](const Point& p) { return a(p) / b(p); };
      } else if (Next("%")) {
        left = [a = left, b = Prefix()](const Point& p) { return Remainder(a(p), b(p)); };
      } else {
        return left;
      }
    }
  }

  Formula Prefix() {
    if (Next("-")) return [a = Prefix()](const Point& p) { return -a(p); };
    if (Next("!")) return [a = Prefix()](const Point& p) -> double { return !True(a(p)); };
    if (Next("(")) {
      Formula inner = Choice();
      Need(")");
      return inner;
    }
    Space();
    if (at_ == text_.size()) Fail("the text ends too early");
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return Number();
    return Name();
  }

  // digits [ "." [ digits ] ] or "." digits, then [ ("e" | "E") [ "+" | "-" ] digits ]. What is too
  // large is infinite, what is too small 0.
  Formula Number() {
    const size_t begin = at_;
    size_t count = Digits();
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      count += Digits();
    }
    if (count == 0) Fail("not a number");
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (Digits() == 0) Fail("no digits after the e");
    }
    const double number = std::strtod(text_.substr(begin, at_ - begin).c_str(), nullptr);
    return [number](const Point&) { return number; };
  }

  size_t Digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ - begin;
  }

  Formula Name() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
      ++at_;
    }
    const std::string name = text_.substr(begin, at_ - begin);
    for (const Table& table : tables_) {
      if (table.name == name) return Element(table);
    }
    if (name == "b") return [](const Point& p) { return static_cast<double>(p.b); };
    if (name == "h") return [](const Point& p) { return static_cast<double>(p.h); };
    if (value_ == "x") {
      if (name == "d") return [](const Point& p) { return static_cast<double>(p.j); };
      if (name == "isKey" || name == "is_key") {
        return [](const Point& p) { return static_cast<double>(p.i); };
      }
      return Constant(name, begin);
    }
    if (name == "qIndex" || name == "q_index" || name == "q_idx") {
      return [](const Point& p) { return static_cast<double>(p.i); };
    }
    if (name == "kvIndex" || name == "kv_index" || name == "kv_idx") {
      return [](const Point& p) { return static_cast<double>(p.j); };
    }
    if (name == "position") return [](const Point& p) { return static_cast<double>(p.position); };
    return Constant(name, begin);
  }

  // What all expressions have.
  Formula Constant(const std::string& name, size_t begin) {
    if (name == "inf") {
      return [](const Point&) { return std::numeric_limits<double>::infinity(); };
    }
    if (name == value_ && !name.empty()) return [](const Point& p) { return p.value; };
    return Call(name, begin);
  }

  Formula Element(const Table& table) {
    std::vector<Formula> indices;
    if (Next("[")) {
      do indices.push_back(Choice());
      while (Next(","));
      Need("]");
    }
    if (indices.empty() && table.values.size() == 1) {
      return [value = table.values[0]](const Point&) { return value; };
    }
    if (indices.size() != table.shape.size()) {
      Fail(table.name + " has another number of dimensions", ErrorCode::kShape);
    }
    return [table, indices](const Point& p) {
      int64_t at = 0;
      for (size_t axis = 0; axis < indices.size(); ++axis) {
        const double index = std::floor(indices[axis](p));
        if (!(index >= 0 && index < static_cast<double>(table.shape[axis]))) return std::nan("");
        at = at * table.shape[axis] + static_cast<int64_t>(index);
      }
      return table.values[at];
    };
  }

  Formula Call(const std::string& name, size_t begin) {
    using Unary = double (*)(double);
    const std::pair<const char*, Unary> unary[] = {
        {"abs", [](double x) { return std::abs(x); }},
        {"floor", [](double x) { return std::floor(x); }},
        {"sqrt", [](double x) { return std::sqrt(x); }},
        {"exp", [](double x) { return std::exp(x); }},
        {"log", [](double x) { return std::log(x); }},
        {"tanh", [](double x) { return std::tanh(x); }},
        {"sigmoid", [](double x) { return 1.0 / (1.0 + std::exp(-x)); }},
        {"sin", [](double x) { return std::sin(x); }},
        {"cos", [](double x) { return std::cos(x); }}};
    for (const auto& [known, function] : unary) {
      if (name != known) continue;
      Need("(");
      Formula a = Choice();
      Need(")");
      return [a, f = function](const Point& p) { return f(a(p)); };
    }
    if (name != "min" && name != "max") {
      at_ = begin;
      Fail("`" + name + "` is unknown");
    }
    Need("(");
    Formula a = Choice();
    Need(",");
    Formula b = Choice();
    Need(")");
    const double sign = name == "min" ? 1.0 : -1.0;
    return [=](const Point& p) {
      const double x = a(p), y = b(p);
      if (std::isnan(x) || std::isnan(y)) return std::nan("");
      return sign * x < sign * y ? x : y;
    };
  }

  std::string param_;
  std::string text_;
  std::string value_;
  std::vector<Table> tables_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Formula> ReadFormula(const Request& request, std::string_view param,
                                   const std::string& value) {
  const ParamValue* given = FindParam(request, param);
  if (given == nullptr) return std::nullopt;
  const std::string* text = std::get_if<std::string>(given);
  if (text == nullptr) {
    throw Error(ErrorCode::kOption, std::string(param) + " must be an expression");
  }
  return Reader(param, *text, value, ReadCaptured(request)).Read();
}

}  // namespace heed::reference
