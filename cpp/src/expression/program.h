// What an expression becomes: a list of instructions, each of which defines one value.
#ifndef HEED_SRC_EXPRESSION_PROGRAM_H_
#define HEED_SRC_EXPRESSION_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "heed/expression.h"
#include "heed/feature_map.h"

namespace heed {

enum class Op : uint8_t {
  // Leaves.
  kNumber,
  kValue,
  kBatch,
  kHead,
  kQuery,
  kPosition,
  kKey,
  // One operand.
  kNegate,
  kNot,
  kAbs,
  kFloor,
  kSqrt,
  kExp,
  kLog,
  kTanh,
  kSigmoid,
  kSin,
  kCos,
  // Two operands.
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kModulo,
  kMin,
  kMax,
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kAnd,
  kOr,
  // Three operands: condition, then, else.
  kSelect,
  // An element of a captured tensor; operands are its indices.
  kLoad,
};

// Values that depend on the key live in rows of this many floats, as many as a tile has columns.
inline constexpr size_t kSlotFloats = 256;
// At most so many of them are alive at once; they sit on the stack (24 KiB).
inline constexpr size_t kMaxSlots = 24;

// Longer programs are refused.
inline constexpr size_t kMaxInstructions = 1024;

struct Instruction {
  Op op;
  bool varies;           // with the key; else one value a row
  uint8_t slot;          // of the values that vary
  uint8_t arity;         // number of operands
  uint16_t operands[4];  // earlier instructions
  uint16_t tensor;       // kLoad: index into Program::captured
  float number;          // kNumber
};

struct Program {
  std::vector<Instruction> instructions;  // the last one is the result
  std::vector<CapturedTensor> captured;
};

// A name of a leaf.
struct LeafName {
  std::string_view name;
  Op op;
};

// What an expression may call its leaves: the value that it starts from (empty: none), and the
// others. Spellings of the same leaf follow each other.
struct Vocabulary {
  std::string_view value;
  std::span<const LeafName> others;
};
Vocabulary VocabularyOf(ExpressionValue value);
// Of feature maps, whose rows are rows of a tile: a dimension is what a key is there, and the side
// what the query is.
Vocabulary FeatureVocabulary();

// Parses and checks an expression; throws Error.
Program ParseExpression(std::string_view what, std::string_view text, Vocabulary names,
                        std::vector<CapturedTensor> captured);

// Gives every value that varies a slot, and frees the slots of values after their last use. An
// operation reads and writes element by element, so its result may take an operand's slot. False:
// there are too few.
bool AssignSlots(Program& program);

// Runs the program on tiles, or on rows of one element after the other.
TileFunction FunctionOf(Program program);
FeatureFunction FeatureFunctionOf(Program program);

// A compiled expression, and what its caller has to know of it.
struct Expression {
  TileFunction function;
  bool uses_position;
};
Expression MakeExpression(std::string_view what, std::string_view text, ExpressionValue value,
                          std::vector<CapturedTensor> captured);

}  // namespace heed

#endif  // HEED_SRC_EXPRESSION_PROGRAM_H_
