#include "decoder.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

namespace heed::interpreter {
namespace {

uint32_t AlignUp(uint32_t at, uint32_t align) { return (at + align - 1) / align * align; }

Operation Parse(std::string_view text) {
  Operation operation;
  const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  operation.opcode = text.substr(0, end);
  size_t begin = 0;
  for (size_t at = 0; at <= end; ++at) {
    if (at < end && text[at] != '.') continue;
    operation.words.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  operation.name = operation.words.front();
  operation.words.erase(operation.words.begin());
  if (operation.words.empty()) operation.words.push_back("");
  operation.operands = SplitList(text.substr(end));
  return operation;
}

}  // namespace

bool Operation::Has(std::string_view word) const {
  return std::find(words.begin(), words.end(), word) != words.end();
}

uint64_t Decoder::Immediate(std::string_view text, int width) {
  bool negative = false;
  std::string_view digits = text;
  if (!digits.empty() && digits.front() == '-') negative = true, digits.remove_prefix(1);
  if (!digits.empty() && digits.back() == 'U') digits.remove_suffix(1);
  int base = 10;
  const std::string_view prefix = digits.substr(0, 2);
  if (prefix == "0x" || prefix == "0X" || prefix == "0f" || prefix == "0F" || prefix == "0d" ||
      prefix == "0D") {
    base = 16;
    digits.remove_prefix(2);
  }
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty()) {
    Fail("no operand: " + std::string(text));
  }
  const char kind = base == 16 ? prefix[1] : ' ';
  if (((kind == 'f' || kind == 'F') && width != 4) ||
      ((kind == 'd' || kind == 'D') && width != 8)) {
    Fail("a float of another width: " + std::string(text));
  }
  return negative ? 0 - value : value;
}

uint32_t Decoder::NewPlace(int width) {
  const uint32_t at = AlignUp(program_.register_bytes, 64);
  program_.register_bytes = at + std::max(static_cast<uint32_t>(width) * kLanes, 64u);
  return at;
}

uint32_t Decoder::NewLabel() {
  labels_.push_back(kNowhere);
  return static_cast<uint32_t>(labels_.size() - 1);
}

Program Decoder::Decode(const Function& kernel) {
  program_.name = kernel.name;
  program_.max_threads = kernel.max_threads;
  carry_ = {NewPlace(0), 0};
  scopes_.emplace_back();
  for (const Variable& param : kernel.params) {
    const uint32_t at = AlignUp(program_.param_bytes, param.align);
    scopes_.back().symbols[param.name] = {Address::Base::kParam, at};
    program_.param_offsets.push_back(at);
    program_.param_sizes.push_back(static_cast<uint32_t>(param.bytes));
    program_.param_bytes = at + static_cast<uint32_t>(param.bytes);
  }
  const uint32_t end = NewLabel();
  Walk(kernel, end);
  labels_[end] = static_cast<uint32_t>(program_.code.size());
  Instruction& last = program_.code.emplace_back();
  last.kind = Kind::kExit;
  last.text = "(end)";
  Resolve();
  program_.local_bytes = local_ - kLocalBegin;
  return std::move(program_);
}

void Decoder::Resolve() {
  for (Instruction& i : program_.code) {
    if (i.kind != Kind::kBranch) continue;
    i.target = labels_[i.target];
    if (i.target == kNowhere) Fail("a branch to no place");
  }
}

void Decoder::Open(const std::vector<Statement>& body, size_t at, bool is_function) {
  scopes_.emplace_back();
  scopes_.back().is_function = is_function;
  int depth = 0;
  for (size_t n = at; n < body.size(); ++n) {
    if (body[n].kind == Statement::Kind::kOpen) ++depth;
    if (body[n].kind == Statement::Kind::kClose && --depth == 0) break;
    if (body[n].kind == Statement::Kind::kLabel && depth == 1) {
      scopes_.back().labels[body[n].text] = NewLabel();
    }
  }
}

void Decoder::Walk(const Function& function, uint32_t end_label) {
  const std::vector<Statement>& body = function.body;
  for (size_t n = 0; n < body.size(); ++n) {
    const Statement& statement = body[n];
    switch (statement.kind) {
      case Statement::Kind::kOpen:
        Open(body, n, n == 0);
        break;
      case Statement::Kind::kClose:
        scopes_.pop_back();
        break;
      case Statement::Kind::kRegisters:
        Declare(statement);
        break;
      case Statement::Kind::kVariable:
        DeclareVariable(statement.variable);
        break;
      case Statement::Kind::kLabel:
        labels_[LabelOf(statement.text)] = static_cast<uint32_t>(program_.code.size());
        break;
      case Statement::Kind::kInstruction:
        Emit(statement.text, end_label);
        break;
    }
  }
}

void Decoder::Declare(const Statement& statement) {
  const int width = statement.type == "pred" ? 0 : static_cast<int>(BytesOfType(statement.type));
  for (std::string_view name : SplitList(statement.text)) {
    uint32_t count = 0;
    if (const size_t open = name.find('<'); open != std::string_view::npos) {
      std::from_chars(name.data() + open + 1, name.data() + name.size(), count);
      name = name.substr(0, open);
    }
    scopes_.back().declared[name] = {width, count};
  }
}

uint32_t Decoder::AddShared(const Variable& variable) {
  const uint32_t at = AlignUp(kSharedBegin + program_.shared_bytes, variable.align);
  program_.shared_bytes = at + static_cast<uint32_t>(variable.bytes) - kSharedBegin;
  return at;
}

void Decoder::DeclareVariable(const Variable& variable) {
  if (variable.space == Variable::Space::kShared) {
    scopes_.back().symbols[variable.name] = {Address::Base::kShared, AddShared(variable)};
    return;
  }
  local_ = AlignUp(local_, variable.align);
  scopes_.back().symbols[variable.name] = {Address::Base::kLocal, local_};
  local_ += static_cast<uint32_t>(variable.bytes);
}

uint32_t Decoder::LabelOf(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->labels.find(name);
    if (found != scope->labels.end()) return found->second;
    if (scope->is_function) break;
  }
  Fail("no label " + std::string(name));
}

Place Decoder::FindRegister(std::string_view name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->places.find(name); found != scope->places.end()) {
      return found->second;
    }
    auto declared = scope->declared.find(name);
    if (declared == scope->declared.end()) {
      const size_t digits = name.find_last_not_of("0123456789") + 1;
      declared = scope->declared.find(name.substr(0, digits));
      if (declared != scope->declared.end()) {
        uint32_t number = kNowhere;
        std::from_chars(name.data() + digits, name.data() + name.size(), number);
        if (number >= declared->second.count) declared = scope->declared.end();
      }
    }
    if (declared != scope->declared.end()) {
      const int width = declared->second.width;
      return scope->places[name] = {NewPlace(width), width};
    }
    if (scope->is_function) break;
  }
  return {};
}

const Decoder::Symbol* Decoder::FindSymbol(std::string_view name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->symbols.find(name);
    if (found != scope->symbols.end()) return &found->second;
  }
  if (const auto found = shared_.find(name); found != shared_.end()) return &found->second;
  for (const Variable& variable : module_.variables) {
    if (variable.name != name) continue;
    Symbol symbol;
    if (variable.space != Variable::Space::kShared) {
      symbol = {Address::Base::kGlobal, globals_.at(name)};
    } else if (variable.bytes == 0) {
      symbol = {Address::Base::kShared, 0, true};
      program_.dynamic_align = std::max(variable.align, 1u);
    } else {
      symbol = {Address::Base::kShared, AddShared(variable)};
    }
    return &(shared_[name] = symbol);
  }
  return nullptr;
}

Place Decoder::Constant(int width, uint64_t value) {
  if (width > 0 && width < 8) value &= (1ull << 8 * width) - 1;
  Place& place = constants_[{width, value}];
  if (place.at == kNowhere) {
    place = {NewPlace(width), width};
    program_.presets.push_back(
        {Preset::Source::kConstant, place.at, static_cast<uint32_t>(width), value});
  }
  return place;
}

Place Decoder::SymbolPlace(const Symbol& symbol, int width) {
  if (!symbol.dynamic) return Constant(width, symbol.at);
  const Place place = {NewPlace(width), width};
  program_.presets.push_back(
      {Preset::Source::kDynamicShared, place.at, static_cast<uint32_t>(width), 0});
  return place;
}

Place Decoder::Special(std::string_view name) {
  using Source = Preset::Source;
  static const std::unordered_map<std::string_view, Source> known = {
      {"%tid.x", Source::kThreadX},    {"%tid.y", Source::kThreadY},
      {"%tid.z", Source::kThreadZ},    {"%ntid.x", Source::kThreadsX},
      {"%ntid.y", Source::kThreadsY},  {"%ntid.z", Source::kThreadsZ},
      {"%ctaid.x", Source::kBlockX},   {"%ctaid.y", Source::kBlockY},
      {"%ctaid.z", Source::kBlockZ},   {"%nctaid.x", Source::kBlocksX},
      {"%nctaid.y", Source::kBlocksY}, {"%nctaid.z", Source::kBlocksZ},
      {"%laneid", Source::kLane},      {"%warpid", Source::kWarp}};
  const auto found = known.find(name);
  if (found == known.end()) return {};
  Place& place = specials_[name];
  if (place.at == kNowhere) {
    place = {NewPlace(4), 4};
    program_.presets.push_back({found->second, place.at, 4});
  }
  return place;
}

Place Decoder::Source(std::string_view operand, int width) {
  Place place = FindRegister(operand);
  if (place.at == kNowhere && operand.front() == '%') place = Special(operand);
  if (place.at != kNowhere) {
    if (place.width != width) Fail("a register of another width: " + std::string(operand));
    return place;
  }
  if (const Symbol* symbol = FindSymbol(operand)) return SymbolPlace(*symbol, width);
  return Constant(width, Immediate(operand, width));
}

Place Decoder::WideSource(std::string_view operand, int width) {
  const Place place = FindRegister(operand);
  return place.at == kNowhere ? Source(operand, width) : place;
}

Place Decoder::Predicate(std::string_view operand) {
  const Place place = FindRegister(operand);
  if (place.at == kNowhere) return Constant(0, Immediate(operand, 0));
  if (place.width != 0) Fail("no predicate: " + std::string(operand));
  return place;
}

Place Decoder::Destination(std::string_view operand) {
  if (operand == "_") return {};
  const Place place = FindRegister(operand);
  if (place.at == kNowhere) Fail("no register: " + std::string(operand));
  return place;
}

Place Decoder::DestinationOf(std::string_view operand, int width) {
  const Place place = Destination(operand);
  if (place.at != kNowhere && place.width != width) {
    Fail("a register of another width: " + std::string(operand));
  }
  return place;
}

Address Decoder::AddressOf(std::string_view operand) {
  if (operand.front() != '[' || operand.back() != ']') Fail("no address: " + std::string(operand));
  std::string_view inner = Trim(operand.substr(1, operand.size() - 2));
  Address address;
  if (const size_t plus = inner.find('+'); plus != std::string_view::npos) {
    address.offset = static_cast<int64_t>(Immediate(Trim(inner.substr(plus + 1)), 8));
    inner = Trim(inner.substr(0, plus));
  }
  address.place = FindRegister(inner);
  if (address.place.at != kNowhere) return address;
  if (const Symbol* symbol = FindSymbol(inner)) {
    address.base = symbol->base;
    address.place = SymbolPlace(*symbol, 8);
    return address;
  }
  address.place = Constant(8, Immediate(inner, 8));
  return address;
}

std::vector<std::string_view> Decoder::Elements(std::string_view operand) const {
  if (operand.front() != '{') return {operand};
  return SplitList(operand.substr(1, operand.size() - 2));
}

void Decoder::Emit(std::string_view text, uint32_t end_label) {
  try {
    Instruction i;
    i.text = text;
    if (text.front() == '@') {
      const size_t blank = text.find_first_of(" \t");
      i.negated = text[1] == '!';
      i.guard = Predicate(text.substr(i.negated ? 2 : 1, blank - (i.negated ? 2 : 1))).at;
      text = Trim(text.substr(blank));
    }
    const Operation operation = Parse(text);
    if (!ignored_.empty() && operation.opcode.starts_with(ignored_)) return;
    if (operation.name == "call") return Call(operation, i);
    if (ControlFlow(operation, i, end_label) || DecodeMove(*this, operation, i) ||
        DecodeArithmetic(*this, operation, i) || DecodeFloat(*this, operation, i) ||
        DecodeCompare(*this, operation, i) || DecodeConvert(*this, operation, i) ||
        DecodeMemory(*this, operation, i) || DecodeAtomic(*this, operation, i) ||
        DecodeCollective(*this, operation, i) || DecodeMatrix(*this, operation, i) ||
        DecodeCopy(*this, operation, i) || DecodeAsync(*this, operation, i) ||
        DecodeWarpGroup(*this, operation, i)) {
      program_.code.push_back(std::move(i));
      return;
    }
    Fail("the interpreter does not know this instruction");
  } catch (const Fault& fault) {
    throw Fault(std::string(fault.what()) + " in: " + std::string(text));
  }
}

bool Decoder::ControlFlow(const Operation& operation, Instruction& i, uint32_t end_label) {
  if (operation.name == "bra") {
    i.kind = Kind::kBranch;
    i.target = LabelOf(operation.operands.at(0));
    return true;
  }
  if (operation.name == "ret" && depth_ > 0) {
    i.kind = Kind::kBranch;
    i.target = end_label;
    return true;
  }
  if (operation.name == "ret" || operation.name == "exit") {
    i.kind = Kind::kExit;
    return true;
  }
  if (operation.name == "trap") {
    i.run = [](Warp&, const Instruction&, Lanes) { Fail("trap"); };
    return true;
  }
  return false;
}

// The function's body stands here, with registers of its own; its parameters are the variables that
// the call names.
void Decoder::Call(const Operation& operation, const Instruction& guard) {
  if (guard.guard != kNowhere) Fail("a call with a guard");
  if (++depth_ > 8) Fail("calls too deep");
  const bool has_results = operation.operands.size() == 3;
  const std::string_view name = operation.operands.at(has_results ? 1 : 0);
  const auto found = module_.functions.find(name);
  if (found == module_.functions.end()) Fail("no function " + std::string(name));
  Scope bound;
  bound.is_function = true;
  const auto bind = [&](std::string_view list, const std::vector<Variable>& variables) {
    const std::vector<std::string_view> names = SplitList(list.substr(1, list.size() - 2));
    for (size_t n = 0; n < variables.size(); ++n) {
      const Symbol* symbol = FindSymbol(names.at(n));
      if (symbol == nullptr) Fail("no parameter " + std::string(names[n]));
      bound.symbols[variables[n].name] = *symbol;
    }
  };
  if (has_results) bind(operation.operands[0], found->second.results);
  bind(operation.operands.back(), found->second.params);
  scopes_.push_back(std::move(bound));
  const uint32_t end = NewLabel();
  Walk(found->second, end);
  scopes_.pop_back();
  labels_[end] = static_cast<uint32_t>(program_.code.size());
  --depth_;
}

}  // namespace heed::interpreter
