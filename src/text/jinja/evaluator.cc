#include "text/jinja/evaluator.h"

#include "text/jinja/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/items.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace longspan::text {

Value JinjaEvaluator::Evaluate(const Expression& node) {
  const JinjaDepthGuard guard(context_);
  context_.CountStep();
  context_.line = node.line;
  return EvaluateKind(node);
}

Value JinjaEvaluator::EvaluateKind(const Expression& node) {
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return node.constant;
    case ExpressionKind::kName:
      return EvaluateName(node);
    case ExpressionKind::kList:
      return context_.List(EvaluateAll(node, 0));
    case ExpressionKind::kTuple:
      return context_.Sequence(ValueKind::kTuple, EvaluateAll(node, 0));
    case ExpressionKind::kDict:
      return EvaluateDict(node);
    case ExpressionKind::kAttribute: {
      const Value value = Evaluate(*node.operands[0]);
      context_.line = node.line;
      return GetAttribute(context_, value, node.name);
    }
    case ExpressionKind::kItem: {
      const std::vector<Value> values = EvaluateAll(node, 0);
      return GetItem(context_, values[0], values[1]);
    }
    case ExpressionKind::kSlice:
      return EvaluateSlice(node);
    case ExpressionKind::kCall:
      return EvaluateCall(node, nullptr);
    case ExpressionKind::kFilter:
      return EvaluateFilter(node);
    case ExpressionKind::kTest:
      return EvaluateTest(node);
    case ExpressionKind::kUnary: {
      const Value value = Evaluate(*node.operands[0]);
      if (node.name == "-") return Negate(value);
      return value.is_number() ? Arithmetic(context_, "+", Value::Int(0), value)
                               : Negate(value);  // which tells why not
    }
    case ExpressionKind::kBinary: {
      const std::vector<Value> values = EvaluateAll(node, 0);
      return Arithmetic(context_, node.name, values[0], values[1]);
    }
    case ExpressionKind::kConcat:
      return EvaluateConcat(node);
    case ExpressionKind::kCompare:
      return EvaluateCompare(node);
    case ExpressionKind::kNot:
      return Value::Bool(!Evaluate(*node.operands[0]).Truthy());
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      Value left = Evaluate(*node.operands[0]);
      if (left.Truthy() == (node.kind == ExpressionKind::kOr)) return left;
      return Evaluate(*node.operands[1]);
    }
    case ExpressionKind::kConditional:
      return EvaluateConditional(node);
  }
  return {};
}

std::vector<Value> JinjaEvaluator::EvaluateAll(const Expression& node, size_t first) {
  std::vector<Value> values;
  values.reserve(node.operands.size() - first);
  for (size_t i = first; i < node.operands.size(); ++i)
    values.push_back(Evaluate(*node.operands[i]));
  context_.line = node.line;
  return values;
}

Arguments JinjaEvaluator::EvaluateArguments(const Expression& node) {
  Arguments arguments;
  arguments.positional = EvaluateAll(node, 1);
  for (const auto& [name, value] : node.named) arguments.named.emplace_back(name, Evaluate(*value));
  context_.line = node.line;
  return arguments;
}

Value JinjaEvaluator::EvaluateName(const Expression& node) {
  if (const Value* found = scopes_.Find(node.name)) return *found;
  if (auto function = FindFunction(node.name)) return *std::move(function);
  return Value::Undefined(fmt::format("'{}' is undefined", node.name));
}

Value JinjaEvaluator::EvaluateDict(const Expression& node) {
  const std::vector<Value> values = EvaluateAll(node, 0);
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    const ValueKind kind = values[i].kind();
    const bool is_key =
        kind == ValueKind::kString || kind == ValueKind::kNone || values[i].is_number();
    if (!is_key) FailInvalid("{} cannot be a key of a dict", values[i].Described());
    entries.emplace_back(values[i], values[i + 1]);
  }
  return context_.Dict(std::move(entries));
}

Value JinjaEvaluator::EvaluateSlice(const Expression& node) {
  const Value value = Evaluate(*node.operands[0]);
  Value bounds[3];
  const Value* given[3] = {nullptr, nullptr, nullptr};
  for (size_t i = 0; i < 3; ++i) {
    if (node.operands[i + 1] == nullptr) continue;
    bounds[i] = Evaluate(*node.operands[i + 1]);
    given[i] = &bounds[i];
  }
  context_.line = node.line;
  return GetSlice(context_, value, given[0], given[1], given[2]);
}

Value JinjaEvaluator::EvaluateCall(const Expression& node, const Value* caller) {
  const Value callee = Evaluate(*node.operands[0]);
  Arguments arguments = EvaluateArguments(node);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  RequireDefined(callee);
  if (!callee.Is(ValueKind::kFunction)) FailInvalid("{} cannot be called", callee.Described());
  return callee.function().call(context_, arguments);
}

Value JinjaEvaluator::EvaluateFilter(const Expression& node) {
  const Value value = node.operands[0] == nullptr ? *block_text_ : Evaluate(*node.operands[0]);
  const Arguments arguments = EvaluateArguments(node);
  return node.filter->apply(context_, value, arguments);
}

Value JinjaEvaluator::EvaluateTest(const Expression& node) {
  const Value value = Evaluate(*node.operands[0]);
  const Arguments arguments = EvaluateArguments(node);
  return Value::Bool(node.test->holds(context_, value, arguments));
}

Value JinjaEvaluator::EvaluateConcat(const Expression& node) {
  std::string text;
  for (const Value& value : EvaluateAll(node, 0)) {
    if (value.is_markup()) RequireString(value, "an operand of '~'");
    text += ToText(context_, value);
    context_.CheckSize(1, text.size());
  }
  return context_.String(std::move(text));
}

Value JinjaEvaluator::EvaluateCompare(const Expression& node) {
  Value left = Evaluate(*node.operands[0]);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = Evaluate(*node.operands[i + 1]);
    context_.line = node.line;
    if (!Compare(context_, node.operators[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value JinjaEvaluator::EvaluateConditional(const Expression& node) {
  if (Evaluate(*node.operands[0]).Truthy()) return Evaluate(*node.operands[1]);
  if (node.operands[2] != nullptr) return Evaluate(*node.operands[2]);
  return Value::Undefined("the inline if-expression is false and has no else");
}

}  // namespace longspan::text
