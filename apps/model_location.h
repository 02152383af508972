// Where models are.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace longspan::apps {

// The running program's own file.
base::Result<std::filesystem::path> ProgramPath();

// The folder of the model that is used when none is named: models/ beside the program, or
// ../share/longspan/models where it is installed.
base::Result<std::filesystem::path> EmbeddedModel();

// The given folder, or the embedded model for an empty path. NotFound for a folder that does not
// exist.
base::Result<std::filesystem::path> ResolveModel(const std::filesystem::path& given);

}  // namespace longspan::apps
