#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/items.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

[[noreturn]] void FailOperands(std::string_view operation, const Value& left, const Value& right) {
  RequireDefined(left);
  RequireDefined(right);
  FailInvalid("'{}' does not work on {} and {}", operation, left.TypeName(), right.TypeName());
}

[[noreturn]] void FailOverflow() { FailUnimplemented("integers beyond 128 bits"); }

Value IntegerPower(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailOverflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailOverflow();
  }
  return Value::Int(result);
}

// Floor division and its remainder, which has the sign of the divisor.
Integer FloorDivide(Integer a, Integer b) {
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double FloorModulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double FloorDivide(double a, double b) {
  const double quotient = (a - FloorModulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value DivideIntegers(Integer a, Integer b) {
  constexpr Integer kExact = Integer(1) << 53;
  if (a > kExact || a < -kExact || b > kExact || b < -kExact)
    FailUnimplemented("'/' of integers beyond 53 bits");
  return Value::Float(static_cast<double>(a) / static_cast<double>(b));
}

Value IntegerArithmetic(std::string_view operation, Integer a, Integer b) {
  Integer result = 0;
  if (operation == "+") {
    if (__builtin_add_overflow(a, b, &result)) FailOverflow();
    return Value::Int(result);
  }
  if (operation == "-") {
    if (__builtin_sub_overflow(a, b, &result)) FailOverflow();
    return Value::Int(result);
  }
  if (operation == "*") {
    if (__builtin_mul_overflow(a, b, &result)) FailOverflow();
    return Value::Int(result);
  }
  if (operation == "**" && b >= 0) return IntegerPower(a, b);
  if (operation == "**") {
    if (a == 0) FailInvalid("zero to a negative power");
    return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (b == 0) FailInvalid("division by zero");
  if (operation == "/") return DivideIntegers(a, b);
  if (b == -1 && __builtin_sub_overflow(Integer(0), a, &result)) FailOverflow();
  if (operation == "//") return Value::Int(b == -1 ? result : FloorDivide(a, b));
  return Value::Int(b == -1 ? 0 : a - FloorDivide(a, b) * b);
}

Value FloatArithmetic(std::string_view operation, double a, double b) {
  if (operation == "+") return Value::Float(a + b);
  if (operation == "-") return Value::Float(a - b);
  if (operation == "*") return Value::Float(a * b);
  if (operation == "**") {
    const double power = std::pow(a, b);
    if (!std::isfinite(power) && std::isfinite(a) && std::isfinite(b))
      FailInvalid("'**' has no finite real result");
    return Value::Float(power);
  }
  if (b == 0) FailInvalid("division by zero");
  if (operation == "/") return Value::Float(a / b);
  return Value::Float(operation == "//" ? FloorDivide(a, b) : FloorModulo(a, b));
}

Value Repeat(JinjaContext& context, const Value& value, Integer count) {
  count = std::max<Integer>(count, 0);
  if (value.is_string()) {
    const std::string& text = value.text();
    context.CheckSize(count, text.size());
    std::string repeated;
    repeated.reserve(text.size() * static_cast<size_t>(text.empty() ? 0 : count));
    for (Integer i = 0; i < count && !text.empty(); ++i) repeated += text;
    return context.String(std::move(repeated));
  }
  const auto& items = value.sequence().items;
  context.CheckSize(count, items.size() * sizeof(Value));
  std::vector<Value> repeated;
  for (Integer i = 0; i < count && !items.empty(); ++i)
    repeated.insert(repeated.end(), items.begin(), items.end());
  return context.Sequence(value.kind(), std::move(repeated));
}

bool IsPlainString(const Value& value) { return value.is_string() && !value.is_markup(); }
bool IsRepeatable(const Value& value) { return IsPlainString(value) || value.is_sequence(); }

bool Contains(JinjaContext& context, const Value& container, const Value& item) {
  context.CountBytes(container.Weight());
  switch (container.kind()) {
    case ValueKind::kUndefined:
      return false;
    case ValueKind::kString:
      return FindText(container.text(), RequireString(item, "what is looked for in a str")) !=
             std::string_view::npos;
    case ValueKind::kDict:
      if (item.is_sequence() || item.Is(ValueKind::kDict)) FailOperands("in", item, container);
      return container.dict().Find(item) != nullptr;
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
    case ValueKind::kIterator: {
      const std::vector<Value> items = Iterate(context, container);
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& other) { return ValuesEqual(item, other); });
    }
    default:
      FailOperands("in", item, container);
  }
}

}  // namespace

Value Arithmetic(JinjaContext& context, std::string_view operation, const Value& left,
                 const Value& right) {
  if (left.is_integral() && right.is_integral())
    return IntegerArithmetic(operation, left.integer(), right.integer());
  if (left.is_number() && right.is_number())
    return FloatArithmetic(operation, left.AsDouble(), right.AsDouble());
  if (operation == "+") {
    if (IsPlainString(left) && IsPlainString(right)) {
      context.CheckSize(1, left.text().size() + right.text().size());
      return context.String(left.text() + right.text());
    }
    if (left.is_sequence() && left.kind() == right.kind()) {
      std::vector<Value> items = left.sequence().items;
      const auto& more = right.sequence().items;
      items.insert(items.end(), more.begin(), more.end());
      return context.Sequence(left.kind(), std::move(items));
    }
  }
  if (operation == "*" && IsRepeatable(left) && right.is_integral())
    return Repeat(context, left, right.integer());
  if (operation == "*" && left.is_integral() && IsRepeatable(right))
    return Repeat(context, right, left.integer());
  if (operation == "%" && IsPlainString(left) && !right.is_undefined()) {
    const bool is_tuple = right.Is(ValueKind::kTuple);
    return context.String(FormatPercent(
        context, left.text(), is_tuple ? right.sequence().items : std::vector<Value>{right}));
  }
  FailOperands(operation, left, right);
}

Value Negate(const Value& value) {
  RequireDefined(value);
  if (value.Is(ValueKind::kFloat)) return Value::Float(-value.AsDouble());
  if (!value.is_integral()) FailInvalid("'-' does not work on {}", value.TypeName());
  return IntegerArithmetic("-", 0, value.integer());
}

bool Compare(JinjaContext& context, std::string_view comparison, const Value& left,
             const Value& right) {
  if (comparison == "in") return Contains(context, right, left);
  if (comparison == "not in") return !Contains(context, right, left);
  context.CountBytes(std::min(left.Weight(), right.Weight()));
  if (comparison == "==") return ValuesEqual(left, right);
  if (comparison == "!=") return !ValuesEqual(left, right);
  if (comparison == "<") return ValueLess(left, right);
  if (comparison == ">") return ValueLess(right, left);
  const bool less = comparison == "<=" ? ValueLess(left, right) : ValueLess(right, left);
  return less || ValuesEqual(left, right);
}

std::string FormatPercent(JinjaContext& context, std::string_view format,
                          const std::vector<Value>& arguments) {
  std::string out;
  size_t used = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const char conversion = ++i < format.size() ? format[i] : '\0';
    if (conversion == '%') {
      out += '%';
      continue;
    }
    if (std::string_view("sdi").find(conversion) == std::string_view::npos || conversion == '\0')
      FailUnimplemented("the conversion '%{}' of a format: use %s, %d or %%", conversion);
    if (used >= arguments.size()) FailInvalid("a format has more conversions than values");
    const Value& value = arguments[used++];
    if (conversion != 's') RequireInteger(value, "the value of '%d'");
    out += conversion == 's' ? ToText(context, value) : IntegerText(value.integer());
    context.CheckSize(1, out.size());
  }
  if (used < arguments.size()) FailInvalid("a format has fewer conversions than values");
  return out;
}

}  // namespace longspan::text
