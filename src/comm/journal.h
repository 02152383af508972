// One writes, all ranks of a node read: the carrier of the step log.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/status.h"

namespace longspan::comm {

// The writing end of a journal with a fixed number of readers. An entry is written once, however
// many readers there are; each reads all entries, whole, in order and once, at its own pace. What
// was written never changes. Append belongs to one thread at a time, Close to any.
//
// The destructor closes; it never waits for readers.
class JournalWriter {
 public:
  virtual ~JournalWriter() = default;

  // Writes an entry (also an empty one) and tells the readers. Never waits for them. Unavailable
  // when one of them is gone, ResourceExhausted when one has not read for so long that it cannot be
  // told of more (some hundreds of entries) or there is no memory: the others have got the entry,
  // but the journal is of no use for that one any more. Unavailable when this end is closed.
  virtual base::Status Append(std::span<const std::byte> entry) = 0;

  // Ends the journal: readers get what was written, then its end. Idempotent.
  virtual void Close() = 0;
};

// A reading end. Receive belongs to one thread at a time, Close to any.
class JournalReader {
 public:
  virtual ~JournalReader() = default;

  // Waits for the next entry. Unavailable once the writer has closed or died and all entries are
  // read, and at once when this end is closed; DataLoss when something else than entries came (the
  // journal is over for this reader then).
  virtual base::Result<std::vector<std::byte>> Receive() = 0;

  // Wakes who waits here. The writer finds this reader gone. Idempotent.
  virtual void Close() = 0;
};

struct JournalEnds {
  std::unique_ptr<JournalWriter> writer;
  std::vector<std::unique_ptr<JournalReader>> readers;
};

}  // namespace longspan::comm
