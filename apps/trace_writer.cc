#include "apps/trace_writer.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "apps/console.h"

namespace longspan::apps {
namespace {

constexpr std::chrono::seconds kWriteEvery(1);
// So many steps are written before their time, so that a busy second does not pile up.
constexpr size_t kWriteFrom = 256;
// A disk that is so many steps behind will not catch up.
constexpr size_t kMostQueued = 65536;

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace

TraceWriter::TraceWriter(std::string path, int ranks, int lanes)
    : path_(std::move(path)), events_(ranks, lanes) {
  // Not waiting: a pipe without a reader is an error, not a reason to stand still.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK;
  file_ = comm::FileDescriptor(open(path_.c_str(), kFlags, 0666));
  if (!file_.valid()) {
    Fail(ErrorText(errno));
    return;
  }
  fcntl(file_.get(), F_SETFL, fcntl(file_.get(), F_GETFL) & ~O_NONBLOCK);
  Write(events_.Begin());
}

TraceWriter::~TraceWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  Write(TraceEvents::kEnd);
}

void TraceWriter::Add(const engine::StepRecord& step) {
  bool wake = false;
  bool behind = false;
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    queue_.push_back(step);
    wake = queue_.size() == kWriteFrom;
    behind = queue_.size() > kMostQueued;
  }
  if (behind) return Fail("the disk does not keep up");
  if (wake) changed_.notify_one();
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { Loop(); });
  } catch (const std::system_error& error) {
    Fail(error.code().message());
  }
}

void TraceWriter::Loop() {
  std::string text;
  for (bool ending = false; !ending;) {
    std::vector<engine::StepRecord> steps;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kWriteEvery, [&] { return ending_ || queue_.size() >= kWriteFrom; });
      ending = ending_;
      steps.swap(queue_);
    }
    text.clear();
    for (const engine::StepRecord& step : steps) events_.Append(step, text);
    Write(text);
  }
}

void TraceWriter::Write(std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
  }
  const int64_t before = written_;
  while (!text.empty()) {
    const ssize_t count = write(file_.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count < 0 ? errno : EIO;
      // Half an event would spoil the whole file for its readers.
      (void)!ftruncate(file_.get(), before);
      return Fail(ErrorText(error));
    }
    written_ += count;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void TraceWriter::Fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(failed_, true)) return;
    queue_.clear();
  }
  WriteMessage(
      fmt::format("longspan: the trace '{}' cannot be written: {}; the run goes on "
                  "without it\n",
                  path_, why));
}

}  // namespace longspan::apps
