#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/error.h"

namespace longspan::text {
namespace {

constexpr size_t kScannedEntries = 8;

Value FromJsonAt(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxValueDepth)
    FailInvalid("the request is nested deeper than {} levels", kMaxValueDepth);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::Bool(json.get<bool>());
    case Type::number_integer:
      return Value::Int(json.get<int64_t>());
    case Type::number_unsigned:
      return Value::Int(json.get<uint64_t>());
    case Type::number_float:
      return Value::Float(json.get<double>());
    case Type::string:
      return Value::String(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJsonAt(item, depth + 1));
      return Value::Sequence(ValueKind::kList, std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items())
        entries.emplace_back(Value::String(key), FromJsonAt(value, depth + 1));
      return Value::Dict(std::move(entries));
    }
    case Type::binary:
      FailInvalid("the request contains binary data, which a template cannot read");
    case Type::null:
    case Type::discarded:
      break;
  }
  return Value::None();
}

bool SequencesEqual(const SequenceObject& a, const SequenceObject& b) {
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), ValuesEqual);
}

bool DictsEqual(const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && ValuesEqual(entry.second, *other);
  });
}

bool NumbersEqual(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return a.AsDouble() == b.AsDouble();
}

}  // namespace

SequenceObject::SequenceObject(std::vector<Value> values) : items(std::move(values)) {
  for (const Value& item : items) {
    depth = std::max(depth, 1 + item.Depth());
    weight += 2 + item.Weight();
  }
}

DictObject::DictObject(std::vector<std::pair<Value, Value>> values) : entries(std::move(values)) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [key, value] = entries[i];
    depth = std::max({depth, 1 + key.Depth(), 1 + value.Depth()});
    weight += 4 + key.Weight() + value.Weight();
    if (entries.size() > kScannedEntries && key.is_string()) index_.emplace(key.text(), i);
  }
}

const Value* DictObject::Find(std::string_view key) const {
  if (entries.size() > kScannedEntries) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries)
    if (name.is_string() && name.text() == key) return &value;
  return nullptr;
}

const Value* DictObject::Find(const Value& key) const {
  if (key.is_string()) return Find(std::string_view(key.text()));
  for (const auto& [name, value] : entries)
    if (!name.is_string() && ValuesEqual(name, key)) return &value;
  return nullptr;
}

Value* NamespaceObject::Find(std::string_view name) {
  for (auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

Value Value::Undefined(std::string why) {
  Value value;
  value.object_ = std::make_shared<StringObject>(std::move(why));
  return value;
}

Value Value::Bool(bool flag) {
  Value value(ValueKind::kBool);
  value.integer_ = flag ? 1 : 0;
  return value;
}

Value Value::Int(Integer number) {
  Value value(ValueKind::kInteger);
  value.integer_ = number;
  return value;
}

Value Value::Float(double number) {
  Value value(ValueKind::kFloat);
  value.float_ = number;
  return value;
}

Value Value::String(std::string text) {
  Value value(ValueKind::kString);
  value.object_ = std::make_shared<StringObject>(std::move(text));
  return value;
}

Value Value::Markup(std::string text) {
  Value value = String(std::move(text));
  value.markup_ = true;
  return value;
}

Value Value::Sequence(ValueKind kind, std::vector<Value> items) {
  Value value(kind);
  value.object_ = std::make_shared<SequenceObject>(std::move(items));
  return value;
}

Value Value::Dict(std::vector<std::pair<Value, Value>> entries) {
  Value value(ValueKind::kDict);
  value.object_ = std::make_shared<DictObject>(std::move(entries));
  return value;
}

Value Value::Iterator(std::vector<Value> items) {
  auto iterator = std::make_shared<IteratorObject>();
  iterator->items = std::move(items);
  for (const Value& item : iterator->items)
    iterator->depth = std::max(iterator->depth, 1 + item.Depth());
  Value value(ValueKind::kIterator);
  value.object_ = std::move(iterator);
  return value;
}

Value Value::Namespace(NamespaceObject* space) {
  Value value(ValueKind::kNamespace);
  value.object_ = std::shared_ptr<const Object>(std::shared_ptr<void>(), space);
  return value;
}

Value Value::Loop(std::shared_ptr<LoopObject> loop) {
  Value value(ValueKind::kLoop);
  value.object_ = std::move(loop);
  return value;
}

Value Value::Function(std::string name, std::function<Value(JinjaContext&, const Arguments&)> call,
                      int depth) {
  auto function = std::make_shared<FunctionObject>();
  function->name = std::move(name);
  function->call = std::move(call);
  function->depth = depth;
  Value value(ValueKind::kFunction);
  value.object_ = std::move(function);
  return value;
}

Value Value::FromJson(const nlohmann::ordered_json& json) { return FromJsonAt(json, 0); }

std::string_view Value::undefined_reason() const {
  return object_ == nullptr ? std::string_view("the value is undefined") : std::string_view(text());
}

bool Value::Truthy() const {
  switch (kind_) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
    case ValueKind::kInteger:
      return integer_ != 0;
    case ValueKind::kFloat:
      return float_ != 0;
    case ValueKind::kString:
      return !text().empty();
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return !sequence().items.empty();
    case ValueKind::kDict:
      return !dict().entries.empty();
    case ValueKind::kLoop:  // it has a length, and is never seen without an iteration
    case ValueKind::kIterator:
    case ValueKind::kNamespace:
    case ValueKind::kFunction:
      return true;
  }
  return true;
}

std::string_view Value::TypeName() const {
  switch (kind_) {
    case ValueKind::kUndefined:
      return "Undefined";
    case ValueKind::kNone:
      return "None";
    case ValueKind::kBool:
      return "bool";
    case ValueKind::kInteger:
      return "int";
    case ValueKind::kFloat:
      return "float";
    case ValueKind::kString:
      return markup_ ? "str marked as safe" : "str";
    case ValueKind::kList:
      return "list";
    case ValueKind::kTuple:
      return "tuple";
    case ValueKind::kView:
      return "view (of a dict, or a range)";
    case ValueKind::kIterator:
      return "generator";
    case ValueKind::kDict:
      return "dict";
    case ValueKind::kNamespace:
      return "namespace";
    case ValueKind::kLoop:
      return "loop";
    case ValueKind::kFunction:
      return "function";
  }
  return "value";
}

std::string Value::Described() const {
  if (is_none()) return "None";
  const bool vowel = kind_ == ValueKind::kInteger || kind_ == ValueKind::kUndefined;
  return fmt::format("{} {}", vowel ? "an" : "a", TypeName());
}

int Value::Depth() const {
  switch (kind_) {
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return sequence().depth;
    case ValueKind::kDict:
      return dict().depth;
    case ValueKind::kIterator:
      return iterator().depth;
    case ValueKind::kLoop:
      return loop().depth;
    case ValueKind::kFunction:
      return function().depth;
    default:
      return 0;
  }
}

uint64_t Value::Weight() const {
  switch (kind_) {
    case ValueKind::kString:
      return 2 + text().size();
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return 2 + sequence().weight;
    case ValueKind::kDict:
      return 2 + dict().weight;
    default:
      return 8;
  }
}

bool ValuesEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return NumbersEqual(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return true;
    case ValueKind::kString:
      return a.text() == b.text();
    case ValueKind::kList:
    case ValueKind::kTuple:
      return SequencesEqual(a.sequence(), b.sequence());
    case ValueKind::kDict:
      return DictsEqual(a.dict(), b.dict());
    case ValueKind::kView:
      FailUnimplemented("views of a dict cannot be compared: add |list");
    default:
      return a.identity() == b.identity();
  }
}

bool ValueLess(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.AsDouble() < b.AsDouble();
  // UTF-8 orders as code points do.
  if (a.is_string() && b.is_string()) return a.text() < b.text();
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto& left = a.sequence().items;
    const auto& right = b.sequence().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (!ValuesEqual(left[i], right[i])) return ValueLess(left[i], right[i]);
    return left.size() < right.size();
  }
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) FailInvalid("{}", value->undefined_reason());
  FailInvalid("{} and {} have no order", a.TypeName(), b.TypeName());
}

}  // namespace longspan::text
