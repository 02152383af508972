#include "apps/input_files.h"

#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <sstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace longspan::apps {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 30;

base::Result<std::vector<int32_t>> IdList(const json& list) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const json& entry : list) {
    const bool fits =
        entry.is_number_integer() &&
        (entry.is_number_unsigned() ? entry.get<uint64_t>() <= std::numeric_limits<int32_t>::max()
                                    : entry.get<int64_t>() >= std::numeric_limits<int32_t>::min());
    if (!fits) return base::DataLoss("{} is not a token id: ids are integers", entry.dump());
    ids.push_back(entry.get<int32_t>());
  }
  return ids;
}

}  // namespace

base::Result<std::string> ReadInputFile(const std::filesystem::path& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return base::NotFound("there is no file '{}'", path.string());
  if (std::filesystem::is_directory(path, error))
    return base::InvalidArgument("'{}' is a folder, a file is needed", path.string());
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kMostBytes)
    return base::InvalidArgument("'{}' has {} bytes, the most is {}", path.string(), size,
                                 kMostBytes);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) return base::Internal("cannot read '{}'", path.string());
  return std::move(content).str();
}

base::Result<std::vector<std::vector<int32_t>>> ParseIdLists(std::string_view text) {
  const json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return base::DataLoss("the token ids are not valid JSON");
  if (!parsed.is_array()) return base::DataLoss("the token ids must be a JSON array");
  std::vector<std::vector<int32_t>> lists;
  if (parsed.empty() || !parsed[0].is_array()) {
    LONGSPAN_ASSIGN_OR_RETURN(auto ids, IdList(parsed));
    lists.push_back(std::move(ids));
    return lists;
  }
  for (const json& list : parsed) {
    if (!list.is_array())
      return base::DataLoss("an array of arrays of token ids holds something else");
    LONGSPAN_ASSIGN_OR_RETURN(auto ids, IdList(list));
    lists.push_back(std::move(ids));
  }
  return lists;
}

base::Result<std::vector<std::vector<int32_t>>> ReadIdLists(const std::filesystem::path& path) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path));
  auto lists = ParseIdLists(text);
  if (!lists.ok()) return lists.status().WithContext(path.string());
  return lists;
}

base::Result<std::string> RenderChat(const std::filesystem::path& model_dir,
                                     std::string_view conversation) {
  LONGSPAN_ASSIGN_OR_RETURN(const text::ChatRequest request, text::ParseChatRequest(conversation));
  LONGSPAN_ASSIGN_OR_RETURN(const auto chat_template, text::ChatTemplate::Load(model_dir));
  return chat_template.Render(request);
}

base::Result<std::string> RenderQuestion(const std::filesystem::path& model_dir,
                                         std::string_view document, std::string_view question) {
  std::string content(document);
  if (!content.empty()) content += "\n\n";
  content += question;
  text::ChatRequest request;
  request.messages.push_back({{"role", "user"}, {"content", std::move(content)}});
  LONGSPAN_ASSIGN_OR_RETURN(const auto chat_template, text::ChatTemplate::Load(model_dir));
  return chat_template.Render(request);
}

}  // namespace longspan::apps
