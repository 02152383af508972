#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja/error.h"
#include "text/jinja/expression_parser.h"

namespace longspan::text {
namespace {

class TemplateParser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Statements Parse() {
    try {
      return ParseBody({});
    } catch (JinjaError& error) {
      if (error.line == 0) error.line = current().line;
      throw;
    }
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  bool SeesAny(Names names) const {
    return std::any_of(names.begin(), names.end(), [&](std::string_view n) { return SeesName(n); });
  }

  std::unique_ptr<Statement> New(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = current().line;
    return statement;
  }

  void ExpectBlockEnd() {
    if (current().kind != TokenKind::kBlockEnd) FailAtCurrent("'%}'");
    Next();
  }

  // Statements until a tag that begins with one of `ends`, whose name is then current.
  Statements ParseBody(Names ends) {
    const DepthGuard guard(this);
    const int begin_line = previous_line();
    Statements statements;
    while (current().kind != TokenKind::kEnd) {
      if (current().kind == TokenKind::kData) {
        statements.push_back(New(StatementKind::kText));
        statements.back()->text = current().text;
        Next();
      } else if (current().kind == TokenKind::kVariableBegin) {
        Next();
        statements.push_back(New(StatementKind::kPrint));
        statements.back()->value = ParseTuple();
        if (current().kind != TokenKind::kVariableEnd) FailAtCurrent("'}}'");
        Next();
      } else {
        Next();  // "{%"
        if (SeesAny(ends)) return statements;
        statements.push_back(ParseStatement());
      }
    }
    if (ends.size() > 0)
      FailAt(begin_line, base::StatusCode::kInvalidArgument,
             fmt::format("a block has no '{{% {} %}}'", *(ends.end() - 1)));
    return statements;
  }

  // A body with its closing tag. A loop's break and continue do not reach into macros.
  Statements ParseClosedBody(std::string_view end) {
    ExpectBlockEnd();
    Statements body = ParseBody({end});
    Next();
    ExpectBlockEnd();
    return body;
  }

  std::unique_ptr<Statement> ParseStatement() {
    if (current().kind != TokenKind::kName) FailAtCurrent("the name of a statement");
    if (SeesName("if")) return ParseIf();
    if (SeesName("for")) return ParseFor();
    if (SeesName("set")) return ParseSet();
    if (SeesName("macro")) return ParseMacro();
    if (SeesName("call")) return ParseCallBlock();
    if (SeesName("filter")) return ParseFilterBlock();
    if (SeesName("with")) return ParseWith();
    if (SeesName("generation")) return ParseGeneration();
    if (SeesAny({"break", "continue"})) return ParseLoopControl();
    const std::string name = current().text;
    if (SeesAny({"print", "block", "extends", "include", "import", "from", "autoescape", "do",
                 "trans", "debug"}))
      FailAt(current().line, base::StatusCode::kUnimplemented,
             fmt::format("the statement '{{% {} %}}' is not supported in chat templates", name));
    FailAt(current().line, base::StatusCode::kInvalidArgument,
           fmt::format("unknown or misplaced statement '{{% {} %}}'", name));
  }

  std::unique_ptr<Statement> ParseIf() {
    auto statement = New(StatementKind::kIf);
    bool is_else = false;
    do {
      is_else = SeesName("else");
      Next();
      Statement::Branch branch;
      if (!is_else) branch.condition = ParseTuple(false);
      ExpectBlockEnd();
      branch.body = is_else ? ParseBody({"endif"}) : ParseBody({"elif", "else", "endif"});
      statement->branches.push_back(std::move(branch));
    } while (!SeesName("endif"));
    Next();
    ExpectBlockEnd();
    return statement;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto statement = New(StatementKind::kFor);
    Next();
    statement->target = ParseTarget(false);
    if (!SkipName("in")) FailAtCurrent("'in'");
    statement->value = ParseTuple(false);
    if (SkipName("if")) statement->condition = ParseExpression();
    if (SeesName("recursive"))
      FailAt(current().line, base::StatusCode::kUnimplemented, "'recursive' for loops");
    ExpectBlockEnd();
    ++loops_;
    statement->body = ParseBody({"else", "endfor"});
    --loops_;
    const bool has_else = SeesName("else");
    Next();
    if (has_else) {
      statement->else_body = ParseClosedBody("endfor");
    } else {
      ExpectBlockEnd();
    }
    return statement;
  }

  AssignmentTarget ParseTarget(bool with_namespace) {
    AssignmentTarget target;
    const bool parenthesized = SkipOperator("(");
    do {
      if (!target.names.empty() && (SeesOperator("=") || SeesName("in"))) break;
      if (SeesOperator("("))
        FailAt(current().line, base::StatusCode::kUnimplemented, "nested targets of an assignment");
      target.names.push_back(ExpectTargetName());
      if (with_namespace && target.names.size() == 1 && SkipOperator(".")) {
        target.attribute = ExpectIdentifier();
        return target;
      }
      target.unpacks |= SeesOperator(",");
    } while (SkipOperator(","));
    if (parenthesized) ExpectOperator(")");
    return target;
  }

  std::string ExpectTargetName() {
    if (SeesAny({"true", "false", "none", "True", "False", "None"})) FailAtCurrent("a variable");
    return ExpectIdentifier();
  }

  std::unique_ptr<Statement> ParseSet() {
    auto statement = New(StatementKind::kSet);
    Next();
    statement->target = ParseTarget(true);
    if (SkipOperator("=")) {
      statement->value = ParseTuple();
      ExpectBlockEnd();
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    if (SkipOperator("|")) statement->value = ParseFilter(nullptr);
    statement->body = ParseClosedBody("endset");
    return statement;
  }

  std::unique_ptr<Statement> ParseFilterBlock() {
    auto statement = New(StatementKind::kFilterBlock);
    Next();
    statement->value = ParseFilter(nullptr);
    statement->body = ParseClosedBody("endfilter");
    return statement;
  }

  std::unique_ptr<Statement> ParseWith() {
    auto statement = New(StatementKind::kWith);
    Next();
    while (current().kind != TokenKind::kBlockEnd) {
      if (!statement->assignments.empty()) ExpectOperator(",");
      AssignmentTarget target;
      target.names.push_back(ExpectTargetName());
      ExpectOperator("=");
      statement->assignments.emplace_back(std::move(target), ParseExpression());
    }
    statement->body = ParseClosedBody("endwith");
    return statement;
  }

  std::unique_ptr<Statement> ParseGeneration() {
    auto statement = New(StatementKind::kGeneration);
    Next();
    const int loops = std::exchange(loops_, 0);
    statement->body = ParseClosedBody("endgeneration");
    loops_ = loops;
    return statement;
  }

  std::unique_ptr<Statement> ParseLoopControl() {
    if (loops_ == 0)
      FailAt(current().line, base::StatusCode::kInvalidArgument,
             fmt::format("'{{% {} %}}' outside of a loop", current().text));
    auto statement = New(SeesName("break") ? StatementKind::kBreak : StatementKind::kContinue);
    Next();
    ExpectBlockEnd();
    return statement;
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto statement = New(StatementKind::kMacro);
    Next();
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->name = ExpectTargetName();
    ParseParameters(statement->macro.get());
    ParseMacroBody(statement->macro.get(), "endmacro");
    return statement;
  }

  std::unique_ptr<Statement> ParseCallBlock() {
    auto statement = New(StatementKind::kCallBlock);
    Next();
    statement->macro = std::make_unique<MacroDefinition>();
    statement->macro->name = "caller";
    if (SeesOperator("(")) ParseParameters(statement->macro.get());
    statement->value = ParseExpression();
    if (statement->value->kind != ExpressionKind::kCall) FailAtCurrent("the call of a macro");
    ParseMacroBody(statement->macro.get(), "endcall");
    return statement;
  }

  void ParseParameters(MacroDefinition* macro) {
    ExpectOperator("(");
    while (!SeesOperator(")")) {
      if (!macro->parameters.empty()) ExpectOperator(",");
      if (SeesOperator(")")) break;
      macro->parameters.push_back(ExpectTargetName());
      ExpressionPtr value = SkipOperator("=") ? ParseExpression() : nullptr;
      if (value == nullptr && !macro->defaults.empty() && macro->defaults.back() != nullptr)
        FailAtCurrent("a default, as the parameter before has one");
      macro->defaults.push_back(std::move(value));
    }
    Next();
  }

  void ParseMacroBody(MacroDefinition* macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(macro);
    macro->body = ParseClosedBody(end);
    macros_.pop_back();
    loops_ = loops;
  }

  int loops_ = 0;  // open loops that break and continue can leave
};

}  // namespace

Statements ParseTemplate(std::string_view source) {
  return TemplateParser(Tokenize(source)).Parse();
}

}  // namespace longspan::text
