// The operands of ExpressionParser: constants, names, brackets, subscripts and arguments.

#include <algorithm>
#include <utility>

#include "text/jinja/error.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/text.h"

namespace longspan::text {

ExpressionPtr ExpressionParser::ParsePrimary() {
  const int line = current().line;
  switch (current().kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString: {
      ExpressionPtr node = New(ExpressionKind::kConstant, line);
      std::string text;
      for (; current().kind == TokenKind::kString; Next()) text += current().text;
      node->constant = Value::String(std::move(text));
      return node;
    }
    case TokenKind::kInteger: {
      ExpressionPtr node = New(ExpressionKind::kConstant, line);
      node->constant = Value::Int(ParseInteger(current().text, 10).value_or(0));
      Next();
      return node;
    }
    case TokenKind::kFloat: {
      ExpressionPtr node = New(ExpressionKind::kConstant, line);
      node->constant = Value::Float(ParseFloat(current().text).value_or(0));
      Next();
      return node;
    }
    default:
      if (SeesOperator("(")) return ParseParentheses();
      if (SeesOperator("[")) return ParseList();
      if (SeesOperator("{")) return ParseDict();
      FailAtCurrent("an expression");
  }
}

ExpressionPtr ExpressionParser::ParseNameOrConstant() {
  const std::string& name = current().text;
  ExpressionPtr node = New(ExpressionKind::kConstant, current().line);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value::Bool(name[0] == 't' || name[0] == 'T');
  } else if (name == "none" || name == "None") {
    node->constant = Value::None();
  } else {
    node->kind = ExpressionKind::kName;
    node->name = name;
    for (MacroDefinition* macro : macros_) {
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
      macro->uses_caller |= name == "caller";
    }
  }
  Next();
  return node;
}

ExpressionPtr ExpressionParser::ParseParentheses() {
  const int line = current().line;
  Next();
  ExpressionPtr inner = SeesOperator(")") ? New(ExpressionKind::kTuple, line) : ParseTuple();
  ExpectOperator(")");
  return inner;
}

ExpressionPtr ExpressionParser::ParseList() {
  ExpressionPtr list = New(ExpressionKind::kList, current().line);
  Next();
  while (!SeesOperator("]")) {
    if (!list->operands.empty()) ExpectOperator(",");
    if (SeesOperator("]")) break;
    Add(list.get(), ParseExpression());
  }
  Next();
  return list;
}

ExpressionPtr ExpressionParser::ParseDict() {
  ExpressionPtr dict = New(ExpressionKind::kDict, current().line);
  Next();
  while (!SeesOperator("}")) {
    if (!dict->operands.empty()) ExpectOperator(",");
    if (SeesOperator("}")) break;
    Add(dict.get(), ParseExpression());
    ExpectOperator(":");
    Add(dict.get(), ParseExpression());
  }
  Next();
  return dict;
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr node) {
  const int line = current().line;
  if (SkipOperator(".")) {
    ExpressionPtr access = New(ExpressionKind::kAttribute, line);
    Add(access.get(), std::move(node));
    if (current().kind == TokenKind::kInteger) {
      access->kind = ExpressionKind::kItem;
      Add(access.get(), ParsePrimary());
    } else {
      access->name = ExpectIdentifier();
    }
    return access;
  }
  Next();
  ExpressionPtr access = New(ExpressionKind::kSlice, line);
  Add(access.get(), std::move(node));
  bool is_slice = false;
  for (int bound = 0; bound < 3; ++bound) {
    const bool absent = SeesOperator(":") || SeesOperator("]");
    Add(access.get(), absent ? nullptr : ParseExpression());
    if (!SkipOperator(":")) break;
    is_slice = true;
  }
  if (SeesOperator(","))
    FailAt(line, base::StatusCode::kUnimplemented, "a subscript of several values");
  if (!is_slice) {
    access->kind = ExpressionKind::kItem;
    if (access->operands[1] == nullptr) FailAtCurrent("a subscript");
  }
  access->operands.resize(is_slice ? 4 : 2);
  ExpectOperator("]");
  return access;
}

void ExpressionParser::ParseArguments(Expression* call) {
  ExpectOperator("(");
  for (bool first = true; !SeesOperator(")"); first = false) {
    if (!first) ExpectOperator(",");
    if (SeesOperator(")")) break;
    if (SeesOperator("*") || SeesOperator("**"))
      FailAt(current().line, base::StatusCode::kUnimplemented,
             fmt::format("'{}' before an argument of a call", current().text));
    if (current().kind == TokenKind::kName && Matches(ahead(), TokenKind::kOperator, "=")) {
      std::string name = ExpectIdentifier();
      Next();
      for (const auto& [other, value] : call->named)
        if (other == name)
          FailAt(current().line, base::StatusCode::kInvalidArgument,
                 fmt::format("the argument '{}' is given twice", name));
      ExpressionPtr value = ParseExpression();
      call->height = std::max(call->height, 1 + value->height);
      call->named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call->named.empty()) FailAtCurrent("a named argument after a named argument");
      Add(call, ParseExpression());
    }
  }
  Next();
}

}  // namespace longspan::text
