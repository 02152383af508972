#include "checkpoint/json_fields.h"

#include <limits>
#include <utility>

#include "checkpoint/json_object.h"
#include "checkpoint/quoted.h"

namespace longspan::checkpoint {
namespace {

namespace dom = simdjson::dom;

std::optional<dom::element> Find(const JsonObject& object, std::string_view key) {
  dom::element value;
  if (object.members.at_key(key).get(value) != simdjson::SUCCESS || value.is_null())
    return std::nullopt;
  return value;
}

// The value of an element as T, with what the T is called in messages.
template <typename T>
struct Kind;
template <>
struct Kind<int64_t> {
  static constexpr std::string_view kName = "an integer";
};
template <>
struct Kind<double> {
  static constexpr std::string_view kName = "a number";
};
template <>
struct Kind<bool> {
  static constexpr std::string_view kName = "true or false";
};
template <>
struct Kind<std::string_view> {
  static constexpr std::string_view kName = "a string";
};

template <typename T>
base::Result<T> Get(const JsonFields& fields, std::string_view key, dom::element value) {
  T result{};
  if (value.get<T>().get(result) == simdjson::SUCCESS) return result;
  return base::InvalidArgument("{}must be {}, not {}", fields.Describe(key), Kind<T>::kName,
                               DescribeJson(value));
}

base::Status Missing(const JsonFields& fields, std::string_view key, std::string_view needed) {
  return base::InvalidArgument("{}is missing; it must be {}", fields.Describe(key), needed);
}

template <typename T>
base::Result<T> Required(const JsonFields& fields, const JsonObject& object, std::string_view key) {
  const auto value = Find(object, key);
  if (!value) return Missing(fields, key, Kind<T>::kName);
  return Get<T>(fields, key, *value);
}

template <typename T>
base::Result<T> Optional(const JsonFields& fields, const JsonObject& object, std::string_view key,
                         T default_value) {
  const auto value = Find(object, key);
  if (!value) return default_value;
  return Get<T>(fields, key, *value);
}

// The elements of a list, or of the list of one element that `value` is.
template <typename T, typename Stored>
base::Result<std::vector<Stored>> List(const JsonFields& fields, std::string_view key,
                                       dom::element value, bool or_single) {
  std::vector<Stored> list;
  dom::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) {
    if (!or_single)
      return base::InvalidArgument("{}must be a list, not {}", fields.Describe(key),
                                   DescribeJson(value));
    LONGSPAN_ASSIGN_OR_RETURN(const T single, Get<T>(fields, key, value));
    list.emplace_back(single);
    return list;
  }
  for (const dom::element entry : array) {
    T item{};
    if (entry.get<T>().get(item) != simdjson::SUCCESS)
      return base::InvalidArgument("{}must be a list in which each entry is {}, not {}",
                                   fields.Describe(key), Kind<T>::kName, DescribeJson(entry));
    list.emplace_back(item);
  }
  return list;
}

base::Result<int> ToSize(const JsonFields& fields, std::string_view key, int64_t value) {
  if (value < 1 || value > std::numeric_limits<int>::max())
    return base::InvalidArgument("{}is {}; it must be between 1 and {}", fields.Describe(key),
                                 value, std::numeric_limits<int>::max());
  return static_cast<int>(value);
}

base::Result<std::string> ToString(base::Result<std::string_view> text) {
  if (!text.ok()) return text.status();
  return std::string(*text);
}

}  // namespace

JsonFields::JsonFields(std::shared_ptr<const JsonObject> object, std::string where,
                       std::string prefix)
    : object_(std::move(object)), where_(std::move(where)), prefix_(std::move(prefix)) {}

base::Result<JsonFields> JsonFields::Parse(std::string_view text, std::string where) {
  LONGSPAN_ASSIGN_OR_RETURN(JsonObject object, ParseJsonObject(text, where));
  return JsonFields(std::make_shared<const JsonObject>(std::move(object)), std::move(where), "");
}

std::string JsonFields::Describe(std::string_view key) const {
  return fmt::format("{}: {} ", where_, Quoted(prefix_ + std::string(key)));
}

bool JsonFields::Has(std::string_view key) const { return Find(*object_, key).has_value(); }

base::Result<int64_t> JsonFields::Int(std::string_view key) const {
  return Required<int64_t>(*this, *object_, key);
}
base::Result<int64_t> JsonFields::Int(std::string_view key, int64_t default_value) const {
  return Optional<int64_t>(*this, *object_, key, default_value);
}

base::Result<int> JsonFields::Size(std::string_view key) const {
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t value, Int(key));
  return ToSize(*this, key, value);
}
base::Result<int> JsonFields::Size(std::string_view key, int default_value) const {
  if (!Has(key)) return default_value;
  return Size(key);
}

base::Result<double> JsonFields::Double(std::string_view key) const {
  return Required<double>(*this, *object_, key);
}
base::Result<double> JsonFields::Double(std::string_view key, double default_value) const {
  return Optional<double>(*this, *object_, key, default_value);
}

base::Result<bool> JsonFields::Bool(std::string_view key) const {
  return Required<bool>(*this, *object_, key);
}
base::Result<bool> JsonFields::Bool(std::string_view key, bool default_value) const {
  return Optional<bool>(*this, *object_, key, default_value);
}

base::Result<std::string> JsonFields::String(std::string_view key) const {
  return ToString(Required<std::string_view>(*this, *object_, key));
}
base::Result<std::string> JsonFields::String(std::string_view key,
                                             std::string_view default_value) const {
  return ToString(Optional<std::string_view>(*this, *object_, key, default_value));
}

base::Result<std::vector<int64_t>> JsonFields::Ints(std::string_view key) const {
  const auto value = Find(*object_, key);
  if (!value) return std::vector<int64_t>{};
  return List<int64_t, int64_t>(*this, key, *value, false);
}
base::Result<std::vector<std::string>> JsonFields::Strings(std::string_view key) const {
  const auto value = Find(*object_, key);
  if (!value) return std::vector<std::string>{};
  return List<std::string_view, std::string>(*this, key, *value, false);
}
base::Result<std::vector<int64_t>> JsonFields::IntOrInts(std::string_view key) const {
  const auto value = Find(*object_, key);
  if (!value) return std::vector<int64_t>{};
  return List<int64_t, int64_t>(*this, key, *value, true);
}

base::Result<std::optional<JsonFields>> JsonFields::Section(std::string_view key) const {
  const auto value = Find(*object_, key);
  if (!value) return std::optional<JsonFields>{};
  JsonObject section{object_->parser, {}};
  if (value->get_object().get(section.members) != simdjson::SUCCESS)
    return base::InvalidArgument("{}must be an object, not {}", Describe(key),
                                 DescribeJson(*value));
  return std::optional<JsonFields>(
      JsonFields(std::make_shared<const JsonObject>(std::move(section)), where_,
                 fmt::format("{}{}.", prefix_, key)));
}

}  // namespace longspan::checkpoint
