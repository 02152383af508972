#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/jinja/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/parser.h"

namespace longspan::text {

ExpressionParser::DepthGuard::DepthGuard(ExpressionParser* parser) : parser_(parser) {
  if (parser->depth_ >= kMaxTemplateDepth)
    FailAt(parser->current().line, base::StatusCode::kResourceExhausted,
           fmt::format("the template nests deeper than {} levels", kMaxTemplateDepth));
  ++parser->depth_;
}

void ExpressionParser::FailAt(int line, base::StatusCode code, std::string message) {
  throw JinjaError{code, std::move(message), line};
}

void ExpressionParser::FailAtCurrent(std::string_view expected) const {
  FailAt(current().line, base::StatusCode::kInvalidArgument,
         fmt::format("expected {}, found {}", expected, Describe(current())));
}

// Counts the height, because a chain such as a + b + c is a tree as deep as it is long.
void ExpressionParser::Add(Expression* node, ExpressionPtr operand) const {
  if (operand != nullptr) node->height = std::max(node->height, 1 + operand->height);
  if (node->height > kMaxExpressionHeight)
    FailAt(
        node->line, base::StatusCode::kResourceExhausted,
        fmt::format("an expression nests or chains more than {} operations", kMaxExpressionHeight));
  node->operands.push_back(std::move(operand));
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!SeesName(name)) return false;
  Next();
  return true;
}

bool ExpressionParser::SkipOperator(std::string_view text) {
  if (!SeesOperator(text)) return false;
  Next();
  return true;
}

void ExpressionParser::ExpectOperator(std::string_view text) {
  if (!SkipOperator(text)) FailAtCurrent(fmt::format("'{}'", text));
}

std::string ExpressionParser::ExpectIdentifier() {
  if (current().kind != TokenKind::kName) FailAtCurrent("a name");
  std::string name = current().text;
  Next();
  return name;
}

ExpressionPtr ExpressionParser::New(ExpressionKind kind, int line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExpressionPtr ExpressionParser::Combine(ExpressionKind kind, std::string name, ExpressionPtr left,
                                        ExpressionPtr right) const {
  ExpressionPtr node = New(kind, left->line);
  node->name = std::move(name);
  Add(node.get(), std::move(left));
  Add(node.get(), std::move(right));
  return node;
}

ExpressionPtr ExpressionParser::ParseExpression(bool conditional) {
  const DepthGuard guard(this);
  return conditional ? ParseConditional() : ParseOr();
}

bool ExpressionParser::AtTupleEnd() const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
         current().kind == TokenKind::kEnd || SeesOperator(")") || SeesName("in") ||
         SeesName("recursive");
}

ExpressionPtr ExpressionParser::ParseTuple(bool conditional) {
  ExpressionPtr first = ParseExpression(conditional);
  if (!SeesOperator(",")) return first;
  ExpressionPtr tuple = New(ExpressionKind::kTuple, first->line);
  Add(tuple.get(), std::move(first));
  while (SkipOperator(",") && !AtTupleEnd()) Add(tuple.get(), ParseExpression(conditional));
  return tuple;
}

ExpressionPtr ExpressionParser::ParseConditional() {
  ExpressionPtr value = ParseOr();
  while (SkipName("if")) {
    ExpressionPtr node = New(ExpressionKind::kConditional, value->line);
    Add(node.get(), ParseOr());
    Add(node.get(), std::move(value));
    Add(node.get(), SkipName("else") ? ParseExpression() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (SkipName("or")) {
    left = Combine(ExpressionKind::kOr, "or", std::move(left), ParseAnd());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (SkipName("and")) {
    left = Combine(ExpressionKind::kAnd, "and", std::move(left), ParseNot());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!SeesName("not")) return ParseCompare();
  const DepthGuard guard(this);
  ExpressionPtr node = New(ExpressionKind::kNot, current().line);
  Next();
  Add(node.get(), ParseNot());
  return node;
}

ExpressionPtr ExpressionParser::ParseCompare() {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr node = ParseSum();
  bool comparing = false;
  while (true) {
    std::string comparison;
    for (const std::string_view candidate : kOperators)
      if (SeesOperator(candidate)) comparison = candidate;
    if (SeesName("in")) comparison = "in";
    if (SeesName("not") && Matches(ahead(), TokenKind::kName, "in")) {
      comparison = "not in";
      Next();
    }
    if (comparison.empty()) break;
    Next();
    if (!std::exchange(comparing, true)) {
      ExpressionPtr first = std::exchange(node, New(ExpressionKind::kCompare, node->line));
      Add(node.get(), std::move(first));
    }
    node->operators.push_back(std::move(comparison));
    Add(node.get(), ParseSum());
  }
  return node;
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  while (SeesOperator("+") || SeesOperator("-")) {
    std::string operation = current().text;
    Next();
    left = Combine(ExpressionKind::kBinary, std::move(operation), std::move(left), ParseConcat());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!SeesOperator("~")) return first;
  ExpressionPtr node = New(ExpressionKind::kConcat, first->line);
  Add(node.get(), std::move(first));
  while (SkipOperator("~")) Add(node.get(), ParseProduct());
  return node;
}

ExpressionPtr ExpressionParser::ParseProduct() {
  ExpressionPtr left = ParsePower();
  while (SeesOperator("*") || SeesOperator("/") || SeesOperator("//") || SeesOperator("%")) {
    std::string operation = current().text;
    Next();
    left = Combine(ExpressionKind::kBinary, std::move(operation), std::move(left), ParsePower());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary(true);
  while (SkipOperator("**")) {
    left = Combine(ExpressionKind::kBinary, "**", std::move(left), ParseUnary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filter) {
  const DepthGuard guard(this);
  ExpressionPtr node;
  if (SeesOperator("-") || SeesOperator("+")) {
    node = New(ExpressionKind::kUnary, current().line);
    node->name = current().text;
    Next();
    Add(node.get(), ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterExpression(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (SeesOperator(".") || SeesOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (SeesOperator("(")) {
      ExpressionPtr call = New(ExpressionKind::kCall, node->line);
      Add(call.get(), std::move(node));
      ParseArguments(call.get());
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilterExpression(ExpressionPtr node) {
  while (true) {
    if (SeesOperator("|")) {
      node = ParseFilter(std::move(node));
    } else if (SeesName("is")) {
      node = ParseTest(std::move(node));
    } else if (SeesOperator("(")) {
      node = ParsePostfix(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr node) {
  // A block's filter begins with the name itself: {% filter upper %}.
  const bool inline_start = node == nullptr;
  for (bool first = true; (first && inline_start) || SeesOperator("|"); first = false) {
    if (!first || !inline_start) Next();
    ExpressionPtr filter = New(ExpressionKind::kFilter, current().line);
    filter->name = ExpectIdentifier();
    filter->filter = &RequireFilter(filter->name);
    Add(filter.get(), std::move(node));
    if (SeesOperator("(")) ParseArguments(filter.get());
    node = std::move(filter);
  }
  return node;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr node) {
  ExpressionPtr test = New(ExpressionKind::kTest, current().line);
  Next();
  const bool negated = SkipName("not");
  test->name = ExpectIdentifier();
  test->test = &RequireTest(test->name);
  Add(test.get(), std::move(node));
  const TokenKind next = current().kind;
  const bool is_argument = next == TokenKind::kString || next == TokenKind::kInteger ||
                           next == TokenKind::kFloat || SeesOperator("[") || SeesOperator("{") ||
                           next == TokenKind::kName;
  if (SeesOperator("(")) {
    ParseArguments(test.get());
  } else if (is_argument && !SeesName("else") && !SeesName("or") && !SeesName("and")) {
    if (SeesName("is")) FailAtCurrent("no second 'is' after a test");
    Add(test.get(), ParsePostfix(ParsePrimary()));
  }
  if (!negated) return test;
  ExpressionPtr inverted = New(ExpressionKind::kNot, test->line);
  Add(inverted.get(), std::move(test));
  return inverted;
}

}  // namespace longspan::text
