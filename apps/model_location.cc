#include "apps/model_location.h"

#include <system_error>

namespace longspan::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbeddedModelName = "tiny-qwen3-moe";

}  // namespace

base::Result<fs::path> ProgramPath() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return base::Internal("cannot find the program's own file: {}", error.message());
  return path;
}

base::Result<fs::path> EmbeddedModel() {
  LONGSPAN_ASSIGN_OR_RETURN(const fs::path program, ProgramPath());
  const fs::path beside = program.parent_path() / "models" / kEmbeddedModelName;
  const fs::path installed =
      program.parent_path().parent_path() / "share" / "longspan" / "models" / kEmbeddedModelName;
  std::error_code error;
  for (const fs::path& folder : {beside, installed})
    if (fs::is_directory(folder, error)) return folder;
  return base::NotFound(
      "the embedded model is neither at {} nor at {}: install the program whole, or name a "
      "model with --model-path",
      beside.string(), installed.string());
}

base::Result<fs::path> ResolveModel(const fs::path& given) {
  if (given.empty()) return EmbeddedModel();
  std::error_code error;
  if (!fs::exists(given, error))
    return base::NotFound("there is no folder '{}': --model-path needs a Hugging Face model folder",
                          given.string());
  if (!fs::is_directory(given, error))
    return base::InvalidArgument(
        "'{}' is not a folder: --model-path needs a Hugging Face model folder", given.string());
  return given;
}

}  // namespace longspan::apps
