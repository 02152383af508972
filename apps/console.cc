#include "apps/console.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace longspan::apps {
namespace {

// The first failure's errno: later writes may say less.
int output_error = 0;

void NoteOutputError() {
  if (output_error == 0) output_error = errno;
}

}  // namespace

void OpenStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one. Opened the wrong way round, so that using it is an error.
    const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) close(opened);
  }
}

bool WriteOutput(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return true;
  NoteOutputError();
  return false;
}

base::Status FinishOutput() {
  if (std::fflush(stdout) != 0) NoteOutputError();
  if (std::ferror(stdout) == 0 && output_error == 0) return base::OkStatus();
  return base::SystemError(output_error == 0 ? EIO : output_error, "write to the standard output");
}

void WriteMessage(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

}  // namespace longspan::apps
