// JSON of requests and responses.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace longspan::server {

// Objects keep the order of their members, which chat templates can see.
using Json = nlohmann::ordered_json;

// Reads a document in about its length: InvalidArgument for what is no JSON or no UTF-8, and for
// more than 100 levels. Integers that do not fit into 64 bits become the nearest double, numbers
// beyond all doubles the largest one. Of members of one name the last one counts.
base::Result<Json> ParseJson(std::string_view text);

bool IsUtf8(std::string_view text);

// Compact; bytes that are no UTF-8 become U+FFFD.
std::string Dump(const Json& json);

}  // namespace longspan::server
