// The file of `--trace-out`, written while the engine runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "apps/trace_events.h"
#include "comm/file_descriptor.h"
#include "engine/output.h"

namespace longspan::apps {

// Writes from a thread of its own, at least once a second, so that a run that is cut off leaves all
// but its last second. A file that cannot be opened or written (or a disk that falls far behind) is
// told on stderr in one sentence, once; the run goes on and what was written before stays readable.
class TraceWriter {
 public:
  TraceWriter(std::string path, int ranks, int lanes = 1);
  // Ends the file.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Never waits for the disk. One thread at a time.
  void Add(const engine::StepRecord& step);

 private:
  void Loop();
  void Write(std::string_view text);
  void Fail(const std::string& why);

  const std::string path_;
  TraceEvents events_;
  // Of the thread once it runs.
  comm::FileDescriptor file_;
  int64_t written_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<engine::StepRecord> queue_;
  bool failed_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace longspan::apps
