// The program's standard streams: output that must arrive, messages that may get lost.
#pragma once

#include <string_view>

#include "base/status.h"

namespace longspan::apps {

// Gives the numbers 0, 1 and 2 to something where the caller had closed them, so that no file or
// socket of ours gets them: reads and writes then fail as they would have. Call it first of all.
void OpenStandardStreams();

// Writes to stdout at once. False when that fails; FinishOutput then says why.
bool WriteOutput(std::string_view text);

// Ends what was written to stdout: not ok if any of it could not be.
base::Status FinishOutput();

// Writes to stderr at once; what cannot be written is dropped.
void WriteMessage(std::string_view text);

}  // namespace longspan::apps
