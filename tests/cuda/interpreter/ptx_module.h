// What stands in a module of PTX: variables, and functions as lists of their statements. Nothing is
// looked up yet. Views point into the text, which must outlive the module.
#ifndef HEED_TESTS_CUDA_INTERPRETER_PTX_MODULE_H_
#define HEED_TESTS_CUDA_INTERPRETER_PTX_MODULE_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed::interpreter {

struct Variable {
  enum class Space { kGlobal, kConst, kShared, kLocal, kParam };
  Space space = Space::kGlobal;
  std::string_view name;
  std::string_view type;  // of an element, such as "b8"
  uint64_t bytes = 0;     // 0: of a size that the launch says
  uint32_t align = 1;
  std::string_view values;  // text between the braces of an initializer
};

struct Statement {
  enum class Kind { kOpen, kClose, kRegisters, kVariable, kLabel, kInstruction };
  Kind kind;
  std::string_view text;  // a label's name; an instruction without its semicolon
  std::string_view type;  // of registers
  Variable variable{};
};

struct Function {
  std::string_view name;
  bool is_kernel = false;
  std::vector<Variable> results, params;
  uint32_t max_threads = 0;  // 0: not said
  std::vector<Statement> body;
};

struct Module {
  std::string_view target;  // such as "sm_90a"
  std::vector<Variable> variables;
  std::unordered_map<std::string_view, Function> functions;
};

// Throws std::runtime_error about what it does not understand.
Module ParseModule(std::string_view text);

// Pieces between commas that stand in no bracket, without blanks around them.
std::vector<std::string_view> SplitList(std::string_view text);
std::string_view Trim(std::string_view text);
uint32_t BytesOfType(std::string_view type);

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_PTX_MODULE_H_
