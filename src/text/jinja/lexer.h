// The tokens of a Jinja2 template, with white space treated as trim_blocks and lstrip_blocks say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longspan::text {

enum class TokenKind {
  kData,  // text between tags, to be printed as it is
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,  // text: the characters meant, escapes resolved
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// The tokens of `source`, the last being kEnd. Throws JinjaError for what is no token and for tags
// without an end. Comments and {% raw %} are resolved here.
std::vector<Token> Tokenize(std::string_view source);

// What a message calls a token: "'endfor'", "the end of the template".
std::string Describe(const Token& token);

}  // namespace longspan::text
