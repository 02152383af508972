#include "base/check.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "text/chat_template.h"
#include "text/jinja/template.h"

namespace longspan::testing {
namespace {

// Of a rendering; those of the program let a hostile template work for seconds.
constexpr text::JinjaBounds kBounds = {
    .steps = 3000, .work_bytes = 1U << 17, .value_bytes = 1U << 16};
// What is rendered where the input holds no JSON of its own.
constexpr std::string_view kConversation =
    R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"n":[1,2.5,true]}],"tools":[]})";

}  // namespace

void FuzzChatTemplate(FuzzInput input) {
  const std::string_view text = AsText(input);
  const size_t end = text.find('\0');
  const std::string_view source = text.substr(0, end);
  const std::string_view json =
      end == std::string_view::npos ? kConversation : text.substr(end + 1);
  const auto parsed = text::JinjaTemplate::Parse(source);
  const auto request = text::ParseChatRequest(json);
  LONGSPAN_CHECK(parsed.ok() || !parsed.status().message().empty(), "an error without a sentence");
  LONGSPAN_CHECK(request.ok() || !request.status().message().empty(),
                 "an error without a sentence");
  if (!parsed.ok() || !request.ok()) return;
  const nlohmann::ordered_json prompt = request->add_generation_prompt;
  text::JinjaTemplate::Variables variables = {{"messages", &request->messages},
                                              {"tools", &request->tools},
                                              {"add_generation_prompt", &prompt}};
  for (const auto& [name, value] : request->kwargs.items()) variables.emplace_back(name, &value);
  const auto rendered = (*parsed)->Render(variables, kBounds);
  if (rendered.ok()) {
    LONGSPAN_CHECK(rendered->size() <= kBounds.work_bytes, "{} bytes", rendered->size());
    const auto again = (*parsed)->Render(variables, kBounds);
    LONGSPAN_CHECK(again.ok(), "the second rendering fails: {}", again.status().message());
  } else {
    LONGSPAN_CHECK(!rendered.status().message().empty(), "an error without a sentence");
  }
}

}  // namespace longspan::testing
