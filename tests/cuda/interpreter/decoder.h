// From the statements of a kernel to a Program. Calls are inlined. Families of instructions are in
// files of their own, which ask the decoder where operands lie.
#ifndef HEED_TESTS_CUDA_INTERPRETER_DECODER_H_
#define HEED_TESTS_CUDA_INTERPRETER_DECODER_H_

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program.h"
#include "ptx_module.h"

namespace heed::interpreter {

struct Operation {
  std::string_view opcode;              // "mul.lo.s32"
  std::string_view name;                // "mul"
  std::vector<std::string_view> words;  // "lo", "s32"
  std::vector<std::string_view> operands;

  bool Has(std::string_view word) const;
  std::string_view type() const { return words.back(); }
};

struct Place {
  uint32_t at = kNowhere;
  int width = 0;  // bytes of a lane; 0: a predicate
};

struct Address {
  enum class Base { kRegister, kGlobal, kShared, kLocal, kParam };
  Base base = Base::kRegister;
  Place place;  // of the base
  int64_t offset = 0;
};

class Decoder {
 public:
  // Addresses of the module's variables in global memory.
  using Globals = std::unordered_map<std::string_view, uint64_t>;

  // Instructions that begin with `ignored` do nothing: to see that tests miss them.
  Decoder(const Module& module, const Globals& globals, std::string_view ignored)
      : module_(module), globals_(globals), ignored_(ignored) {}
  Program Decode(const Function& kernel);

  // A register, a constant, a special register or the address of a variable, `width` bytes a lane.
  Place Source(std::string_view operand, int width);
  // A register of any width, or a constant of `width` bytes.
  Place WideSource(std::string_view operand, int width);
  Place Predicate(std::string_view operand);  // also for results
  // A register of any width; nowhere for "_".
  Place Destination(std::string_view operand);
  Place DestinationOf(std::string_view operand, int width);
  Address AddressOf(std::string_view operand);  // "[...]"
  // Registers between braces, or one.
  std::vector<std::string_view> Elements(std::string_view operand) const;
  Place Constant(int width, uint64_t value);
  Place carry() { return carry_; }
  static uint64_t Immediate(std::string_view text, int width);

 private:
  struct Symbol {
    Address::Base base;
    uint64_t at;
    bool dynamic = false;
  };
  struct Registers {
    int width;
    uint32_t count;  // 0: a single one, which has no number
  };
  struct Scope {
    std::unordered_map<std::string_view, Place> places;
    std::unordered_map<std::string_view, Registers> declared;
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, uint32_t> labels;
    bool is_function = false;
  };

  void Walk(const Function& function, uint32_t end_label);
  void Open(const std::vector<Statement>& body, size_t at, bool is_function);
  void Declare(const Statement& statement);
  void DeclareVariable(const Variable& variable);
  void Emit(std::string_view text, uint32_t end_label);
  void Call(const Operation& operation, const Instruction& guard);
  bool ControlFlow(const Operation& operation, Instruction& instruction, uint32_t end_label);
  uint32_t NewPlace(int width);
  uint32_t NewLabel();
  uint32_t LabelOf(std::string_view name) const;
  const Symbol* FindSymbol(std::string_view name);
  Place FindRegister(std::string_view name);
  Place Special(std::string_view name);
  Place SymbolPlace(const Symbol& symbol, int width);
  uint32_t AddShared(const Variable& variable);
  void Resolve();

  const Module& module_;
  const Globals& globals_;
  std::string_view ignored_;
  Program program_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string_view, Symbol> shared_;
  std::map<std::pair<int, uint64_t>, Place> constants_;
  std::map<std::string_view, Place> specials_;
  std::vector<uint32_t> labels_;  // where they are
  uint32_t local_ = kLocalBegin;
  int depth_ = 0;
  Place carry_;
};

// Each returns false for what is not of its family.
bool DecodeArithmetic(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeFloat(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeMove(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeCompare(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeConvert(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeMemory(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeAtomic(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeCollective(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeMatrix(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeCopy(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeAsync(Decoder& decoder, const Operation& operation, Instruction& instruction);
bool DecodeWarpGroup(Decoder& decoder, const Operation& operation, Instruction& instruction);

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_DECODER_H_
