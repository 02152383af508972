#include "server/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
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

bool FitsInteger(const std::string& number) {
  const char* const end = number.data() + number.size();
  int64_t with_sign = 0;
  uint64_t without = 0;
  return std::from_chars(number.data(), end, with_sign).ec == std::errc() ||
         std::from_chars(number.data(), end, without).ec == std::errc();
}

// A number as the parser takes it: those that do not fit become doubles.
std::string WithinRange(const std::string& number) {
  const double value = std::strtod(number.c_str(), nullptr);
  if (std::isinf(value)) return value < 0 ? "-1.7976931348623157e308" : "1.7976931348623157e308";
  const bool is_integer = number.find_first_of(".eE") == std::string::npos;
  return is_integer && !FitsInteger(number) ? number + "e0" : number;
}

std::string WithNumbersWithinRange(std::string_view text) {
  std::string changed;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    if (text[begin] == '"') {
      for (; end < text.size() && text[end] != '"'; ++end)
        if (text[end] == '\\') ++end;
      end = std::min(end + 1, text.size());
      changed += text.substr(begin, end - begin);
    } else if (text[begin] == '-' || (text[begin] >= '0' && text[begin] <= '9')) {
      end = std::min(text.find_first_not_of("0123456789.eE+-", begin), text.size());
      changed += WithinRange(std::string(text.substr(begin, end - begin)));
    } else {
      changed += text[begin];
    }
    begin = end;
  }
  return changed;
}

simdjson::error_code Parse(std::string_view text, simdjson::dom::parser& parser,
                           simdjson::dom::element& document) {
  const simdjson::padded_string padded(text);
  const simdjson::error_code error = parser.allocate(padded.size(), kMostLevels);
  return error ? error : parser.parse(padded).get(document);
}

}  // namespace

base::Result<Json> ParseJson(std::string_view text) {
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  simdjson::error_code error = Parse(text, parser, document);
  // Rare, so only now: the number may be in a member that nobody asks for.
  if (error == simdjson::NUMBER_ERROR)
    error = Parse(WithNumbersWithinRange(text), parser, document);
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
