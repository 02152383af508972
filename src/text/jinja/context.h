// What one rendering owns: its bounds on work and memory, and the values that can refer to
// themselves.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace longspan::text {

// Bounds of one rendering. They are far above what chat templates need for a prompt of a million
// tokens, and end a hostile template within seconds.
struct JinjaBounds {
  uint64_t steps = 10'000'000;               // statements and expressions evaluated
  uint64_t work_bytes = uint64_t{1} << 30;   // bytes looked at or written
  uint64_t value_bytes = uint64_t{1} << 28;  // one string or container, in memory and printed
};
constexpr int kMaxEvaluationDepth = 600;  // nested expressions, statements and calls
constexpr Integer kMaxRange = 100'000;    // range(), as in Jinja2's sandbox

// Used by one thread. Values of the rendering must not outlive it.
class JinjaContext {
 public:
  explicit JinjaContext(const JinjaBounds& bounds) : bounds_(bounds) {}
  JinjaContext(const JinjaContext&) = delete;
  JinjaContext& operator=(const JinjaContext&) = delete;

  // Both throw JinjaError when the bound is exceeded.
  void CountStep();
  void CountBytes(uint64_t bytes);
  // A search among `count` names; short ones are part of their step.
  void CountSearch(size_t count) {
    if (count > 64) CountBytes(count * 16);
  }

  // Values that a template makes, counted and bounded in size and depth.
  Value String(std::string text);
  Value List(std::vector<Value> items);
  Value Sequence(ValueKind kind, std::vector<Value> items);
  Value Iterator(std::vector<Value> items);
  // The last of equal keys wins and keeps the place of the first.
  Value Dict(std::vector<std::pair<Value, Value>> entries);
  NamespaceObject* NewNamespace();

  // A bound-checked size for a string or list of `count` times `size` elements.
  void CheckSize(Integer count, uint64_t size) const;

  int line = 0;   // of the template, for messages
  int depth = 0;  // of the evaluation

 private:
  Value Checked(Value value);

  const JinjaBounds bounds_;
  uint64_t steps_ = 0;
  uint64_t bytes_ = 0;
  std::deque<NamespaceObject> namespaces_;
};

// Counts one level of nested evaluation while it lives.
class JinjaDepthGuard {
 public:
  explicit JinjaDepthGuard(JinjaContext& context);
  ~JinjaDepthGuard() { --context_.depth; }
  JinjaDepthGuard(const JinjaDepthGuard&) = delete;
  JinjaDepthGuard& operator=(const JinjaDepthGuard&) = delete;

 private:
  JinjaContext& context_;
};

}  // namespace longspan::text
