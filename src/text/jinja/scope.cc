#include "text/jinja/scope.h"

namespace longspan::text {

// What a scope that is kept is charged with, so that the bound on work bounds their memory, too.
constexpr uint64_t kKeptScopeBytes = 1024;

Value* JinjaScope::FindHere(std::string_view name) {
  for (auto& [key, value] : variables)
    if (key == name) return &value;
  return nullptr;
}

void JinjaScope::Set(std::string_view name, Value value) {
  if (Value* existing = FindHere(name))
    *existing = std::move(value);
  else
    variables.emplace_back(name, std::move(value));
}

JinjaScopes::JinjaScopes(JinjaContext* context) : context_(context) {}

const Value* JinjaScopes::Find(std::string_view name) const {
  for (JinjaScope* scope = current_; scope != nullptr; scope = scope->parent) {
    context_->CountSearch(scope->variables.size());
    if (const Value* found = scope->FindHere(name)) return found;
  }
  return nullptr;
}

void JinjaScopes::Set(std::string_view name, Value value) {
  context_->CountSearch(current_->variables.size());
  current_->Set(name, std::move(value));
}

JinjaScope* JinjaScopes::Capture() {
  for (JinjaScope* scope = current_; scope != nullptr && !scope->captured; scope = scope->parent) {
    context_->CountBytes(kKeptScopeBytes);
    scope->captured = true;
  }
  return current_;
}

JinjaScopes::Frame::Frame(JinjaScopes* scopes, JinjaScope* parent)
    : scopes_(scopes), previous_(scopes->current_), scope_(std::make_unique<JinjaScope>()) {
  scope_->parent = parent;
  scopes_->current_ = scope_.get();
}

JinjaScopes::Frame::~Frame() {
  scopes_->current_ = previous_;
  if (scope_->captured) scopes_->kept_.push_back(std::move(scope_));
}

}  // namespace longspan::text
