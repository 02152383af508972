#include "apps/plan_report.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/bench_table.h"
#include "plan/hardware_cost.h"
#include "plan/memory_use.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

constexpr double kGb = 1e9;

std::vector<sim::Layout> Printed(const PlanReport& report) {
  const auto& all = report.found.layouts;
  return {all.begin(),
          all.begin() + static_cast<ptrdiff_t>(std::min(report.most_layouts, all.size()))};
}

std::string Name(const sim::Layout& layout) {
  return fmt::format("pp {} cp {} tp {} ep {} V {}", layout.mesh.pp, layout.mesh.cp, layout.mesh.tp,
                     layout.mesh.ep, layout.loops);
}

const char* KvName(int64_t bytes) { return bytes == 1 ? "fp8" : "bf16"; }

// As a shell takes it for one word.
std::string Quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-./,:=@%+").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<int> LayerCounts(const sim::Layout& layout) {
  std::vector<int> counts;
  for (const plan::LayerRange& range : layout.stages) counts.push_back(range.size());
  return counts;
}

ordered_json ToJson(const PlanReport& report, const sim::Layout& layout) {
  ordered_json json = {{"pp", layout.mesh.pp},
                       {"cp", layout.mesh.cp},
                       {"tp", layout.mesh.tp},
                       {"ep", layout.mesh.ep},
                       {"virtual_stages", layout.loops},
                       {"kv_cache_dtype", KvName(layout.kv_bytes)},
                       {"chunked_prefill_size", layout.chunk_tokens},
                       {"chunks", layout.chunk_ends.size()},
                       {"layers", LayerCounts(layout)},
                       {"ttft_s", layout.ttft_s},
                       {"tokens_per_s", layout.tokens_per_s},
                       {"busy_share", layout.busy_share}};
  if (report.target_ttft_s > 0) json["meets_target"] = layout.ttft_s <= report.target_ttft_s;
  json["memory"] = {
      {"weight_bytes_per_gpu", static_cast<int64_t>(layout.memory.weight_bytes)},
      {"kv_bytes_per_gpu", static_cast<int64_t>(layout.memory.kv_bytes_per_token *
                                                static_cast<double>(report.request.prompt_tokens))},
      {"workspace_bytes_per_gpu", static_cast<int64_t>(layout.memory.workspace_bytes)},
      {"kv_capacity_tokens", layout.kv_tokens}};
  json["comm_bytes"] = {{"pp", static_cast<int64_t>(layout.volume.pipeline)},
                        {"tp", static_cast<int64_t>(layout.volume.tensor)},
                        {"cp", static_cast<int64_t>(layout.volume.context)},
                        {"ep", static_cast<int64_t>(layout.volume.expert)}};
  json["command"] = ServeCommand(report, layout);
  if (const base::Status servable = CheckCommand(report, layout); !servable.ok())
    json["command_refused"] = servable.message();
  return json;
}

// Where the slowest rank's time goes, with what is not 0.
std::string PartsOf(const sim::Layout& layout) {
  const plan::StepSeconds& parts = layout.parts;
  std::vector<std::string> texts;
  const auto add = [&](const char* name, double seconds) {
    if (seconds > 0)
      texts.push_back(
          fmt::format("{} {:.3f} s ({:.0f}%)", name, seconds, 100 * seconds / layout.ttft_s));
  };
  add("attention", parts.attention);
  add("products", parts.products);
  add("memory", parts.memory);
  add("sums over TP ranks", parts.tensor);
  add("KV over CP ranks", parts.context);
  add("rows over EP ranks", parts.expert);
  add("launches", parts.launches);
  add("head", parts.head);
  add("bubble", layout.ttft_s - parts.total());
  return fmt::format("{}", fmt::join(texts, ", "));
}

// By what another layout is slower than the best one: the part that differs most.
std::string WhatItLoses(const sim::Layout& best, const sim::Layout& other) {
  const auto parts = [](const sim::Layout& layout) {
    const plan::StepSeconds& p = layout.parts;
    return std::vector<std::pair<const char*, double>>{{"attention", p.attention},
                                                       {"products", p.products},
                                                       {"memory", p.memory},
                                                       {"sums over TP ranks", p.tensor},
                                                       {"KV over CP ranks", p.context},
                                                       {"rows over EP ranks", p.expert},
                                                       {"bubble", layout.ttft_s - p.total()}};
  };
  const auto here = parts(best);
  const auto there = parts(other);
  size_t most = 0;
  for (size_t i = 1; i < here.size(); ++i)
    if (there[i].second - here[i].second > there[most].second - here[most].second) most = i;
  return fmt::format("{:+.3f} s, {:+.3f} s of it {}", other.ttft_s - best.ttft_s,
                     there[most].second - here[most].second, there[most].first);
}

bool DividesCache(const PlanReport& report, const sim::Layout& layout) {
  return layout.mesh.cp > 1 && report.request.kv_placement == plan::KvPlacement::kSharded;
}

// What a GPU receives on each axis that has ranks, with the formula (sim::VolumeOf). Once more as
// numbers of this layout, so that they can be counted again.
std::string VolumeText(const PlanReport& report, const sim::Layout& layout) {
  const spec::ModelSpec& model = report.request.model;
  const spec::Mesh& mesh = layout.mesh;
  const int64_t tokens = report.request.prompt_tokens;
  std::string text = "\nWhat a GPU receives for the prompt, on average:\n";
  const auto add = [&](const char* axis, double bytes, const std::string& formula) {
    text += fmt::format("  {}: {:.2f} GB = {}\n", axis, bytes / kGb, formula);
  };
  const std::string rows =
      mesh.cp == 1 ? fmt::format("{} rows", tokens) : fmt::format("{} / {} rows", tokens, mesh.cp);
  const std::string stream = fmt::format("{} x {} columns x 2 bytes", rows, model.hidden_size);
  const std::string layers = fmt::format("{} / {} layers", model.layers(), mesh.pp);
  if (mesh.pp > 1)
    add("pp", layout.volume.pipeline,
        fmt::format("{} x ({} x {} - 1) / {} borders", stream, mesh.pp, layout.loops, mesh.pp));
  if (mesh.tp > 1)
    add("tp", layout.volume.tensor,
        fmt::format("{} x 2 sums x 2 ({} - 1) / {} x {}", layers, mesh.tp, mesh.tp, stream));
  if (mesh.cp > 1)
    add("cp", layout.volume.context,
        fmt::format("{} x ({} - 1) / {} x {} rows x the KV bytes of a row and layer{}", layers,
                    mesh.cp, mesh.cp, tokens,
                    DividesCache(report, layout)
                        ? fmt::format(" / {}, its queries, what is found for them, and an "
                                      "indexer's queries and candidates",
                                      mesh.cp)
                        : ""));
  if (mesh.ep > 1)
    add("ep", layout.volume.expert,
        fmt::format("the layers with experts / {} x rows x the mean number of ranks that have a "
                    "row's {} experts / {} x ({} - 1) / {} x (2 x {} x 2 + 8 x {}) bytes, and "
                    "announcements",
                    mesh.pp, model.moe.experts_per_token, mesh.ep, mesh.ep, mesh.ep,
                    model.hidden_size, model.moe.experts_per_token));
  if (mesh.ranks() == 1) text += "  nothing: it is alone\n";
  return text;
}

}  // namespace

std::string ServeCommand(const PlanReport& report, const sim::Layout& layout) {
  const spec::Mesh& mesh = layout.mesh;
  const int per_node = report.request.hardware.gpus_per_node;
  const int nodes = (mesh.ranks() + per_node - 1) / per_node;
  std::string command = "longspan serve";
  if (!report.model_path.empty())
    command += fmt::format(" --model-path {}", Quoted(report.model_path));
  const auto add = [&](const char* flag, int value, int without) {
    if (value != without) command += fmt::format(" {} {}", flag, value);
  };
  add("--pp-size", mesh.pp, 1);
  add("--cp-size", mesh.cp, 1);
  add("--tp-size", mesh.tp, 1);
  add("--ep-size", mesh.ep, 1);
  if (DividesCache(report, layout)) command += " --kv-placement sharded";
  add("--virtual-stages", layout.loops, 1);
  if (mesh.pp > 1)
    command += fmt::format(" --pp-layer-partition {}", fmt::join(LayerCounts(layout), ","));
  command += fmt::format(" --chunk-policy planned --chunked-prefill-size {}", layout.chunk_tokens);
  command += fmt::format(" --mem-fraction-static {:g}", report.request.memory_fraction);
  if (layout.kv_bytes == 1) command += " --kv-cache-dtype fp8";
  if (nodes > 1)
    command += fmt::format(" --nnodes {} --node-rank R --dist-init-addr HOST:PORT", nodes);
  return command;
}

base::Status CheckCommand(const PlanReport& report, const sim::Layout& layout) {
  LONGSPAN_RETURN_IF_ERROR(sim::CheckServable(report.request, layout.mesh));
  if (layout.kv_bytes == 1)
    return base::Unimplemented("--kv-cache-dtype fp8 is not built yet: this layout is a forecast");
  return base::OkStatus();
}

ordered_json ToJson(const PlanReport& report) {
  ordered_json json = {{"layouts", ordered_json::array()}};
  for (const sim::Layout& layout : Printed(report))
    json["layouts"].push_back(ToJson(report, layout));
  json["refused"] = ordered_json::array();
  for (const sim::RefusedLayouts& refused : report.found.refused)
    json["refused"].push_back({{"why", refused.why}, {"count", refused.count}});
  return json;
}

namespace {

std::string RefusedText(const PlanReport& report) {
  std::string text = report.found.refused.empty() ? "" : "\nRefused:\n";
  for (const sim::RefusedLayouts& refused : report.found.refused)
    text += fmt::format("  {} layout{}: {}\n", refused.count, refused.count == 1 ? "" : "s",
                        refused.why);
  return text;
}

// That of the best layout; where it cannot run, why, and that of the best one that can.
std::string CommandsText(const PlanReport& report) {
  const auto& all = report.found.layouts;
  std::string text = fmt::format("\n{}\n", ServeCommand(report, all.front()));
  const base::Status status = CheckCommand(report, all.front());
  if (status.ok()) return text;
  text += fmt::format("It would be refused: {}.\n", status.message());
  const auto servable = std::find_if(all.begin(), all.end(), [&](const sim::Layout& layout) {
    return CheckCommand(report, layout).ok();
  });
  if (servable == all.end()) return text + "So would all others.\n";
  return text + fmt::format("The best one that runs takes {:.3f} s:\n{}\n", servable->ttft_s,
                            ServeCommand(report, *servable));
}

}  // namespace

std::string ToText(const PlanReport& report) {
  BenchTable table({{"pp", ""},
                    {"cp", ""},
                    {"tp", ""},
                    {"ep", ""},
                    {"V", ""},
                    {"KV", ""},
                    {"chunk", "tokens"},
                    {"TTFT", "s"},
                    {"busy", "%"},
                    {"prefill", "tok/s"},
                    {"weights", "GB/GPU"},
                    {"KV", "GB/GPU"},
                    {"received", "GB/GPU"}});
  const auto layouts = Printed(report);
  for (const sim::Layout& layout : layouts) {
    const double kv =
        layout.memory.kv_bytes_per_token * static_cast<double>(report.request.prompt_tokens) / kGb;
    const double received = (layout.volume.pipeline + layout.volume.tensor + layout.volume.context +
                             layout.volume.expert) /
                            kGb;
    const bool slow = report.target_ttft_s > 0 && layout.ttft_s > report.target_ttft_s;
    table.AddRow(
        {fmt::format("{}", layout.mesh.pp), fmt::format("{}", layout.mesh.cp),
         fmt::format("{}", layout.mesh.tp), fmt::format("{}", layout.mesh.ep),
         fmt::format("{}", layout.loops), KvName(layout.kv_bytes),
         WithThousands(static_cast<double>(layout.chunk_tokens)),
         fmt::format("{:.3f}", layout.ttft_s), fmt::format("{:.1f}", 100 * layout.busy_share),
         WithThousands(layout.tokens_per_s),
         fmt::format("{:.1f}", layout.memory.weight_bytes / kGb), fmt::format("{:.1f}", kv),
         fmt::format("{:.1f}", received)},
        slow ? "above the target" : "");
  }
  std::string text = table.ToText();
  if (report.target_ttft_s > 0 && layouts.front().ttft_s > report.target_ttft_s)
    text +=
        fmt::format("No layout of {} GPUs meets --target-ttft {:g}: the best one takes {:.3f} s.\n",
                    report.request.gpus, report.target_ttft_s, layouts.front().ttft_s);
  return text + RefusedText(report) + CommandsText(report);
}

std::string Explain(const PlanReport& report) {
  const auto layouts = Printed(report);
  const sim::Layout& best = layouts.front();
  std::string text;
  const auto add = [&text]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  };
  add("\nThe best layout, {}: the slowest rank's {:.3f} s are {}.\n", Name(best), best.ttft_s,
      PartsOf(best));
  const plan::HardwareCost cost(
      {.model = report.request.model,
       .mesh = best.mesh,
       .hardware = report.request.hardware,
       .precision = {.fp8_weights = report.request.fp8_weights, .kv_bytes = best.kv_bytes},
       .kv_placement = report.request.kv_placement,
       .node_link = report.request.node_link});
  const int64_t middle = report.request.prompt_tokens / 2;
  const int64_t rows = std::min<int64_t>(4096, std::max<int64_t>(1, middle));
  const plan::RowRange slice = {middle, middle + rows};
  add("\nLayers, by their time for {} tokens behind {}: every stage should take as long, "
      "as far as its memory reaches.\n",
      rows, middle);
  for (size_t stage = 0; stage < best.stages.size(); ++stage) {
    const plan::LayerRange range = best.stages[stage];
    const plan::MemoryUse use = plan::MemoryOfRank(cost.deployment(), {&range, 1}, 0);
    add("  rank {} loop {}: layers {} to {} ({}), {:.2f} ms, weights of {:.2f} GB, KV cache of "
        "{:.2f} GB for the prompt\n",
        stage % static_cast<size_t>(best.mesh.pp), stage / static_cast<size_t>(best.mesh.pp),
        range.begin, range.end - 1, range.size(), 1e3 * cost.Seconds(range, {&slice, 1}, 0),
        use.weight_bytes / kGb,
        use.kv_bytes_per_token * static_cast<double>(report.request.prompt_tokens) / kGb);
  }
  add("\nIts {} chunks begin with {} tokens and end with {}: the longest one takes {:.3f} s of "
      "{:.3f} s, and each of the other {} ranks waits that long for the last one{}.\n",
      best.chunk_ends.size(), best.chunk_ends.front(),
      best.chunk_ends.back() -
          (best.chunk_ends.size() > 1 ? best.chunk_ends[best.chunk_ends.size() - 2] : 0),
      best.longest_chunk_s, best.ttft_s, best.mesh.pp - 1,
      best.loops > 1 ? fmt::format(", divided by {} loops", best.loops) : "");
  text += VolumeText(report, best);
  if (layouts.size() > 1) add("\nWhat the next ones lose:\n");
  for (size_t i = 1; i < layouts.size(); ++i)
    add("  {} KV {}: {}\n", Name(layouts[i]), KvName(layouts[i].kv_bytes),
        WhatItLoses(best, layouts[i]));
  return text;
}

}  // namespace longspan::apps
