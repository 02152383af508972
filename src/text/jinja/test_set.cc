// The tests: `value is defined`.

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/filter_sets.h"
#include "text/jinja/items.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

// A test that asks for the type alone and takes no argument.
template <bool (*holds)(const Value&)>
bool OfType(JinjaContext&, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("a test", arguments, {});
  return holds(value);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.Is(ValueKind::kBool); }
bool IsTrue(const Value& value) { return IsBoolean(value) && value.bool_value(); }
bool IsFalse(const Value& value) { return IsBoolean(value) && !value.bool_value(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsInteger(const Value& value) { return value.Is(ValueKind::kInteger); }
bool IsFloat(const Value& value) { return value.Is(ValueKind::kFloat); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsMapping(const Value& value) { return value.Is(ValueKind::kDict); }
// To Python, undefined can be walked over, indexed and called; the last two fail when it is done.
bool IsCallable(const Value& value) {
  return value.Is(ValueKind::kFunction) || value.is_undefined();
}
bool IsSequence(const Value& value) {
  return value.is_sequence() || value.is_string() || value.Is(ValueKind::kDict) ||
         value.is_undefined();
}
bool IsIterable(const Value& value) {
  return IsSequence(value) || value.Is(ValueKind::kView) || value.Is(ValueKind::kIterator) ||
         value.Is(ValueKind::kLoop);
}

template <bool odd>
bool HasParity(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("a test", arguments, {});
  const Value remainder = Arithmetic(context, "%", value, Value::Int(2));
  return ValuesEqual(remainder, Value::Int(odd ? 1 : 0));
}

bool DivisibleBy(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("divisibleby", arguments, {"num"}, 1);
  return ValuesEqual(Arithmetic(context, "%", value, bound.At(0)), Value::Int(0));
}

// Strings with at least one cased character, none of the other case.
bool HasCase(const std::string& text, std::string (*to)(std::string_view),
             std::string (*other)(std::string_view)) {
  return to(text) == text && other(text) != text;
}

bool IsUpper(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("upper", arguments, {});
  return HasCase(ToText(context, value), ToUpper, ToLower);
}
bool IsLower(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("lower", arguments, {});
  return HasCase(ToText(context, value), ToLower, ToUpper);
}

bool SameAs(JinjaContext&, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("sameas", arguments, {"other"}, 1);
  const Value& other = bound.At(0);
  if (value.kind() != other.kind()) return false;
  if (value.is_none()) return true;
  if (!value.Is(ValueKind::kBool)) FailUnimplemented("'sameas' of {}", value.Described());
  return value.bool_value() == other.bool_value();
}

bool IsFilterName(JinjaContext&, const Value& value, const Arguments&) {
  return FindFilter(RequireString(value, "the name of a filter")) != nullptr;
}
bool IsTestName(JinjaContext&, const Value& value, const Arguments&) {
  return FindTest(RequireString(value, "the name of a test")) != nullptr;
}

// The comparisons as tests, for selectattr.
constexpr char kEqual[] = "==", kNotEqual[] = "!=", kLess[] = "<",
               kLessEqual[] = "<=", kGreater[] = ">", kGreaterEqual[] = ">=", kIn[] = "in";

template <const char* comparison>
bool Compares(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("a comparison", arguments, {"other"}, 1);
  return Compare(context, comparison, value, bound.At(0));
}

constexpr JinjaTest kTests[] = {
    {"!=", Compares<kNotEqual>},
    {"<", Compares<kLess>},
    {"<=", Compares<kLessEqual>},
    {"==", Compares<kEqual>},
    {">", Compares<kGreater>},
    {">=", Compares<kGreaterEqual>},
    {"boolean", OfType<IsBoolean>},
    {"callable", OfType<IsCallable>},
    {"defined", OfType<IsDefined>},
    {"divisibleby", DivisibleBy},
    {"eq", Compares<kEqual>},
    {"equalto", Compares<kEqual>},
    {"even", HasParity<false>},
    {"false", OfType<IsFalse>},
    {"filter", IsFilterName},
    {"float", OfType<IsFloat>},
    {"ge", Compares<kGreaterEqual>},
    {"greaterthan", Compares<kGreater>},
    {"gt", Compares<kGreater>},
    {"in", Compares<kIn>},
    {"integer", OfType<IsInteger>},
    {"iterable", OfType<IsIterable>},
    {"le", Compares<kLessEqual>},
    {"lessthan", Compares<kLess>},
    {"lower", IsLower},
    {"lt", Compares<kLess>},
    {"mapping", OfType<IsMapping>},
    {"ne", Compares<kNotEqual>},
    {"none", OfType<IsNone>},
    {"number", OfType<IsNumber>},
    {"odd", HasParity<true>},
    {"sameas", SameAs},
    {"sequence", OfType<IsSequence>},
    {"string", OfType<IsString>},
    {"test", IsTestName},
    {"true", OfType<IsTrue>},
    {"undefined", OfType<IsUndefined>},
    {"upper", IsUpper},
};

}  // namespace

std::span<const JinjaTest> Tests() { return kTests; }

}  // namespace longspan::text
