// What commands read from files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longspan::apps {

// The whole of a file, at most 1 GiB; "-" is the standard input.
base::Result<std::string> ReadInputFile(const std::filesystem::path& path);

// A JSON array of token ids, or an array of such arrays: one list per prompt. DataLoss for anything
// else.
base::Result<std::vector<std::vector<int32_t>>> ParseIdLists(std::string_view text);

// ReadInputFile, then ParseIdLists; messages name the file.
base::Result<std::vector<std::vector<int32_t>>> ReadIdLists(const std::filesystem::path& path);

// The prompt of a conversation (the form of interfaces: messages, tools, add_generation_prompt,
// kwargs), as the model's own chat template renders it.
base::Result<std::string> RenderChat(const std::filesystem::path& model_dir,
                                     std::string_view conversation);
// The same for a user's question about a document; without one where that is empty.
base::Result<std::string> RenderQuestion(const std::filesystem::path& model_dir,
                                         std::string_view document, std::string_view question);

}  // namespace longspan::apps
