// The marks around calls of tools, and what the readers of formats share.
#pragma once

#include <algorithm>
#include <string_view>

namespace longspan::server {

inline constexpr std::string_view kHermesBegin = "<tool_call>";
inline constexpr std::string_view kHermesEnd = "</tool_call>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr std::string_view kDeepSeekBegin = "<｜tool▁calls▁begin｜>";
inline constexpr std::string_view kDeepSeekEnd = "<｜tool▁calls▁end｜>";
inline constexpr std::string_view kDeepSeekCall = "<｜tool▁call▁begin｜>";
inline constexpr std::string_view kDeepSeekCallEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kDeepSeekSeparator = "<｜tool▁sep｜>";
inline constexpr std::string_view kDsmlBegin = "<｜DSML｜function_calls>";
inline constexpr std::string_view kDsmlEnd = "</｜DSML｜function_calls>";
inline constexpr std::string_view kDsmlInvoke = "<｜DSML｜invoke name=\"";
inline constexpr std::string_view kDsmlInvokeEnd = "</｜DSML｜invoke>";
inline constexpr std::string_view kDsmlParameter = "<｜DSML｜parameter name=\"";
inline constexpr std::string_view kDsmlParameterEnd = "</｜DSML｜parameter>";
inline constexpr std::string_view kSpaces = " \t\r\n";

// How many of the last bytes may be the beginning of `mark`.
inline size_t PossibleBeginning(std::string_view text, std::string_view mark) {
  for (size_t length = std::min(mark.size() - 1, text.size()); length > 0; --length)
    if (text.ends_with(mark.substr(0, length))) return length;
  return 0;
}

inline size_t SkipSpaces(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpaces, at), text.size());
}

inline std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace longspan::server
