// Files that commands write.
#pragma once

#include <string>

#include "base/status.h"

namespace longspan::apps {

// The whole of a text, in place of what the file held.
base::Status WriteOutputFile(const std::string& path, const std::string& text);

}  // namespace longspan::apps
