#include "text/jinja/print.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

void AppendRepr(const Value& value, std::string* out);

void AppendSequence(const SequenceObject& sequence, bool tuple, std::string* out) {
  *out += tuple ? '(' : '[';
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) *out += ", ";
    AppendRepr(sequence.items[i], out);
  }
  if (tuple && sequence.items.size() == 1) *out += ',';
  *out += tuple ? ')' : ']';
}

void AppendDict(const DictObject& dict, std::string* out) {
  *out += '{';
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) *out += ", ";
    AppendRepr(dict.entries[i].first, out);
    *out += ": ";
    AppendRepr(dict.entries[i].second, out);
  }
  *out += '}';
}

void AppendRepr(const Value& value, std::string* out) {
  switch (value.kind()) {
    case ValueKind::kUndefined:
      *out += "Undefined";
      return;
    case ValueKind::kNone:
      *out += "None";
      return;
    case ValueKind::kBool:
      *out += value.bool_value() ? "True" : "False";
      return;
    case ValueKind::kInteger:
      *out += IntegerText(value.integer());
      return;
    case ValueKind::kFloat:
      *out += FloatRepr(value.AsDouble());
      return;
    case ValueKind::kString:
      if (value.is_markup()) FailUnimplemented("{} cannot be printed in a list", value.Described());
      *out += StringRepr(value.text());
      return;
    case ValueKind::kList:
    case ValueKind::kTuple:
      AppendSequence(value.sequence(), value.Is(ValueKind::kTuple), out);
      return;
    case ValueKind::kDict:
      AppendDict(value.dict(), out);
      return;
    case ValueKind::kView:
    case ValueKind::kIterator:
      FailUnimplemented("{} cannot be printed: add |list or |join", value.Described());
    case ValueKind::kNamespace:
    case ValueKind::kLoop:
    case ValueKind::kFunction:
      FailUnimplemented("{} cannot be printed", value.Described());
  }
}

class JsonWriter {
 public:
  JsonWriter(const JinjaContext& context, const JsonFormat& format)
      : context_(context), format_(format) {}

  void Write(const Value& value) {
    switch (value.kind()) {
      case ValueKind::kNone:
        out_ += "null";
        return;
      case ValueKind::kBool:
        out_ += value.bool_value() ? "true" : "false";
        return;
      case ValueKind::kInteger:
        out_ += IntegerText(value.integer());
        return;
      case ValueKind::kFloat:
        out_ += Number(value.AsDouble());
        return;
      case ValueKind::kString:
        WriteString(value.text());
        return;
      case ValueKind::kList:
      case ValueKind::kTuple:
        WriteSequence(value.sequence());
        return;
      case ValueKind::kDict:
        WriteDict(value.dict());
        return;
      default:
        if (value.is_undefined()) FailInvalid("tojson: {}", value.undefined_reason());
        FailInvalid("tojson: {} has no JSON form", value.Described());
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(value);
  }

  void WriteUnicodeEscape(uint32_t unit) { out_ += fmt::format("\\u{:04x}", unit); }

  void WriteString(std::string_view text) {
    out_ += '"';
    for (size_t i = 0; i < text.size();) {
      const size_t bytes = CharacterBytes(text, i);
      const char32_t c = CodePointAt(text, i);
      static constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
      static constexpr std::string_view kEscapes = "\"\\nrtbf";
      const size_t found = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
      if (found != std::string_view::npos) {
        out_ += '\\';
        out_ += kEscapes[found];
      } else if (c < 0x20 || (format_.ensure_ascii && c > 0x7E && c < 0x10000)) {
        WriteUnicodeEscape(c);
      } else if (format_.ensure_ascii && c >= 0x10000) {
        WriteUnicodeEscape(0xD800 + ((c - 0x10000) >> 10));
        WriteUnicodeEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out_ += text.substr(i, bytes);
      }
      i += bytes;
    }
    out_ += '"';
  }

  void NewLine() {
    if (!format_.indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *format_.indent;
    // Indentation is not in the weight of the value, which bounds all else here.
    context_.CheckSize(1, out_.size());
  }

  void WriteSequence(const SequenceObject& sequence) {
    if (sequence.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += format_.item_separator;
      NewLine();
      Write(sequence.items[i]);
    }
    --level_;
    NewLine();
    out_ += ']';
  }

  void WriteKey(const Value& key) {
    switch (key.kind()) {
      case ValueKind::kString:
        return WriteString(key.text());
      case ValueKind::kNone:
      case ValueKind::kBool:
      case ValueKind::kInteger:
      case ValueKind::kFloat:
        out_ += '"';
        Write(key);
        out_ += '"';
        return;
      default:
        FailInvalid("tojson: {} cannot be a key of JSON", key.Described());
    }
  }

  void WriteDict(const DictObject& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (format_.sort_keys) SortByKey(&entries);
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += format_.item_separator;
      NewLine();
      WriteKey(entries[i]->first);
      out_ += format_.key_separator;
      Write(entries[i]->second);
    }
    --level_;
    NewLine();
    out_ += '}';
  }

  static void SortByKey(std::vector<const std::pair<Value, Value>*>* entries) {
    for (const auto* entry : *entries)
      if (!entry->first.is_string())
        FailUnimplemented("tojson(sort_keys=true) of keys that are not strings");
    std::sort(entries->begin(), entries->end(),
              [](const auto* a, const auto* b) { return a->first.text() < b->first.text(); });
  }

  const JinjaContext& context_;
  const JsonFormat& format_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string ToText(JinjaContext& context, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_string()) {
    context.CountBytes(value.text().size());
    return value.text();
  }
  return ToRepr(context, value);
}

std::string ToRepr(JinjaContext& context, const Value& value) {
  context.CountBytes(value.Weight());
  std::string out;
  AppendRepr(value, &out);
  return out;
}

std::string ToJson(JinjaContext& context, const Value& value, const JsonFormat& format) {
  context.CountBytes(value.Weight());
  JsonWriter writer(context, format);
  writer.Write(value);
  std::string json = writer.Take();
  context.CountBytes(json.size());
  return json;
}

}  // namespace longspan::text
