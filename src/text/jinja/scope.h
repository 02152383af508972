// The variables that a statement sees: a chain from the innermost block to those of the request.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/context.h"

namespace longspan::text {

struct JinjaScope {
  Value* FindHere(std::string_view name);
  void Set(std::string_view name, Value value);

  JinjaScope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>>
      variables;          // names belong to the template or request
  bool captured = false;  // a macro refers to it, which may be called after its block has ended
};

// The scopes of one rendering.
class JinjaScopes {
 public:
  explicit JinjaScopes(JinjaContext* context);

  JinjaScope* current() const { return current_; }
  // Null when no scope has it.
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
  // Keeps the current scope and those around it until the end of the rendering.
  JinjaScope* Capture();

  // A new current scope inside `parent` while it lives.
  class Frame {
   public:
    Frame(JinjaScopes* scopes, JinjaScope* parent);
    explicit Frame(JinjaScopes* scopes) : Frame(scopes, scopes->current()) {}
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    JinjaScopes* scopes_;
    JinjaScope* previous_;
    std::unique_ptr<JinjaScope> scope_;
  };

 private:
  JinjaContext* context_;
  JinjaScope root_;
  JinjaScope* current_ = &root_;
  std::vector<std::unique_ptr<JinjaScope>> kept_;
};

}  // namespace longspan::text
