#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "comm/closing.h"
#include "comm/shared_memory/memory.h"
#include "comm/shared_memory/shared_memory.h"
#include "comm/stream_socket.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

constexpr uint64_t kSegmentBytes = uint64_t{1} << 20;
constexpr uint64_t kLargestEntry = uint64_t{1} << 30;

// Memory in which entries follow one another. Written and read by calls and not through a mapping:
// where memory is short, or a peer breaks it, that is an error and not a signal.
base::Status WriteFully(int memory, std::span<const std::byte> bytes, uint64_t position) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(memory, bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return base::ResourceExhausted("no memory for the step log: {}", std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
    position += static_cast<uint64_t>(count);
  }
  return base::OkStatus();
}

base::Status ReadFully(int memory, std::span<std::byte> bytes, uint64_t position) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(memory, bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return BrokenWire("an entry of the journal cannot be read");
    bytes = bytes.subspan(static_cast<size_t>(count));
    position += static_cast<uint64_t>(count);
  }
  return base::OkStatus();
}

base::Status TellOfEntry(int socket, uint64_t number, uint64_t size) {
  FrameHeader header;
  header.kind = FrameKind::kEntry;
  header.number = number;
  header.size = size;
  ssize_t sent = 0;
  do sent = ::send(socket, &header, sizeof(header), MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(sizeof(header))) return base::OkStatus();
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return ClosedByPeer();
  return base::ResourceExhausted("a reader of the journal does not read");
}

class SharedMemoryWriter : public JournalWriter {
 public:
  explicit SharedMemoryWriter(std::vector<FileDescriptor> sockets) {
    for (FileDescriptor& socket : sockets) readers_.push_back({std::move(socket), {}});
  }
  ~SharedMemoryWriter() override { CloseEnd(); }

  base::Status Append(std::span<const std::byte> entry) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return ClosedHere();
    if (entry.size() > kLargestEntry)
      return base::ResourceExhausted("an entry of {} bytes is larger than a journal takes",
                                     entry.size());
    if (!segment_.valid() || entry.size() > segment_bytes_ - position_)
      LONGSPAN_RETURN_IF_ERROR(BeginSegment(entry.size()));
    LONGSPAN_RETURN_IF_ERROR(WriteFully(segment_.get(), entry, position_));
    position_ += entry.size();
    base::Status first;
    for (Reader& reader : readers_) {
      if (reader.lost.ok()) reader.lost = TellOfEntry(reader.socket.get(), next_, entry.size());
      if (first.ok()) first = reader.lost;
    }
    ++next_;
    return first;
  }

  void Close() override { CloseEnd(); }

 private:
  struct Reader {
    FileDescriptor socket;
    base::Status lost;  // not ok: it has missed something
  };

  // Who still reads the one before keeps it by that.
  base::Status BeginSegment(uint64_t least) {
    FileDescriptor memory(::memfd_create("longspan-journal", MFD_CLOEXEC));
    if (!memory.valid()) return base::SystemError(errno, "make memory for the step log");
    segment_ = std::move(memory);
    segment_bytes_ = std::max(least, kSegmentBytes);
    position_ = 0;
    for (Reader& reader : readers_)
      if (reader.lost.ok())
        reader.lost = PassMemory(reader.socket.get(), segment_, segment_bytes_, next_);
    return base::OkStatus();
  }

  void CloseEnd() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (Reader& reader : readers_) reader.socket.Reset();
    segment_.Reset();
  }

  std::mutex mutex_;
  std::vector<Reader> readers_;
  FileDescriptor segment_;
  uint64_t segment_bytes_ = 0;
  uint64_t position_ = 0;  // in the segment
  uint64_t next_ = 0;      // number of the next entry
  bool closed_ = false;
};

class SharedMemoryReader : public JournalReader {
 public:
  explicit SharedMemoryReader(FileDescriptor socket) : socket_(std::move(socket)) {}

  base::Result<std::vector<std::byte>> Receive() override {
    if (closed_) return ClosedHere();
    if (!end_.ok()) return end_;
    auto entry = ReceiveEntry();
    if (closed_) return ClosedHere();
    if (!entry.ok()) end_ = entry.status();
    return entry;
  }

  void Close() override {
    closed_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
  }

 private:
  base::Result<std::vector<std::byte>> ReceiveEntry() {
    while (true) {
      FrameHeader header;
      FileDescriptor memory;
      LONGSPAN_RETURN_IF_ERROR(ReadHeaderAndMemory(socket_.get(), header, memory));
      if (header.number != next_) return BrokenWire("an entry of the journal is missing");
      if (header.kind == FrameKind::kEntry && !memory.valid()) return ReadEntry(header.size);
      if (header.kind != FrameKind::kMemory || !memory.valid())
        return BrokenWire("it is no entry of a journal");
      segment_ = std::move(memory);
      segment_bytes_ = header.size;
      position_ = 0;
    }
  }

  base::Result<std::vector<std::byte>> ReadEntry(uint64_t size) {
    struct stat status {};
    if (!segment_.valid() || size > kLargestEntry || size > segment_bytes_ - position_ ||
        ::fstat(segment_.get(), &status) != 0 ||
        position_ + size > static_cast<uint64_t>(status.st_size))
      return BrokenWire("an entry of the journal is larger than its memory");
    std::vector<std::byte> entry;
    try {
      entry.resize(size);
    } catch (const std::bad_alloc&) {
      return base::ResourceExhausted("no memory for an entry of {} bytes of the step log", size);
    }
    LONGSPAN_RETURN_IF_ERROR(ReadFully(segment_.get(), entry, position_));
    position_ += size;
    ++next_;
    return entry;
  }

  const FileDescriptor socket_;
  std::atomic<bool> closed_ = false;
  FileDescriptor segment_;
  uint64_t segment_bytes_ = 0;
  uint64_t position_ = 0;
  uint64_t next_ = 0;
  base::Status end_;  // not ok once over
};

}  // namespace

base::Result<std::unique_ptr<JournalWriter>> CreateSharedMemoryJournal(
    std::vector<FileDescriptor> sockets) {
  for (const FileDescriptor& socket : sockets) LONGSPAN_RETURN_IF_ERROR(AdoptUnixSocket(socket));
  return std::unique_ptr<JournalWriter>(std::make_unique<SharedMemoryWriter>(std::move(sockets)));
}

base::Result<std::unique_ptr<JournalReader>> OpenSharedMemoryJournal(FileDescriptor socket) {
  LONGSPAN_RETURN_IF_ERROR(AdoptUnixSocket(socket));
  return std::unique_ptr<JournalReader>(std::make_unique<SharedMemoryReader>(std::move(socket)));
}

base::Result<JournalEnds> CreateSharedMemoryJournalEnds(int readers) {
  JournalEnds ends;
  std::vector<FileDescriptor> sockets;
  for (int i = 0; i < readers; ++i) {
    LONGSPAN_ASSIGN_OR_RETURN(auto pair, CreateSocketPair());
    sockets.push_back(std::move(pair.first));
    LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenSharedMemoryJournal(std::move(pair.second)));
    ends.readers.push_back(std::move(reader));
  }
  LONGSPAN_ASSIGN_OR_RETURN(ends.writer, CreateSharedMemoryJournal(std::move(sockets)));
  return ends;
}

}  // namespace longspan::comm
