#include "server/json.h"

#include <unordered_map>
#include <utility>

#include <simdjson.h>

namespace longspan::server {
namespace {

constexpr size_t kMostLevels = 100;
// Objects of more members get an index: looking through all members for each would take the square
// of their number.
constexpr size_t kFewMembers = 16;

Json ToJson(simdjson::dom::element element);

Json ToJson(simdjson::dom::object object) {
  Json json = Json::object();
  auto& members = json.get_ref<Json::object_t&>();
  std::unordered_map<std::string_view, size_t> index;
  const bool few = object.size() <= kFewMembers;
  for (const auto [key, value] : object) {
    if (few) {
      members[std::string(key)] = ToJson(value);
      continue;
    }
    const auto [place, is_new] = index.emplace(key, members.size());
    if (is_new) {
      members.emplace_back(std::string(key), ToJson(value));
    } else {
      (members.begin() + static_cast<std::ptrdiff_t>(place->second))->second = ToJson(value);
    }
  }
  return json;
}

Json ToJson(simdjson::dom::element element) {
  switch (element.type()) {
    case simdjson::dom::element_type::ARRAY: {
      Json json = Json::array();
      const simdjson::dom::array array = element.get_array().value_unsafe();
      json.get_ref<Json::array_t&>().reserve(array.size());
      for (const simdjson::dom::element entry : array) json.push_back(ToJson(entry));
      return json;
    }
    case simdjson::dom::element_type::OBJECT:
      return ToJson(element.get_object().value_unsafe());
    case simdjson::dom::element_type::INT64:
      return element.get_int64().value_unsafe();
    case simdjson::dom::element_type::UINT64:
      return element.get_uint64().value_unsafe();
    case simdjson::dom::element_type::DOUBLE:
      return element.get_double().value_unsafe();
    case simdjson::dom::element_type::STRING:
      return std::string(element.get_string().value_unsafe());
    case simdjson::dom::element_type::BOOL:
      return element.get_bool().value_unsafe();
    case simdjson::dom::element_type::NULL_VALUE:
      break;
  }
  return nullptr;
}

}  // namespace

base::Result<Json> ParseJson(std::string_view text) {
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(text);
  simdjson::error_code error = parser.allocate(padded.size(), kMostLevels);
  simdjson::dom::element document;
  if (!error) error = parser.parse(padded).get(document);
  if (error == simdjson::DEPTH_ERROR)
    return base::InvalidArgument("the JSON is nested deeper than {} levels", kMostLevels);
  if (error)
    return base::InvalidArgument("the body is no JSON that can be read: {}",
                                 simdjson::error_message(error));
  return ToJson(document);
}

bool IsUtf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace longspan::server
