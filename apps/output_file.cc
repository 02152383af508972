#include "apps/output_file.h"

#include <cerrno>
#include <fstream>

#include <fmt/format.h>

namespace longspan::apps {

base::Status WriteOutputFile(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return base::SystemError(errno == 0 ? EIO : errno, fmt::format("write '{}'", path));
  return base::OkStatus();
}

}  // namespace longspan::apps
