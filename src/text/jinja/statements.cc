// The statements of JinjaEvaluator.

#include <algorithm>
#include <utility>

#include "text/jinja/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/items.h"
#include "text/jinja/print.h"

namespace longspan::text {

std::string JinjaEvaluator::Run(const Statements& statements) {
  std::string out;
  out_ = &out;
  // The variables that a template sets hide those of the request.
  const JinjaScopes::Frame frame(&scopes_);
  RunBody(statements);
  out_ = nullptr;
  return out;
}

JinjaEvaluator::Flow JinjaEvaluator::RunBody(const Statements& body) {
  const JinjaDepthGuard guard(context_);
  for (const auto& statement : body) {
    const Flow flow = RunStatement(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

JinjaEvaluator::Flow JinjaEvaluator::RunInScope(const Statements& body) {
  const JinjaScopes::Frame frame(&scopes_);
  return RunBody(body);
}

JinjaEvaluator::Flow JinjaEvaluator::RunStatement(const Statement& statement) {
  context_.CountStep();
  context_.line = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      Print(statement.text);
      return Flow::kNext;
    case StatementKind::kPrint: {
      const Value value = Evaluate(*statement.value);
      Print(ToText(context_, value));
      return Flow::kNext;
    }
    case StatementKind::kIf:
      return RunIf(statement);
    case StatementKind::kFor:
      return RunFor(statement);
    case StatementKind::kSet:
      Assign(statement.target, Evaluate(*statement.value));
      return Flow::kNext;
    case StatementKind::kSetBlock: {
      Value text;
      const Flow flow = RunCaptured(statement, &text);
      if (flow == Flow::kNext) Assign(statement.target, std::move(text));
      return flow;
    }
    case StatementKind::kFilterBlock: {
      Value text;
      const Flow flow = RunCaptured(statement, &text);
      if (flow == Flow::kNext) Print(ToText(context_, text));
      return flow;
    }
    case StatementKind::kWith:
      return RunWith(statement);
    case StatementKind::kGeneration:
      return RunInScope(statement.body);
    case StatementKind::kMacro:
      scopes_.Set(statement.macro->name, MakeMacro(*statement.macro));
      return Flow::kNext;
    case StatementKind::kCallBlock: {
      const Value caller = MakeMacro(*statement.macro);
      Print(ToText(context_, EvaluateCall(*statement.value, &caller)));
      return Flow::kNext;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

JinjaEvaluator::Flow JinjaEvaluator::RunIf(const Statement& statement) {
  for (const auto& branch : statement.branches)
    if (branch.condition == nullptr || Evaluate(*branch.condition).Truthy())
      return RunBody(branch.body);
  return Flow::kNext;
}

std::vector<Value> JinjaEvaluator::LoopItems(const Statement& statement) {
  std::vector<Value> items = Iterate(context_, Evaluate(*statement.value));
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const JinjaScopes::Frame frame(&scopes_);
    Assign(statement.target, item);
    if (Evaluate(*statement.condition).Truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

JinjaEvaluator::Flow JinjaEvaluator::RunFor(const Statement& statement) {
  const auto loop = std::make_shared<LoopObject>();
  loop->items = LoopItems(statement);
  if (loop->items.empty()) return RunInScope(statement.else_body);
  for (const Value& item : loop->items) loop->depth = std::max(loop->depth, 1 + item.Depth());
  for (; loop->index < loop->items.size(); ++loop->index) {
    context_.CountStep();
    // Every iteration begins with the variables from outside: what one sets, the next does not see.
    const JinjaScopes::Frame frame(&scopes_);
    scopes_.Set("loop", Value::Loop(loop));
    Assign(statement.target, loop->items[loop->index]);
    if (RunBody(statement.body) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

JinjaEvaluator::Flow JinjaEvaluator::RunWith(const Statement& statement) {
  std::vector<Value> values;  // all seen from outside
  for (const auto& [target, value] : statement.assignments) values.push_back(Evaluate(*value));
  const JinjaScopes::Frame frame(&scopes_);
  for (size_t i = 0; i < values.size(); ++i)
    Assign(statement.assignments[i].first, std::move(values[i]));
  return RunBody(statement.body);
}

JinjaEvaluator::Flow JinjaEvaluator::RunCaptured(const Statement& statement, Value* text) {
  std::string captured;
  std::string* const outer = std::exchange(out_, &captured);
  const Flow flow = RunInScope(statement.body);
  out_ = outer;
  *text = context_.String(std::move(captured));
  if (statement.value == nullptr || flow != Flow::kNext) return flow;
  const Value unfiltered = *text;
  const Value* const outer_text = std::exchange(block_text_, &unfiltered);
  *text = Evaluate(*statement.value);
  block_text_ = outer_text;
  return flow;
}

void JinjaEvaluator::Assign(const AssignmentTarget& target, Value value) {
  if (!target.attribute.empty()) {
    const Value* space = scopes_.Find(target.names[0]);
    if (space == nullptr || !space->Is(ValueKind::kNamespace))
      FailInvalid("'{}' is no namespace, so its '{}' cannot be set", target.names[0],
                  target.attribute);
    context_.CountSearch(space->space()->attributes.size());
    if (Value* existing = space->space()->Find(target.attribute))
      *existing = std::move(value);
    else
      space->space()->attributes.emplace_back(target.attribute, std::move(value));
    return;
  }
  if (!target.unpacks) {
    scopes_.Set(target.names[0], std::move(value));
    return;
  }
  std::vector<Value> items = Iterate(context_, value);
  if (items.size() != target.names.size())
    FailInvalid("{} values cannot be unpacked into {} variables", items.size(),
                target.names.size());
  for (size_t i = 0; i < items.size(); ++i) scopes_.Set(target.names[i], std::move(items[i]));
}

void JinjaEvaluator::Print(std::string_view text) {
  context_.CountBytes(text.size());
  *out_ += text;
  context_.CheckSize(1, out_->size());
}

Value JinjaEvaluator::MakeMacro(const MacroDefinition& macro) {
  JinjaScope* const closure = scopes_.Capture();
  return Value::Function(
      macro.name,
      [this, &macro, closure](JinjaContext&, const Arguments& arguments) {
        return CallMacro(macro, closure, arguments);
      },
      1);
}

Value JinjaEvaluator::CallMacro(const MacroDefinition& macro, JinjaScope* closure,
                                const Arguments& arguments) {
  const JinjaDepthGuard guard(context_);
  const JinjaScopes::Frame frame(&scopes_, closure);
  BindMacroArguments(macro, arguments);
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  RunBody(macro.body);
  out_ = outer;
  return context_.String(std::move(text));
}

void JinjaEvaluator::BindMacroArguments(const MacroDefinition& macro, const Arguments& arguments) {
  BindExtraArguments(macro, arguments);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = macro.parameters[i];
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    const bool is_positional = i < arguments.positional.size();
    if (is_positional && named != arguments.named.end())
      FailInvalid("the macro '{}' got its parameter '{}' twice", macro.name, name);
    if (is_positional)
      scopes_.Set(name, arguments.positional[i]);
    else if (named != arguments.named.end())
      scopes_.Set(name, named->second);
    else if (macro.defaults[i] != nullptr)
      scopes_.Set(name, Evaluate(*macro.defaults[i]));
    else
      scopes_.Set(name, Value::Undefined(fmt::format("parameter '{}' was not provided", name)));
  }
}

// What no parameter takes goes to varargs, kwargs and caller where the body asks for them.
void JinjaEvaluator::BindExtraArguments(const MacroDefinition& macro, const Arguments& arguments) {
  const size_t count = std::min(macro.parameters.size(), arguments.positional.size());
  std::vector<Value> varargs(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                             arguments.positional.end());
  if (!varargs.empty() && !macro.uses_varargs)
    FailInvalid("the macro '{}' takes at most {} arguments", macro.name, macro.parameters.size());
  std::vector<std::pair<Value, Value>> kwargs;
  Value caller = Value::Undefined("the macro was called without a block, so it has no caller");
  for (const auto& [name, value] : arguments.named) {
    const auto& parameters = macro.parameters;
    if (std::find(parameters.begin(), parameters.end(), name) != parameters.end()) continue;
    if (name == "caller" && macro.uses_caller)
      caller = value;
    else if (macro.uses_kwargs && name != "caller")
      kwargs.emplace_back(context_.String(name), value);
    else
      FailInvalid("the macro '{}' has no parameter '{}'", macro.name, name);
  }
  if (macro.uses_varargs)
    scopes_.Set("varargs", context_.Sequence(ValueKind::kTuple, std::move(varargs)));
  if (macro.uses_kwargs) scopes_.Set("kwargs", context_.Dict(std::move(kwargs)));
  if (macro.uses_caller) scopes_.Set("caller", std::move(caller));
}

}  // namespace longspan::text
