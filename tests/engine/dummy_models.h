// Models that are nothing but a config.json, for `--load-format dummy`.
#pragma once

#include <filesystem>
#include <string>

namespace longspan::testing {

// A folder with nothing but a config.json, removed at the end.
class ConfigFolder {
 public:
  ConfigFolder(const std::string& name, const std::string& config);
  ~ConfigFolder();
  ConfigFolder(const ConfigFolder&) = delete;
  ConfigFolder& operator=(const ConfigFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A DeepSeek with sizes that no published one has: latents of 40, rotary dimensions of 16, twelve
// experts in three groups, yarn, 131 tokens in the vocabulary.
struct DummyDeepseek {
  int heads = 6;
  int layers = 2;
  int query_rank = 48;  // 0: queries straight from the hidden state, V3 only
  int top_k = 0;        // what the indexer selects; 0: V3, without one
  int dense_layers = 1;
  int experts_per_token = 3;
  int groups_kept = 2;

  std::string Config() const;
};
inline constexpr int kDummyVocab = 131;

}  // namespace longspan::testing
