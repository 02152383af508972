#include "text/jinja/items.h"

#include <algorithm>
#include <optional>

#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

// The position that `index` means in a sequence of `size` elements; none outside.
std::optional<size_t> Position(Integer index, size_t size) {
  if (index < 0) index += static_cast<Integer>(size);
  if (index < 0 || index >= static_cast<Integer>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

Value CharacterAt(JinjaContext& context, const std::string& text, Integer index) {
  context.CountBytes(text.size() * sizeof(size_t));
  const std::vector<size_t> offsets = CharacterOffsets(text);
  const auto position = Position(index, offsets.size() - 1);
  if (!position.has_value()) return Value::Undefined("a str has no character at this index");
  return context.String(
      text.substr(offsets[*position], offsets[*position + 1] - offsets[*position]));
}

Value MissingItem(const Value& value, const Value& key) {
  RequireDefined(value);
  const std::string name = key.is_string()                       ? StringRepr(key.text())
                           : key.is_integral()                   ? IntegerText(key.integer())
                           : key.kind() == ValueKind::kUndefined ? std::string("an undefined key")
                                                                 : std::string(key.TypeName());
  return Value::Undefined(fmt::format("{} has no item {}", value.Described(), name));
}

// The item itself; null when absent.
std::optional<Value> FindItem(JinjaContext& context, const Value& value, const Value& key) {
  switch (value.kind()) {
    case ValueKind::kDict:
      if (const Value* found = value.dict().Find(key)) return *found;
      return std::nullopt;
    case ValueKind::kList:
    case ValueKind::kTuple: {
      if (!key.is_integral()) return std::nullopt;
      const auto& items = value.sequence().items;
      const auto position = Position(key.integer(), items.size());
      if (!position.has_value()) return std::nullopt;
      return items[*position];
    }
    case ValueKind::kString: {
      if (!key.is_integral()) return std::nullopt;
      RequireString(value, "what is indexed");
      Value character = CharacterAt(context, value.text(), key.integer());
      if (character.is_undefined()) return std::nullopt;
      return character;
    }
    default:
      return std::nullopt;
  }
}

// Python's slice.indices: the bounds inside 0..size (or -1..size-1 backwards).
Integer ClampBound(const Value* bound, Integer fallback, Integer size, bool backwards) {
  if (bound == nullptr || bound->is_none()) return fallback;
  Integer index = RequireInteger(*bound, "a bound of a slice");
  const Integer low = backwards ? -1 : 0;
  const Integer high = backwards ? size - 1 : size;
  if (index < 0) index = index < -size ? low : index + size;
  return std::clamp(index, low, std::max(low, high));
}

std::vector<size_t> SlicePositions(size_t count, const Value* start, const Value* stop,
                                   const Value* step_value) {
  const auto size = static_cast<Integer>(count);
  Integer step = 1;
  if (step_value != nullptr && !step_value->is_none())
    step = RequireInteger(*step_value, "the step of a slice");
  if (step == 0) FailInvalid("the step of a slice is 0");
  step = std::clamp<Integer>(step, -size - 1, size + 1);
  const bool backwards = step < 0;
  Integer at = ClampBound(start, backwards ? size - 1 : 0, size, backwards);
  const Integer end = ClampBound(stop, backwards ? -1 : size, size, backwards);
  std::vector<size_t> positions;
  for (; backwards ? at > end : at < end; at += step) positions.push_back(static_cast<size_t>(at));
  return positions;
}

// Undefined values have no items; the attributes of a namespace are searched one by one.
void CountSearch(JinjaContext& context, const Value& value) {
  RequireDefined(value);
  if (value.Is(ValueKind::kNamespace)) context.CountSearch(value.space()->attributes.size());
}

}  // namespace

void RequireDefined(const Value& value) {
  if (value.is_undefined()) FailInvalid("{}", value.undefined_reason());
}

const std::string& RequireString(const Value& value, std::string_view what) {
  RequireDefined(value);
  if (value.is_markup())
    FailUnimplemented("{} is a str marked as safe, which can only be printed", what);
  if (!value.is_string()) FailInvalid("{} is {}, not a str", what, value.Described());
  return value.text();
}

Integer RequireInteger(const Value& value, std::string_view what) {
  RequireDefined(value);
  if (!value.is_integral()) FailInvalid("{} is {}, not an int", what, value.Described());
  return value.integer();
}

Value GetItem(JinjaContext& context, const Value& value, const Value& key) {
  CountSearch(context, value);
  if (auto item = FindItem(context, value, key)) return *std::move(item);
  if (key.is_string())
    if (auto attribute = FindAttribute(value, key.text())) return *std::move(attribute);
  return MissingItem(value, key);
}

Value GetAttribute(JinjaContext& context, const Value& value, const std::string& name) {
  CountSearch(context, value);
  if (auto attribute = FindAttribute(value, name)) return *std::move(attribute);
  if (value.Is(ValueKind::kDict))
    if (const Value* found = value.dict().Find(name)) return *found;
  context.CountBytes(name.size());
  return Value::Undefined(fmt::format("{} has no attribute '{}'", value.Described(), name));
}

Value GetSlice(JinjaContext& context, const Value& value, const Value* start, const Value* stop,
               const Value* step) {
  RequireDefined(value);
  if (value.is_string()) {
    const std::string& text = RequireString(value, "what is sliced");
    context.CountBytes(text.size() * sizeof(size_t));
    const std::vector<size_t> offsets = CharacterOffsets(text);
    std::string part;
    for (const size_t i : SlicePositions(offsets.size() - 1, start, stop, step))
      part.append(text, offsets[i], offsets[i + 1] - offsets[i]);
    return context.String(std::move(part));
  }
  if (value.Is(ValueKind::kView)) FailUnimplemented("a slice of {}: add |list", value.Described());
  if (!value.is_sequence()) FailInvalid("{} cannot be sliced", value.Described());
  const auto& items = value.sequence().items;
  std::vector<Value> part;
  for (const size_t i : SlicePositions(items.size(), start, stop, step)) part.push_back(items[i]);
  return context.Sequence(value.kind(), std::move(part));
}

std::vector<Value> Iterate(JinjaContext& context, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case ValueKind::kUndefined:
      break;
    case ValueKind::kString: {
      const std::string& text = RequireString(value, "what is walked over");
      context.CountBytes(text.size() * sizeof(Value));
      for (size_t i = 0; i < text.size(); i += CharacterBytes(text, i))
        items.push_back(context.String(text.substr(i, CharacterBytes(text, i))));
      break;
    }
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      items = value.sequence().items;
      break;
    case ValueKind::kDict:
      for (const auto& [key, entry] : value.dict().entries) items.push_back(key);
      break;
    case ValueKind::kIterator:
      if (value.iterator().used)
        FailUnimplemented("a generator is walked over twice: add |list where it is made");
      value.iterator().used = true;
      items = value.iterator().items;
      break;
    default:
      FailInvalid("{} cannot be walked over", value.Described());
  }
  context.CountBytes(items.size() * sizeof(Value));
  return items;
}

Integer Length(JinjaContext& context, const Value& value) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kString:
      context.CountBytes(value.text().size());
      return static_cast<Integer>(CountCharacters(value.text()));
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return static_cast<Integer>(value.sequence().items.size());
    case ValueKind::kDict:
      return static_cast<Integer>(value.dict().entries.size());
    case ValueKind::kLoop:
      return static_cast<Integer>(value.loop().items.size());
    default:
      FailInvalid("{} has no length", value.Described());
  }
}

}  // namespace longspan::text
