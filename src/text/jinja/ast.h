// The parsed form of a template. Immutable after parsing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace longspan::text {

struct JinjaFilter;
struct JinjaTest;
struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Statements = std::vector<std::unique_ptr<Statement>>;

enum class ExpressionKind {
  kConstant,   // constant
  kName,       // name
  kList,       // operands
  kTuple,      // operands
  kDict,       // operands: key, value, key, value...
  kAttribute,  // operands[0].name
  kItem,       // operands[0][operands[1]]
  kSlice,      // operands[0][operands[1]:operands[2]:operands[3]]; a null bound is absent
  kCall,       // operands[0](operands[1...], named)
  kFilter,   // operands[0]|name(operands[1...], named); operands[0] is null for the text of a block
  kTest,     // operands[0] is name(operands[1...], named)
  kUnary,    // name (+ -) operands[0]
  kBinary,   // operands[0] name (+ - * / // % **) operands[1]
  kConcat,   // operands[0] ~ operands[1] ~ ...
  kCompare,  // operands[0] operators[0] operands[1] operators[1] ...
  kNot,      // not operands[0]
  kAnd,      // operands[0] and operands[1]
  kOr,       // operands[0] or operands[1]
  kConditional,  // operands[1] if operands[0] else operands[2], which may be null
};

struct Expression {
  ExpressionKind kind;
  int line;
  int height = 1;  // levels of operands
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
  const JinjaFilter* filter = nullptr;
  const JinjaTest* test = nullptr;
};

// Where set and for store a value: one name, several names for the items of the value, or
// space.attribute.
struct AssignmentTarget {
  std::vector<std::string> names;
  bool unpacks = false;
  std::string attribute;  // of the namespace names[0]; empty for plain names
};

// {% macro %}, and the body of {% call %}, which is a macro called "caller".
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // one per parameter; null where there is none
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  Statements body;
};

enum class StatementKind {
  kText,         // prints text
  kPrint,        // prints value
  kIf,           // branches: the first whose condition (null: else) holds
  kFor,          // target, value (what is walked over), condition (may be null), body, else_body
  kSet,          // target, value
  kSetBlock,     // target, value (filters of the text, may be null), body
  kFilterBlock,  // value, body
  kWith,         // assignments, body
  kGeneration,   // body
  kMacro,        // macro
  kCallBlock,    // value (the call), macro (its body)
  kBreak,
  kContinue,
};

struct Statement {
  struct Branch {
    ExpressionPtr condition;
    Statements body;
  };

  StatementKind kind;
  int line;
  std::string text;
  AssignmentTarget target;
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Branch> branches;
  std::vector<std::pair<AssignmentTarget, ExpressionPtr>> assignments;
  std::unique_ptr<MacroDefinition> macro;
  Statements body;
  Statements else_body;
};

}  // namespace longspan::text
