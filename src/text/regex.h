// Regular expressions of tokenizer.json: the Ruby syntax of Oniguruma over Unicode, run by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;

namespace longspan::text {

struct RegexMatch {
  size_t begin = 0;
  size_t end = 0;
};

// A compiled expression. Immutable, movable; FindAll may run on any number of threads.
class Regex {
 public:
  // DataLoss for an expression that is broken; Unimplemented where PCRE2 would read it differently
  // from Oniguruma and it cannot be rewritten (intersections of classes, word boundaries).
  static base::Result<Regex> Compile(std::string_view pattern);
  // The expression that matches exactly `text`.
  static base::Result<Regex> Literal(std::string_view text);

  // Appends the matches in `subject` (valid UTF-8) from left to right, as byte ranges that do not
  // overlap. An empty match that touches the one before it is left out.
  // ResourceExhausted when the expression backtracks without end.
  base::Status FindAll(std::string_view subject, std::vector<RegexMatch>& matches) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  static base::Result<Regex> CompilePcre2(const std::string& pattern, std::string_view original);

  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
  bool jit_ = false;
};

}  // namespace longspan::text
