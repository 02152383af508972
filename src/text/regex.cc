#include "text/regex.h"

#include <cstdint>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/regex_syntax.h"

namespace longspan::text {
namespace {

using base::OkStatus;
using base::Result;
using base::Status;

constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackLimit = 64 << 20;  // address space; pages come as they are used

// What a match writes to; PCRE2 wants one for each thread.
struct MatchState {
  MatchState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr)) {
    LONGSPAN_CHECK(data != nullptr && context != nullptr, "no memory for a match");
    pcre2_set_match_limit(context, UINT32_MAX);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

MatchState& ThreadMatchState() {
  thread_local MatchState state;
  return state;
}

std::string ErrorText(int error) {
  PCRE2_UCHAR buffer[256];
  const int size = pcre2_get_error_message(error, buffer, sizeof(buffer));
  if (size < 0) return fmt::format("PCRE2 error {}", error);
  return {reinterpret_cast<const char*>(buffer), static_cast<size_t>(size)};
}

size_t CharacterSize(std::string_view text, size_t position) {
  size_t end = position + 1;
  while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
  return end - position;
}

}  // namespace

void Regex::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<Regex> Regex::Compile(std::string_view pattern) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::string translated, OnigurumaToPcre2(pattern));
  return CompilePcre2(translated, pattern);
}

Result<Regex> Regex::Literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x80) {
      pattern += fmt::format("\\x{{{:X}}}", static_cast<unsigned>(c));
    } else {
      pattern.push_back(c);
    }
  }
  return CompilePcre2(pattern, text);
}

Result<Regex> Regex::CompilePcre2(const std::string& pattern, std::string_view original) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  LONGSPAN_CHECK(context != nullptr, "no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get());
  if (code == nullptr)
    return base::DataLoss("the regular expression \"{}\" is broken: {}", original,
                          ErrorText(error));
  Regex regex;
  regex.code_.reset(code);
  regex.jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

Status Regex::FindAll(std::string_view subject, std::vector<RegexMatch>& matches) const {
  MatchState& state = ThreadMatchState();
  const auto match_function = jit_ ? &pcre2_jit_match : &pcre2_match;
  const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
  size_t start = 0;
  size_t previous_end = SIZE_MAX;
  while (start <= subject.size()) {
    const int found = match_function(code_.get(), bytes, subject.size(), start, PCRE2_NO_UTF_CHECK,
                                     state.data, state.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      return base::ResourceExhausted("a pre-tokenizer's regular expression failed at byte {}: {}",
                                     start, ErrorText(found));
    const RegexMatch match{range[0], range[1]};
    if (match.begin == match.end && match.end == previous_end) {
      if (start == subject.size()) break;
      start += CharacterSize(subject, start);
      continue;
    }
    matches.push_back(match);
    start = previous_end = match.end;
  }
  return OkStatus();
}

}  // namespace longspan::text
