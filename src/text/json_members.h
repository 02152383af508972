// Reading of untrusted JSON: members with a type, and one sentence where they have another.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <simdjson.h>

#include "base/result.h"

namespace longspan::text {

using JsonElement = simdjson::dom::element;
using JsonObject = simdjson::dom::object;
using JsonArray = simdjson::dom::array;

// `what` names the value in the DataLoss of a wrong type: "the vocabulary".
base::Result<JsonObject> AsObject(JsonElement value, std::string_view what);
base::Result<JsonArray> AsArray(JsonElement value, std::string_view what);
base::Result<std::string_view> AsString(JsonElement value, std::string_view what);
// A token id: an integer in [0, 2^31 - 1).
base::Result<int32_t> AsTokenId(JsonElement value, std::string_view what);

// The member, unless it is absent or null.
std::optional<JsonElement> FindMember(JsonObject object, std::string_view key);
// Members that must be there.
base::Result<JsonElement> GetMember(JsonObject object, std::string_view key);
base::Result<JsonArray> GetArray(JsonObject object, std::string_view key);
base::Result<std::string_view> GetString(JsonObject object, std::string_view key);
// Absent and null count as the fallback, or as an error where there is none.
base::Result<bool> GetBool(JsonObject object, std::string_view key,
                           std::optional<bool> fallback = std::nullopt);

}  // namespace longspan::text
