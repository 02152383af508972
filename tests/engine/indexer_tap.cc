#include "tests/engine/indexer_tap.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "apps/wiring.h"
#include "base/check.h"
#include "comm/in_process/in_process.h"
#include "model/architecture.h"
#include "runtime/rank_handle.h"
#include "runtime/stage_group.h"

namespace longspan::testing {
namespace {

using tensor::ConstView;
using tensor::DType;

constexpr int kPageSize = 64;

// The run that is going on. An op is a function without state, so this is one.
struct Recording {
  ops::IndexSelectOp index_select = nullptr;
  const Selections* prescribed = nullptr;
  int64_t length = 0;               // of the prompt
  std::vector<const void*> caches;  // of index keys, by layer: each layer has its own
  std::vector<IndexerRun> last;
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

// A backend that is another one but for index_select.
class ListeningBackend : public ops::Backend {
 public:
  explicit ListeningBackend(const ops::Backend& backend) : backend_(backend), ops_(backend.ops()) {
    ops_.index_select = SelectAndRecord;
  }

  std::string_view name() const override { return backend_.name(); }
  const ops::OpTable& ops() const override { return ops_; }
  base::Status CheckTypes(DType compute, DType kv_cache) const override {
    return backend_.CheckTypes(compute, kv_cache);
  }
  base::Result<std::unique_ptr<tensor::Queue>> CreateQueue(
      const ops::QueueOptions& options) const override {
    return backend_.CreateQueue(options);
  }
  base::Result<tensor::Buffer> Allocate(int64_t bytes) const override {
    return backend_.Allocate(bytes);
  }
  int64_t AvailableBytes() const override { return backend_.AvailableBytes(); }
  int64_t WorkspaceBytes(const tensor::Queue& queue,
                         const ops::WorkspaceShape& shape) const override {
    return backend_.WorkspaceBytes(queue, shape);
  }
  base::Result<std::unique_ptr<ops::PackedWeight>> Pack(
      const ops::PackRequest& request) const override {
    return backend_.Pack(request);
  }
  base::Status Upload(tensor::Queue& queue, std::span<const std::byte> host,
                      tensor::View device) const override {
    return backend_.Upload(queue, host, device);
  }
  base::Status Download(tensor::Queue& queue, ConstView device,
                        std::span<std::byte> host) const override {
    return backend_.Download(queue, device, host);
  }

 private:
  const ops::Backend& backend_;
  ops::OpTable ops_;
};

std::unique_ptr<engine::Engine> StartOver(const ops::Backend& backend, runtime::RankConfig config,
                                          int vocab_size) {
  config.watchdog_timeout_ms = 3'600'000;  // slow under the sanitizers
  auto [leader, channel] = comm::CreateInProcessChannelPair();
  runtime::RankLinks links;
  links.leader = std::move(channel);
  std::vector<std::unique_ptr<runtime::RankHandle>> ranks;
  ranks.push_back(runtime::StartRankThread(
      std::move(leader), std::move(links),
      [&backend](std::string_view) -> base::Result<const ops::Backend*> { return &backend; }));
  const std::vector<runtime::RankConfig> configs = {config};
  auto group = runtime::StageGroup::BringUp(std::move(ranks), configs,
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
  recording = {.index_select = backend.ops().index_select,
               .prescribed = options.prescribed,
               .length = length,
               .last = std::vector<IndexerRun>(spec.layers()),
               .selections = Selections(spec.layers(), Selections::value_type(length))};
  const auto engine = StartOver(
      listening,
      {.model_dir = options.model.string(),
       .load_format = options.dummy ? runtime::LoadFormat::kDummy : runtime::LoadFormat::kAuto,
       .backend = options.backend,
       .threads = 2,
       .compute = options.dtype,
       .kv_cache = options.dtype,
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
