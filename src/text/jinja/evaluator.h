// Runs the statements of a template.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/context.h"
#include "text/jinja/scope.h"

namespace longspan::text {

// One rendering, used by one thread. Throws JinjaError. The statements must outlive it.
class JinjaEvaluator {
 public:
  explicit JinjaEvaluator(JinjaContext* context) : context_(*context), scopes_(context) {}

  // A variable of the request. The name must outlive the evaluator.
  void Define(std::string_view name, Value value) { scopes_.Set(name, std::move(value)); }
  std::string Run(const Statements& statements);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Statements, in jinja_statements.cc.
  Flow RunBody(const Statements& body);
  Flow RunInScope(const Statements& body);
  Flow RunStatement(const Statement& statement);
  Flow RunIf(const Statement& statement);
  Flow RunFor(const Statement& statement);
  Flow RunWith(const Statement& statement);
  std::vector<Value> LoopItems(const Statement& statement);
  // Runs the body into a text of its own, which the filters of the statement change.
  Flow RunCaptured(const Statement& statement, Value* text);
  void Assign(const AssignmentTarget& target, Value value);
  void Print(std::string_view text);
  Value MakeMacro(const MacroDefinition& macro);
  Value CallMacro(const MacroDefinition& macro, JinjaScope* closure, const Arguments& arguments);
  void BindMacroArguments(const MacroDefinition& macro, const Arguments& arguments);
  void BindExtraArguments(const MacroDefinition& macro, const Arguments& arguments);

  // Expressions, in jinja_evaluator.cc.
  Value Evaluate(const Expression& node);
  Value EvaluateKind(const Expression& node);
  Value EvaluateName(const Expression& node);
  Value EvaluateDict(const Expression& node);
  Value EvaluateSlice(const Expression& node);
  Value EvaluateCall(const Expression& node, const Value* caller);
  Value EvaluateFilter(const Expression& node);
  Value EvaluateTest(const Expression& node);
  Value EvaluateConcat(const Expression& node);
  Value EvaluateCompare(const Expression& node);
  Value EvaluateConditional(const Expression& node);
  std::vector<Value> EvaluateAll(const Expression& node, size_t first);
  Arguments EvaluateArguments(const Expression& node);

  JinjaContext& context_;
  JinjaScopes scopes_;
  std::string* out_ = nullptr;         // where statements print
  const Value* block_text_ = nullptr;  // what the filters of a block apply to
};

}  // namespace longspan::text
