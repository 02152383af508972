#include "tests/engine/indexer_tap.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>

#include "apps/wiring.h"
#include "base/check.h"
#include "model/architecture.h"
#include "runtime/stage_group.h"
#include "tests/support/forwarding_backend.h"

namespace longspan::testing {
namespace {

using tensor::ConstView;
using tensor::DType;

constexpr int kPageSize = 64;

// The run that is going on. An op is a function without state, so this is one.
struct Recording {
  ops::IndexSelectOp index_select = nullptr;
  ops::RopeTableOp rope_table = nullptr;
  ops::IndexMergeOp index_merge = nullptr;
  const Selections* prescribed = nullptr;
  int64_t length = 0;               // of the prompt
  std::vector<const void*> caches;  // of index keys, by layer: each layer has its own
  std::vector<IndexerRun> last;
  std::mutex mutex;  // of what several ranks write to
  Selections selections;
};
Recording& Active() {
  static Recording recording;
  return recording;
}

// Of host memory that lies densely.
std::vector<float> Widened(const void* values, DType type, int64_t count) {
  const auto* wide = static_cast<const float*>(values);
  if (type == DType::kF32) return {wide, wide + count};
  const auto* narrow = static_cast<const tensor::Bf16*>(values);
  std::vector<float> widened(count);
  std::transform(narrow, narrow + count, widened.begin(),
                 [](tensor::Bf16 value) { return tensor::ToFloat(value); });
  return widened;
}

const void* RowOf(const ConstView& view, int64_t row) {
  return static_cast<const char*>(view.raw()) + row * view.stride(0) * tensor::SizeOf(view.dtype());
}

// What the indexer was given for the last row of a step.
IndexerRun RecordLast(const ops::IndexSelectArgs& args, int64_t length) {
  const int64_t row = args.tables.rows - 1;
  IndexerRun run = {
      .heads = args.queries.size(1), .dim = args.queries.size(2), .scale = args.scale};
  for (int64_t head = 0; head < run.heads; ++head) {
    const auto* query = static_cast<const char*>(RowOf(args.queries, row)) +
                        head * args.queries.stride(1) * tensor::SizeOf(args.queries.dtype());
    const auto values = Widened(query, args.queries.dtype(), run.dim);
    run.queries.insert(run.queries.end(), values.begin(), values.end());
  }
  run.head_weights = Widened(RowOf(args.head_weights, row), args.head_weights.dtype(), run.heads);
  const ConstView& cache = args.index_cache;
  for (int64_t position = 0; position < length; ++position) {
    const int64_t page = args.tables.page_table.row<int32_t>(0)[position / kPageSize];
    const auto* key = static_cast<const char*>(RowOf(cache, page)) +
                      position % kPageSize * cache.stride(2) * tensor::SizeOf(cache.dtype());
    const auto values = Widened(key, cache.dtype(), run.dim);
    run.keys.insert(run.keys.end(), values.begin(), values.end());
  }
  return run;
}

void SelectAndRecord(tensor::ExecutionContext& context, const ops::IndexSelectArgs& args) {
  Recording& recording = Active();
  recording.index_select(context, args);
  // Layers come in order, all of them before any comes again.
  const auto known =
      std::find(recording.caches.begin(), recording.caches.end(), args.index_cache.raw());
  const size_t layer = known - recording.caches.begin();
  if (known == recording.caches.end()) recording.caches.push_back(args.index_cache.raw());
  for (int64_t row = 0; row < args.tables.rows; ++row) {
    const int64_t position = args.tables.positions.data<int32_t>()[row];
    auto* selected = args.selected.row<int32_t>(row);
    auto* end = selected + args.selected.size(1);
    recording.selections[layer][position].assign(selected, std::find(selected, end, -1));
    if (position == recording.length - 1) {
      recording.last[layer] = RecordLast(args, recording.length);
    }
    if (recording.prescribed == nullptr) continue;
    const auto& prescribed = (*recording.prescribed)[layer][position];
    std::fill(std::copy(prescribed.begin(), prescribed.end(), selected), end, -1);
  }
}

// Where ranks that divide the cache are threads: the step of the one that this is.
struct StepOfThread {
  std::vector<int32_t> positions;
  size_t next_layer = 0;
};
StepOfThread& OwnStep() {
  static thread_local StepOfThread step;
  return step;
}

// The first op of every step.
void NoteRows(tensor::ExecutionContext& context, const ops::RopeTableArgs& args) {
  Active().rope_table(context, args);
  const auto* positions = args.positions.data<int32_t>();
  OwnStep() = {{positions, positions + args.cosines.size(0)}};
}

// All layers of a step merge, or none.
void MergeAndRecord(tensor::ExecutionContext& context, const ops::IndexMergeArgs& args) {
  Recording& recording = Active();
  recording.index_merge(context, args);
  StepOfThread& step = OwnStep();
  const size_t layer = step.next_layer++;
  const int64_t parts = args.scores.size(0);
  const int64_t rows = args.scores.size(1);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int32_t> selected;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t place = part * rows + row;
      const int32_t* candidates = args.positions.data<int32_t>() + place * args.scores.size(2);
      selected.insert(selected.end(), candidates, candidates + args.counts.data<int32_t>()[place]);
    }
    std::sort(selected.begin(), selected.end());
    const std::lock_guard lock(recording.mutex);
    recording.selections[layer][step.positions[row]] = std::move(selected);
  }
}

class ListeningBackend : public support::ForwardingBackend {
 public:
  explicit ListeningBackend(const ops::Backend& backend) : ForwardingBackend(backend) {
    changed_ops().index_select = SelectAndRecord;
    changed_ops().rope_table = NoteRows;
    changed_ops().index_merge = MergeAndRecord;
  }
};

std::unique_ptr<engine::Engine> StartOver(const ops::Backend& backend, runtime::RankConfig config,
                                          int vocab_size) {
  config.watchdog_timeout_ms = 3'600'000;  // slow under the sanitizers
  auto ranks = apps::StartRankThreads(
      {.mesh = config.mesh},
      [&backend](std::string_view) -> base::Result<const ops::Backend*> { return &backend; });
  LONGSPAN_CHECK(ranks.ok(), "{}", ranks.status().message());
  std::vector<runtime::RankConfig> configs(ranks->size(), config);
  for (size_t rank = 0; rank < configs.size(); ++rank)
    configs[rank].rank = static_cast<int32_t>(rank);
  auto group = runtime::StageGroup::BringUp(std::move(*ranks), configs,
                                            {.max_total_tokens = config.max_context});
  LONGSPAN_CHECK(group.ok(), "{}", group.status().message());
  return std::make_unique<engine::Engine>(
      std::move(group).value(),
      engine::EngineOptions{.scheduler = {.chunk_tokens = config.max_rows, .max_running = 1},
                            .vocab_size = vocab_size,
                            .context_length = config.max_context});
}

}  // namespace

std::vector<double> IndexerRun::Scores() const {
  std::vector<double> scores(positions());
  for (int64_t position = 0; position < positions(); ++position)
    for (int64_t head = 0; head < heads; ++head)
      scores[position] +=
          double{head_weights[head]} *
          std::max(0.0, double{scale} *
                            std::inner_product(query(head), query(head) + dim, key(position), 0.0));
  return scores;
}

TappedRun RunTapped(const TapOptions& options, const std::vector<int32_t>& ids,
                    std::vector<int64_t> positions) {
  const spec::ModelSpec spec = model::LoadModelSpec(options.model).value();
  const ops::Backend& backend = *apps::FindBackend(options.backend).value();
  const ListeningBackend listening(backend);
  const auto length = static_cast<int64_t>(ids.size());
  Recording& recording = Active();
  recording.index_select = backend.ops().index_select;
  recording.rope_table = backend.ops().rope_table;
  recording.index_merge = backend.ops().index_merge;
  recording.prescribed = options.prescribed;
  recording.length = length;
  recording.caches.clear();
  recording.last.assign(spec.layers(), {});
  recording.selections.assign(spec.layers(), Selections::value_type(length));
  const auto engine = StartOver(
      listening,
      {.model_dir = options.model.string(),
       .load_format = options.dummy ? runtime::LoadFormat::kDummy : runtime::LoadFormat::kAuto,
       .backend = options.backend,
       .threads = 2,
       .compute = options.dtype,
       .kv_cache = options.dtype,
       .mesh = {.cp = options.context_ranks},
       .kv_placement =
           options.context_ranks > 1 ? plan::KvPlacement::kSharded : plan::KvPlacement::kReplicated,
       .ranges = {{0, spec.layers()}},
       .page_size = kPageSize,
       .max_rows = options.chunk_tokens,
       .max_slices = 2,
       .max_context = length + kPageSize},
      spec.vocab_size);
  Scores scores = Score(*engine, ids, std::move(positions));
  for (int layer = 0; layer < spec.layers(); ++layer) {
    for (int64_t position = 0; position < length; ++position) {
      auto& selected = recording.selections[layer][position];
      if (!selected.empty()) continue;
      selected.resize(position + 1);
      std::iota(selected.begin(), selected.end(), 0);
    }
    recording.last[layer].selected = recording.selections[layer].back();
  }
  return {std::move(scores), std::move(recording.last), std::move(recording.selections)};
}

}  // namespace longspan::testing
