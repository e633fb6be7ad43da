#include "ptx_module.h"

#include <cctype>
#include <charconv>
#include <stdexcept>
#include <string>

namespace heed::interpreter {
namespace {

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

uint64_t Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::runtime_error("PTX: no number: " + std::string(text));
  }
  return value;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Module Parse() {
    while (Skip()) Top();
    return std::move(module_);
  }

 private:
  // To the next character that is neither blank nor in a comment; false at the end.
  bool Skip() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        at_ = text_.find("*/", at_) + 2;
      } else {
        return true;
      }
    }
    return false;
  }
  std::string_view Word() {
    Skip();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  char Peek() { return Skip() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  std::string_view Until(char c) {
    const size_t begin = at_;
    at_ = text_.find(c, at_);
    if (at_ == std::string_view::npos) Fail("no end");
    return Trim(text_.substr(begin, at_++ - begin));
  }
  [[noreturn]] void Fail(const char* what) const {
    throw std::runtime_error("PTX: " + std::string(what) + " at " +
                             std::string(text_.substr(std::min(at_, text_.size()), 80)));
  }

  void Top() {
    const std::string_view word = Word();
    if (word == ".version" || word == ".address_size") {
      Word();
    } else if (word == ".target") {
      module_.target = Word();
      while (Take(',')) Word();
    } else if (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
      // linkage: one module is all there is
    } else if (word == ".entry" || word == ".func") {
      ParseFunction(word == ".entry");
    } else if (word == ".global" || word == ".const" || word == ".shared") {
      for (const Variable& variable : Variables(word)) module_.variables.push_back(variable);
    } else {
      Fail("an unknown directive ends");
    }
  }

  static Variable::Space SpaceOf(std::string_view word) {
    if (word == ".global") return Variable::Space::kGlobal;
    if (word == ".const") return Variable::Space::kConst;
    if (word == ".shared") return Variable::Space::kShared;
    if (word == ".local") return Variable::Space::kLocal;
    return Variable::Space::kParam;
  }

  // [.align n] .type name [size] [= {...}], up to what follows.
  Variable ParseVariable(std::string_view space) {
    Variable variable;
    variable.space = SpaceOf(space);
    std::string_view word = Word();
    while (word == ".align" || word == ".ptr" || word == ".global" || word == ".const") {
      if (word == ".align") variable.align = static_cast<uint32_t>(Number(Word()));
      word = Word();
    }
    variable.type = word.substr(1);
    variable.align = std::max(variable.align, BytesOfType(variable.type));
    word = Word();
    while (word == ".ptr" || word == ".align" || word == ".global") {
      if (word == ".align") Word();  // of what a pointer points to
      word = Word();
    }
    variable.name = word;
    uint64_t count = 1;
    while (Take('[')) {
      const std::string_view size = Until(']');
      count *= size.empty() ? 0 : Number(size);
    }
    variable.bytes = count * BytesOfType(variable.type);
    if (Take('=')) {
      if (Take('{')) {
        variable.values = Until('}');
      } else {
        variable.values = text_.substr(at_, text_.find(';', at_) - at_);
        at_ += variable.values.size();
      }
    }
    return variable;
  }

  std::vector<Variable> Variables(std::string_view space) {
    std::vector<Variable> variables = {ParseVariable(space)};
    if (!Take(';')) Fail("a variable does not end");
    return variables;
  }

  std::vector<Variable> Params() {
    std::vector<Variable> params;
    if (!Take('(')) return params;
    while (!Take(')')) {
      params.push_back(ParseVariable(Word()));
      Take(',');
    }
    return params;
  }

  void ParseFunction(bool is_kernel) {
    Function function;
    function.is_kernel = is_kernel;
    if (!is_kernel) function.results = Params();
    function.name = Word();
    function.params = Params();
    while (Peek() != '{' && Peek() != ';') {
      const std::string_view word = Word();
      if (word == ".noreturn") continue;
      if (word != ".maxntid" && word != ".minnctapersm" && word != ".reqntid") Fail("a directive");
      uint64_t product = Number(Word());
      while (Take(',')) product *= Number(Word());
      if (word != ".minnctapersm") function.max_threads = static_cast<uint32_t>(product);
    }
    if (Take(';')) return;  // declared before it is defined
    Body(function.body);
    module_.functions[function.name] = std::move(function);
  }

  void Body(std::vector<Statement>& body) {
    int depth = 0;
    do {
      if (Take('{')) {
        ++depth;
        body.push_back({Statement::Kind::kOpen, {}, {}});
      } else if (Take('}')) {
        --depth;
        body.push_back({Statement::Kind::kClose, {}, {}});
      } else if (Peek() == '.') {
        Directive(body);
      } else {
        LabelOrInstruction(body);
      }
    } while (depth > 0);
  }

  void Directive(std::vector<Statement>& body) {
    const std::string_view word = Word();
    if (word == ".reg") {
      const std::string_view type = Word().substr(1);
      body.push_back({Statement::Kind::kRegisters, Until(';'), type});
    } else if (word == ".local" || word == ".shared" || word == ".param") {
      for (const Variable& variable : Variables(word)) {
        body.push_back({Statement::Kind::kVariable, {}, {}, variable});
      }
    } else if (word == ".pragma") {
      Until(';');
    } else {
      Fail("an unknown directive of a function ends");
    }
  }

  void LabelOrInstruction(std::vector<Statement>& body) {
    const size_t begin = at_;
    if (text_[at_] != '@') {
      const std::string_view word = Word();
      if (word.empty()) Fail("no statement");
      if (Take(':') && text_[at_] != ':') {
        body.push_back({Statement::Kind::kLabel, word, {}});
        return;
      }
    }
    at_ = begin;
    body.push_back({Statement::Kind::kInstruction, Until(';'), {}});
  }

  std::string_view text_;
  size_t at_ = 0;
  Module module_;
};

}  // namespace

std::string_view Trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

std::vector<std::string_view> SplitList(std::string_view text) {
  std::vector<std::string_view> pieces;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c != ',' || (depth > 0 && at < text.size())) continue;
    const std::string_view piece = Trim(text.substr(begin, at - begin));
    if (!piece.empty()) pieces.push_back(piece);
    begin = at + 1;
  }
  return pieces;
}

uint32_t BytesOfType(std::string_view type) {
  if (type == "pred") return 4;  // a bit a lane
  const size_t digits = type.find_first_of("0123456789");
  if (digits == std::string_view::npos) throw std::runtime_error("PTX: type " + std::string(type));
  return static_cast<uint32_t>(Number(type.substr(digits)) / 8);
}

Module ParseModule(std::string_view text) { return Parser(text).Parse(); }

}  // namespace heed::interpreter
