// The expressions of the template grammar; the statements are in jinja_parser.h.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace longspan::text {

// Walks over tokens and reads expressions. Throws JinjaError.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // Counts nesting while it lives.
  class DepthGuard {
   public:
    explicit DepthGuard(ExpressionParser* parser);
    ~DepthGuard() { --parser_->depth_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;

   private:
    ExpressionParser* parser_;
  };

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  int previous_line() const { return tokens_[position_ > 0 ? position_ - 1 : 0].line; }
  void Next() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool SeesName(std::string_view name) const { return Matches(current(), TokenKind::kName, name); }
  bool SeesOperator(std::string_view text) const {
    return Matches(current(), TokenKind::kOperator, text);
  }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view text);
  void ExpectOperator(std::string_view text);
  std::string ExpectIdentifier();
  [[noreturn]] void FailAtCurrent(std::string_view expected) const;
  [[noreturn]] static void FailAt(int line, base::StatusCode code, std::string message);

  // One expression; without `conditional` no `a if b` at its top.
  ExpressionPtr ParseExpression(bool conditional = true);
  // An expression, or several with commas, which are a tuple.
  ExpressionPtr ParseTuple(bool conditional = true);
  // `|name(...)|...` and `is name ...` after `node`. `node` may be null for filters of a block.
  ExpressionPtr ParseFilter(ExpressionPtr node);

  // The macros that are being parsed, outermost first: names used in them decide what they accept.
  std::vector<MacroDefinition*> macros_;

 private:
  static bool Matches(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  ExpressionPtr New(ExpressionKind kind, int line) const;
  ExpressionPtr Combine(ExpressionKind kind, std::string name, ExpressionPtr left,
                        ExpressionPtr right) const;

  bool AtTupleEnd() const;
  ExpressionPtr ParseConditional();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filter);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseNameOrConstant();
  ExpressionPtr ParseParentheses();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr node);
  ExpressionPtr ParseFilterExpression(ExpressionPtr node);
  ExpressionPtr ParseSubscript(ExpressionPtr node);
  ExpressionPtr ParseTest(ExpressionPtr node);
  void ParseArguments(Expression* call);
  void Add(Expression* node, ExpressionPtr operand) const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace longspan::text
