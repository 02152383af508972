#include "tests/engine/timed_engine.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>

#include "apps/wiring.h"
#include "base/check.h"
#include "plan/layer_split.h"
#include "runtime/stage_group.h"

namespace longspan::testing {
namespace {

// The smallest model that a rank loads; the backend does not look at it.
constexpr const char* kConfig =
    R"({{"architectures": ["LlamaForCausalLM"], "vocab_size": {}, "hidden_size": 4,
        "intermediate_size": 4, "num_hidden_layers": {}, "num_attention_heads": 1, "head_dim": 4,
        "max_position_embeddings": {}, "rms_norm_eps": 1e-5, "rope_theta": 1000.0}})";

// A folder with nothing but a config.json, removed at the end.
class ModelFolder {
 public:
  explicit ModelFolder(const TimedLayout& layout) {
    std::string path = std::filesystem::temp_directory_path() / "longspan_timed_XXXXXX";
    LONGSPAN_CHECK(mkdtemp(path.data()) != nullptr, "cannot make {}", path);
    path_ = path;
    std::ofstream(path_ / "config.json")
        << fmt::format(kConfig, kTimedVocab, layout.layers, layout.max_context);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Writes down what the ranks of another group get.
class RecordingGroup : public runtime::StageGroup {
 public:
  RecordingGroup(std::unique_ptr<runtime::StageGroup> ranks, std::string& plans)
      : StageGroup(ranks->mesh(), ranks->loops()), ranks_(std::move(ranks)), plans_(plans) {
    info_ = ranks_->info();
  }
  base::Status Submit(const plan::StepPlan& plan) override {
    plans_ += plan::ToText(plan);
    return ranks_->Submit(plan);
  }
  base::Result<plan::StepResult> Next() override { return ranks_->Next(); }

 private:
  std::unique_ptr<runtime::StageGroup> ranks_;
  std::string& plans_;
};

}  // namespace

std::unique_ptr<engine::Engine> StartTimed(const TimedLayout& layout) {
  const ModelFolder folder(layout);
  const std::vector<double> costs(layout.layers, 1.0);
  const plan::PipelineShape shape = {layout.stages, layout.virtual_stages};
  const auto split = plan::SplitLayers(costs, shape);
  LONGSPAN_CHECK(split.ok(), "{}", split.status().message());
  std::vector<runtime::RankConfig> configs;
  for (int stage = 0; stage < layout.stages; ++stage)
    configs.push_back({.model_dir = folder.path(),
                       .load_format = runtime::LoadFormat::kDummy,
                       .backend = "timed",
                       .mesh = {.pp = layout.stages},
                       .rank = stage,
                       .ranges = plan::RangesOfRank(*split, layout.stages, stage),
                       .max_rows = layout.scheduler.chunk_tokens + layout.scheduler.max_running,
                       .max_slices = 2 * layout.scheduler.max_running,
                       .max_context = layout.max_context});
  // Every rank's thread keeps it until it ends.
  const std::shared_ptr<const ops::Backend> backend =
      support::CreateTimedBackend(layout.cost, layout.token);
  auto ranks = apps::StartRankThreads(
      {.mesh = {.pp = layout.stages}, .loops = layout.virtual_stages},
      [backend](std::string_view) -> base::Result<const ops::Backend*> { return backend.get(); });
  LONGSPAN_CHECK(ranks.ok(), "{}", ranks.status().message());
  auto group = runtime::StageGroup::BringUp(std::move(*ranks), configs,
                                            {.max_total_tokens = layout.max_total_tokens});
  LONGSPAN_CHECK(group.ok(), "{}", group.status().message());
  std::unique_ptr<runtime::StageGroup> ranks_of = std::move(*group);
  if (layout.plans != nullptr)
    ranks_of = std::make_unique<RecordingGroup>(std::move(ranks_of), *layout.plans);
  return std::make_unique<engine::Engine>(
      std::move(ranks_of), engine::EngineOptions{.scheduler = layout.scheduler,
                                                 .vocab_size = kTimedVocab,
                                                 .context_length = layout.max_context});
}

}  // namespace longspan::testing
