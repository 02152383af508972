#include "text/jinja/context.h"

#include "text/jinja/error.h"

namespace longspan::text {

void JinjaContext::CountStep() {
  if (++steps_ > bounds_.steps)
    FailExhausted("the template takes more than {} steps", bounds_.steps);
}

void JinjaContext::CountBytes(uint64_t bytes) {
  bytes_ += bytes;
  if (bytes_ > bounds_.work_bytes)
    FailExhausted("the template works through more than {} bytes", bounds_.work_bytes);
}

void JinjaContext::CheckSize(Integer count, uint64_t size) const {
  if (count > 0 && size > 0 &&
      (count > Integer(bounds_.value_bytes) ||
       count * Integer(size) > Integer(bounds_.value_bytes)))
    FailExhausted("the template makes a value of more than {} bytes", bounds_.value_bytes);
}

Value JinjaContext::Checked(Value value) {
  CheckSize(1, value.Weight());
  if (value.Depth() > kMaxValueDepth)
    FailExhausted("the template nests values deeper than {} levels", kMaxValueDepth);
  return value;
}

Value JinjaContext::String(std::string text) {
  CountBytes(text.size());
  return Checked(Value::String(std::move(text)));
}

Value JinjaContext::List(std::vector<Value> items) {
  return Sequence(ValueKind::kList, std::move(items));
}

Value JinjaContext::Sequence(ValueKind kind, std::vector<Value> items) {
  CheckSize(static_cast<Integer>(items.size()), sizeof(Value));
  CountBytes(items.size() * sizeof(Value));
  return Checked(Value::Sequence(kind, std::move(items)));
}

Value JinjaContext::Iterator(std::vector<Value> items) {
  CountBytes(items.size() * sizeof(Value));
  return Checked(Value::Iterator(std::move(items)));
}

Value JinjaContext::Dict(std::vector<std::pair<Value, Value>> entries) {
  std::vector<std::pair<Value, Value>> unique;
  unique.reserve(entries.size());
  CountBytes(entries.size() * entries.size() + entries.size() * 2 * sizeof(Value));
  for (std::pair<Value, Value>& entry : entries) {
    Value* existing = nullptr;
    for (auto& [key, value] : unique)
      if (ValuesEqual(entry.first, key)) existing = &value;
    if (existing != nullptr)
      *existing = std::move(entry.second);
    else
      unique.push_back(std::move(entry));
  }
  return Checked(Value::Dict(std::move(unique)));
}

NamespaceObject* JinjaContext::NewNamespace() {
  CountBytes(sizeof(NamespaceObject));
  return &namespaces_.emplace_back();
}

JinjaDepthGuard::JinjaDepthGuard(JinjaContext& context) : context_(context) {
  if (context.depth >= kMaxEvaluationDepth)
    FailExhausted("the template nests or recurses deeper than {} levels", kMaxEvaluationDepth);
  ++context.depth;
}

}  // namespace longspan::text
