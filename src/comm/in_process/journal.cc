#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "comm/closing.h"
#include "comm/in_process/in_process.h"

namespace longspan::comm {
namespace {

using Entry = std::shared_ptr<const std::vector<std::byte>>;

// As many as a reader may be behind; that of other transports is of this order.
constexpr size_t kMostUnread = 4096;

// What one reader has not read yet. All of them share the entries themselves.
class Backlog {
 public:
  base::Status Push(Entry entry) {
    const std::lock_guard lock(mutex_);
    if (reader_closed_) return ClosedByPeer();
    if (entries_.size() >= kMostUnread)
      return base::ResourceExhausted("a reader of the journal is {} entries behind", kMostUnread);
    entries_.push_back(std::move(entry));
    changed_.notify_one();
    return base::OkStatus();
  }

  base::Result<std::vector<std::byte>> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reader_closed_ || writer_closed_ || !entries_.empty(); });
    if (reader_closed_) return ClosedHere();
    if (entries_.empty()) return ClosedByPeer();
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    return *entry;
  }

  void CloseReader() {
    const std::lock_guard lock(mutex_);
    reader_closed_ = true;
    entries_.clear();
    changed_.notify_one();
  }
  void CloseWriter() {
    const std::lock_guard lock(mutex_);
    writer_closed_ = true;
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool reader_closed_ = false;
  bool writer_closed_ = false;
};

class InProcessWriter : public JournalWriter {
 public:
  explicit InProcessWriter(std::vector<std::shared_ptr<Backlog>> backlogs)
      : backlogs_(std::move(backlogs)) {}
  ~InProcessWriter() override { CloseEnd(); }

  base::Status Append(std::span<const std::byte> entry) override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return ClosedHere();
    }
    const auto shared = std::make_shared<const std::vector<std::byte>>(entry.begin(), entry.end());
    base::Status first;
    for (const auto& backlog : backlogs_) {
      base::Status status = backlog->Push(shared);
      if (first.ok()) first = std::move(status);
    }
    return first;
  }
  void Close() override { CloseEnd(); }

 private:
  void CloseEnd() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    for (const auto& backlog : backlogs_) backlog->CloseWriter();
  }

  std::mutex mutex_;
  bool closed_ = false;
  const std::vector<std::shared_ptr<Backlog>> backlogs_;
};

class InProcessReader : public JournalReader {
 public:
  explicit InProcessReader(std::shared_ptr<Backlog> backlog) : backlog_(std::move(backlog)) {}
  ~InProcessReader() override { backlog_->CloseReader(); }

  base::Result<std::vector<std::byte>> Receive() override { return backlog_->Pop(); }
  void Close() override { backlog_->CloseReader(); }

 private:
  const std::shared_ptr<Backlog> backlog_;
};

}  // namespace

JournalEnds CreateInProcessJournal(int readers) {
  JournalEnds ends;
  std::vector<std::shared_ptr<Backlog>> backlogs;
  for (int i = 0; i < readers; ++i) {
    backlogs.push_back(std::make_shared<Backlog>());
    ends.readers.push_back(std::make_unique<InProcessReader>(backlogs.back()));
  }
  ends.writer = std::make_unique<InProcessWriter>(std::move(backlogs));
  return ends;
}

}  // namespace longspan::comm
