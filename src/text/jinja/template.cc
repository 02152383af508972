#include "text/jinja/template.h"

#include <new>

#include "text/jinja/context.h"
#include "text/jinja/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"

namespace longspan::text {
namespace {

base::Status ToStatus(const JinjaError& error, int line) {
  // raise_exception speaks to the user in the words of the template's author.
  if (error.by_template && !error.message.empty()) return {error.code, error.message};
  return {error.code, fmt::format("chat template, line {}: {}", line, error.message)};
}

base::Status OutOfMemory() {
  return base::ResourceExhausted("no memory is left to render the chat template");
}

}  // namespace

base::Result<std::shared_ptr<const JinjaTemplate>> JinjaTemplate::Parse(std::string_view source) {
  try {
    auto parsed = std::shared_ptr<JinjaTemplate>(new JinjaTemplate());
    parsed->statements_ = ParseTemplate(source);
    return std::shared_ptr<const JinjaTemplate>(std::move(parsed));
  } catch (const JinjaError& error) {
    return ToStatus(error, error.line);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

base::Result<std::string> JinjaTemplate::Render(const Variables& variables,
                                                const JinjaBounds& bounds) const {
  JinjaContext context(bounds);
  try {
    JinjaEvaluator evaluator(&context);
    for (const auto& [name, value] : variables) evaluator.Define(name, Value::FromJson(*value));
    return evaluator.Run(statements_);
  } catch (const JinjaError& error) {
    return ToStatus(error, context.line);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

}  // namespace longspan::text
