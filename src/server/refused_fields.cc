#include "server/refused_fields.h"

namespace longspan::server {
namespace {

constexpr RefusedField kOpenAi[] = {{"response_format", R"({"type": "text"})"},
                                    {"guided_json"},
                                    {"guided_regex"},
                                    {"guided_choice"},
                                    {"guided_grammar"},
                                    {"json_schema"},
                                    {"regex"},
                                    {"ebnf"},
                                    {"structural_tag"},
                                    {"structured_outputs"},
                                    {"lora_path"},
                                    {"session_params"},
                                    {"truncate_prompt_tokens"},
                                    {"prompt_logprobs"},
                                    {"logits_processors"},
                                    {"custom_logit_processor"},
                                    {"bad_words"},
                                    {"allowed_token_ids"},
                                    {"prediction"},
                                    {"data_parallel_rank"},
                                    {"bootstrap_host"},
                                    {"bootstrap_room"},
                                    {"use_beam_search", "false"},
                                    {"return_hidden_states", "false"},
                                    {"return_token_ids", "false"},
                                    {"return_tokens_as_token_ids", "false"},
                                    {"store", "false"},
                                    {"background", "false"},
                                    {"min_tokens", "0"},
                                    {"min_new_tokens", "0"},
                                    {"length_penalty", "1.0"}};

constexpr RefusedField kCompletions[] = {{"suffix", "\"\""}, {"prompt_embeds"}};

constexpr RefusedField kChat[] = {{"echo", "false"},
                                  {"continue_final_message", "false"},
                                  {"chat_template"},
                                  {"documents"},
                                  {"functions"},
                                  {"audio"},
                                  {"modalities", R"(["text"])"},
                                  {"web_search_options"}};

constexpr RefusedField kGenerate[] = {{"input_embeds"},
                                      {"image_data"},
                                      {"audio_data"},
                                      {"video_data"},
                                      {"lora_path"},
                                      {"session_params"},
                                      {"token_ids_logprob"},
                                      {"custom_logit_processor"},
                                      {"bootstrap_host"},
                                      {"bootstrap_room"},
                                      {"return_prompt_token_ids", "false"},
                                      {"return_hidden_states", "false"},
                                      {"return_routed_experts", "false"},
                                      {"background", "false"}};

constexpr RefusedField kSamplingParams[] = {{"json_schema"},
                                            {"regex"},
                                            {"ebnf"},
                                            {"structural_tag"},
                                            {"custom_params"},
                                            {"stop_regex"},
                                            {"thinking_budget"},
                                            {"min_new_tokens", "0"}};

}  // namespace

std::span<const RefusedField> RefusedOfOpenAi() { return kOpenAi; }
std::span<const RefusedField> RefusedOfCompletions() { return kCompletions; }
std::span<const RefusedField> RefusedOfChat() { return kChat; }
std::span<const RefusedField> RefusedOfGenerate() { return kGenerate; }
std::span<const RefusedField> RefusedOfSamplingParams() { return kSamplingParams; }

void RefuseAll(std::span<const RefusedField> refused, Fields& fields) {
  for (const RefusedField& field : refused) fields.Refuse(field.name, field.neutral);
}

}  // namespace longspan::server
