#include "server/fields.h"

#include <cmath>
#include <limits>
#include <utility>

namespace longspan::server {

namespace {

thread_local FieldsWatch* watch = nullptr;

}  // namespace

FieldsWatch::FieldsWatch() { watch = this; }
FieldsWatch::~FieldsWatch() { watch = nullptr; }

const Json* Fields::Find(const char* name) const {
  if (watch != nullptr) watch->members_.emplace(path_ + name, false);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::Fail(const char* name, const std::string& what, const char* code) {
  if (!status_.ok()) return;
  param_ = path_ + name;
  code_ = code;
  status_ = base::InvalidArgument("'{}' {}", param_, what);
}

void Fields::WrongType(const char* name, const char* wanted) {
  Fail(name, fmt::format("must be {}, not a JSON {}", wanted, Find(name)->type_name()),
       "invalid_type");
}

void Fields::Adopt(const Fields& part) {
  if (!status_.ok() || part.status_.ok()) return;
  status_ = part.status_;
  param_ = part.param_;
  code_ = part.code_;
}

void Fields::Read(const char* name, bool& value) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  if (!member->is_boolean()) return WrongType(name, "true or false");
  value = member->get<bool>();
}

void Fields::NoInteger(const char* name) {
  const double value = Find(name)->is_number_float() ? Find(name)->get<double>() : 0;
  if (std::trunc(value) != value || value == 0) return WrongType(name, "an integer");
  Fail(name, "is out of range: integers here have 64 bits");
}

bool Fields::ReadInteger(const char* name, int64_t& value) {
  const Json* member = Find(name);
  if (member == nullptr) return false;
  // Some clients write 16.0.
  if (member->is_number_float() && std::trunc(member->get<double>()) == member->get<double>() &&
      std::abs(member->get<double>()) < 9e15) {
    value = static_cast<int64_t>(member->get<double>());
    return true;
  }
  if (!member->is_number_integer()) {
    NoInteger(name);
    return false;
  }
  if (member->is_number_unsigned() && member->get<uint64_t>() > INT64_MAX) {
    Fail(name, fmt::format("is out of range: {} at most", INT64_MAX));
    return false;
  }
  value = member->get<int64_t>();
  return true;
}

void Fields::Read(const char* name, int64_t& value) { ReadInteger(name, value); }

void Fields::Read(const char* name, int& value) {
  int64_t wide = value;
  if (!ReadInteger(name, wide)) return;
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
    return Fail(name, fmt::format("is out of range: {} at most", std::numeric_limits<int>::max()));
  value = static_cast<int>(wide);
}

void Fields::Read(const char* name, double& value) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  if (!member->is_number()) return WrongType(name, "a number");
  value = member->get<double>();
}

void Fields::Read(const char* name, std::string& value) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  if (!member->is_string()) return WrongType(name, "a string");
  value = member->get<std::string>();
}

void Fields::Read(const char* name, std::optional<int64_t>& value) {
  int64_t read = 0;
  if (ReadInteger(name, read)) value = read;
}

void Fields::Read(const char* name, std::optional<uint64_t>& value) {
  const Json* member = Find(name);
  if (member != nullptr && member->is_number_unsigned()) {
    value = member->get<uint64_t>();
    return;
  }
  int64_t with_sign = 0;
  if (ReadInteger(name, with_sign)) value = static_cast<uint64_t>(with_sign);
}

void Fields::Read(const char* name, std::optional<double>& value) {
  if (Find(name) == nullptr) return;
  double read = 0;
  Read(name, read);
  value = read;
}

void Fields::Read(const char* name, std::vector<std::string>& value) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  value.clear();
  if (member->is_string()) {
    value.push_back(member->get<std::string>());
    return;
  }
  if (!member->is_array()) return WrongType(name, "a string or an array of strings");
  for (const Json& entry : *member) {
    if (!entry.is_string()) return Fail(name, "must hold strings only", "invalid_type");
    value.push_back(entry.get<std::string>());
  }
}

void Fields::Read(const char* name, std::vector<int32_t>& value) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  if (member->is_number_integer()) {
    int single = 0;
    Read(name, single);
    value = {single};
    return;
  }
  auto ids = member->is_array() ? TokenIds(*member) : std::nullopt;
  if (!ids) return Fail(name, "must be an array of token ids", "invalid_type");
  value = std::move(*ids);
}

void Fields::Refuse(const char* name, const char* neutral) {
  if (watch != nullptr) watch->members_.emplace(path_ + name, true);
  const Json* member = Find(name);
  if (member == nullptr) return;
  // An empty list or object asks for nothing.
  if ((member->is_array() || member->is_object()) && member->empty()) return;
  const auto harmless = ParseJson(neutral);
  if (harmless.ok() && *member == *harmless) return;
  Fail(name,
       std::string_view(neutral) == "null"
           ? "is not supported: leave it out"
           : fmt::format("is not supported: leave it out, or give {}", neutral),
       "unsupported_parameter");
}

std::optional<std::vector<int32_t>> TokenIds(const Json& array) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& entry : array) {
    if (!entry.is_number_integer()) return std::nullopt;
    if (entry.is_number_unsigned() && entry.get<uint64_t>() > INT32_MAX) return std::nullopt;
    const auto id = entry.get<int64_t>();
    if (id < INT32_MIN || id > INT32_MAX) return std::nullopt;
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace longspan::server
