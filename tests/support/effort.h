// How much a test repeats itself.
#pragma once

namespace longspan::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Under a sanitizer all takes ten to fifty times as long, and what it looks for shows in few
// repetitions: `sanitized` of them in place of `normal`.
constexpr int Effort(int normal, int sanitized) { return kSanitized ? sanitized : normal; }

}  // namespace longspan::testing
