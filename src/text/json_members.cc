#include "text/json_members.h"

#include <limits>

namespace longspan::text {
namespace {

using base::DataLoss;
using base::Result;

}  // namespace

Result<JsonObject> AsObject(JsonElement value, std::string_view what) {
  JsonObject object;
  if (value.get(object) != simdjson::SUCCESS) return DataLoss("{} must be an object", what);
  return object;
}

Result<JsonArray> AsArray(JsonElement value, std::string_view what) {
  JsonArray array;
  if (value.get(array) != simdjson::SUCCESS) return DataLoss("{} must be an array", what);
  return array;
}

Result<std::string_view> AsString(JsonElement value, std::string_view what) {
  std::string_view string;
  if (value.get(string) != simdjson::SUCCESS) return DataLoss("{} must be a string", what);
  return string;
}

Result<int32_t> AsTokenId(JsonElement value, std::string_view what) {
  int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= std::numeric_limits<int32_t>::max())
    return DataLoss("the id of {} must be an integer from 0 on", what);
  return static_cast<int32_t>(id);
}

std::optional<JsonElement> FindMember(JsonObject object, std::string_view key) {
  JsonElement value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

Result<JsonElement> GetMember(JsonObject object, std::string_view key) {
  const auto value = FindMember(object, key);
  if (!value) return DataLoss("\"{}\" is missing", key);
  return *value;
}

Result<JsonArray> GetArray(JsonObject object, std::string_view key) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement value, GetMember(object, key));
  return AsArray(value, fmt::format("\"{}\"", key));
}

Result<std::string_view> GetString(JsonObject object, std::string_view key) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement value, GetMember(object, key));
  return AsString(value, fmt::format("\"{}\"", key));
}

Result<bool> GetBool(JsonObject object, std::string_view key, std::optional<bool> fallback) {
  const auto value = FindMember(object, key);
  if (!value && fallback) return *fallback;
  bool flag = false;
  if (!value || value->get(flag) != simdjson::SUCCESS)
    return DataLoss("\"{}\" must be true or false", key);
  return flag;
}

}  // namespace longspan::text
