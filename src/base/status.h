// The error type of the whole program: a code and one sentence that tells the user what to change.
//
// No exception crosses a folder; a function that can fail for a reason outside the program returns
// Status or Result<T>. A programmer's mistake is a LONGSPAN_CHECK (base/check.h) and aborts.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace longspan::base {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // what the user gave is wrong: a flag, a file, a request
  kNotFound,           // a file, tensor or model that does not exist
  kDataLoss,           // bytes that are broken, truncated or of another format
  kResourceExhausted,  // no memory, no pages, a full queue
  kUnimplemented,      // valid, but a part that this build does not have
  kUnavailable,        // a peer that is gone, an epoch that is over
  kDeadlineExceeded,   // nothing came in time
  kAborted,            // given up because the caller asked for it
  kInternal,           // an operating-system call that failed unexpectedly
};

// "invalid argument", "not found", ...
std::string_view StatusCodeName(StatusCode code);

// Cheap to copy when ok. Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // One sentence for the user; empty when ok.
  const std::string& message() const { return message_; }

  // The same code with "context: " before the message; ok stays ok.
  Status WithContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }

template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status DataLoss(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kDataLoss, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kResourceExhausted, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kUnavailable, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status DeadlineExceeded(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kDeadlineExceeded, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status Aborted(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kAborted, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...)};
}

// An Internal status for a failed system call: "cannot WHAT: strerror(error_number)".
Status SystemError(int error_number, std::string_view what);

}  // namespace longspan::base

// Returns from the enclosing function when the expression's Status is not ok.
#define LONGSPAN_RETURN_IF_ERROR(expression)                                            \
  do {                                                                                  \
    if (::longspan::base::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
