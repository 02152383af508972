// A tokenizer.json small enough to change by hand in tests.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "text/byte_level.h"

namespace longspan::text {

// The 256 bytes (byte b has id b), "ab" (256), "abc" (257), then the added tokens "<s>" (258),
// "</s>" (259), both special, and "<tool>" (260). Cuts as GPT-2 does.
inline nlohmann::json SmallTokenizerJson() {
  using Json = nlohmann::json;
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[std::string(ByteSpelling(static_cast<uint8_t>(byte)))] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  const auto added = [](int id, const char* content, bool special) {
    return Json{{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
  };
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"added_tokens",
           {added(258, "<s>", true), added(259, "</s>", true), added(260, "<tool>", false)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"vocab", std::move(vocab)},
            {"merges", Json::array({"a b", Json::array({"ab", "c"})})}}}};
}

}  // namespace longspan::text
