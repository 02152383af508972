// Test data of chat templates: tests/data/chat.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace longspan::text {

inline std::string ReadChatData(const std::filesystem::path& name) {
  std::ifstream file(std::filesystem::path(LONGSPAN_SOURCE_DIR) / "tests/data/chat" / name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The documents of a file that has one a line.
inline std::vector<nlohmann::ordered_json> ReadChatLines(const std::filesystem::path& name) {
  const std::string text = ReadChatData(name);
  std::vector<nlohmann::ordered_json> documents;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    documents.push_back(nlohmann::ordered_json::parse(text.substr(start, end - start)));
    start = end == std::string::npos ? text.size() : end + 1;
  }
  return documents;
}

inline const std::vector<std::string>& ChatTemplateNames() {
  static const std::vector<std::string> names = {"qwen3",  "deepseek_v3", "smollm2",
                                                 "llama3", "llama31",     "llama32"};
  return names;
}

}  // namespace longspan::text
