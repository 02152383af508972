// A parsed Jinja2 template: the engine's front, where its exceptions end.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/context.h"

namespace longspan::text {

// Immutable; any number of threads may render at once.
class JinjaTemplate {
 public:
  // Variables by name. Later ones win. Not owned.
  using Variables = std::vector<std::pair<std::string_view, const nlohmann::ordered_json*>>;

  // InvalidArgument for errors of syntax, Unimplemented for constructs that the engine lacks,
  // ResourceExhausted for templates beyond its bounds; each names the line.
  static base::Result<std::shared_ptr<const JinjaTemplate>> Parse(std::string_view source);

  // The text; the errors of ChatTemplate::Render.
  base::Result<std::string> Render(const Variables& variables,
                                   const JinjaBounds& bounds = JinjaBounds()) const;

 private:
  JinjaTemplate() = default;
  Statements statements_;
};

}  // namespace longspan::text
