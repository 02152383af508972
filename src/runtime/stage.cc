#include "runtime/stage.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/mix_bits.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dummy.h"
#include "kv/page_pool.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "runtime/host_copy.h"

namespace longspan::runtime {
namespace {

using tensor::DType;

base::Result<std::unique_ptr<checkpoint::WeightSource>> OpenWeights(const RankConfig& config) {
  if (config.load_format == LoadFormat::kDummy)
    return checkpoint::MakeDummySource(config.dummy_seed);
  return checkpoint::OpenCheckpoint(config.model_dir);
}

// `model` is the rank's share, `vocab_size` the whole vocabulary.
ops::WorkspaceShape WorkspaceShapeOf(const spec::ModelSpec& model, const RankConfig& config,
                                     int64_t vocab_size) {
  const int64_t query_size = int64_t{model.attention.heads} * model.attention.head_dim;
  const int64_t shared_size = int64_t{model.moe.shared_experts} * model.moe.intermediate_size;
  ops::WorkspaceShape shape = {
      .rows = config.shares_cache() ? config.max_rows : config.max_own_rows(),
      .logit_rows = std::min(config.max_rows, Sampler::kBlockRows),
      .vocab_size = vocab_size,
      .heads = model.attention.heads,
      .kv_heads = model.attention.kv_heads,
      .head_dim = model.attention.head_dim,
      .page_size = config.page_size,
      .max_columns = std::max<int64_t>({model.hidden_size, model.intermediate_size, query_size,
                                        model.moe.intermediate_size, shared_size}),
      .experts = model.moe.experts,
      .experts_per_token = model.moe.experts_per_token,
  };
  if (model.latent_attention) {
    const spec::LatentAttentionSpec& latent = *model.latent_attention;
    shape.heads = latent.heads;
    shape.latent_rank = latent.latent_rank;
    shape.latent_rope_dim = latent.rope_dim;
    shape.latent_nope_dim = latent.nope_dim;
    shape.latent_value_dim = latent.value_dim;
    shape.max_columns =
        std::max<int64_t>({shape.max_columns, latent.query_rank, latent.latent_rank,
                           latent.nope_dim, int64_t{latent.heads} * latent.value_dim});
  }
  if (model.indexer) {
    shape.index_heads = model.indexer->heads;
    shape.index_dim = model.indexer->head_dim;
    shape.index_top_k = model.indexer->top_k;
  }
  return shape;
}

// A device of its own memory is asked before the first weight is read; a host's ranks share its
// memory, and the leader has asked for all of them.
base::Status CheckWeightsFit(const RankConfig& config, const ops::Backend& backend,
                             const spec::ModelSpec& model, const model::StagePart& part) {
  if (backend.is_on_host()) return base::OkStatus();
  const int64_t needed = model::Parameters(model, part) * tensor::SizeOf(config.compute);
  const int64_t available = backend.AvailableBytes();
  constexpr double kGib = 1 << 30;
  if (needed > available)
    return base::ResourceExhausted(
        "the weights of stage {} need {:.1f} GiB as {} and GPU {} has {:.1f} GiB free: use more "
        "stages (--pp-size) or ranks of a stage (--tp-size), or a smaller model",
        config.stage(), static_cast<double>(needed) / kGib, tensor::DTypeName(config.compute),
        config.device, static_cast<double>(available) / kGib);
  return base::OkStatus();
}

bool IsStaged(const std::unique_ptr<comm::Link>& link) {
  return link != nullptr && !link->takes_device_memory();
}

}  // namespace

base::Result<std::unique_ptr<Stage>> Stage::Load(const RankConfig& config,
                                                 const ops::Backend& backend,
                                                 const RankLinks& links,
                                                 const model::StageModel::Progress& progress) {
  std::unique_ptr<Stage> stage(new Stage(config, backend, links));
  LONGSPAN_RETURN_IF_ERROR(backend.CheckTypes(config.compute, config.kv_cache));
  if (config.loops() > 1 && (links.previous == nullptr || links.next == nullptr))
    return base::InvalidArgument("looped stages need links in a ring");
  LONGSPAN_ASSIGN_OR_RETURN(stage->whole_model_, model::LoadModelSpec(config.model_dir));
  LONGSPAN_RETURN_IF_ERROR(plan::CheckTensorShares(stage->whole_model_, config.mesh.tp));
  LONGSPAN_RETURN_IF_ERROR(plan::CheckExpertShares(stage->whole_model_, config.mesh));
  stage->share_ = plan::ShareOf(stage->whole_model_, config.mesh.tp);
  const spec::ModelSpec& model = stage->share_;
  const model::StagePart part = {config.ranges,         config.first(),
                                 config.last(),         config.tensor_share(),
                                 config.expert_share(), config.shares_cache()};
  const auto missing = ops::MissingOps(backend.ops(), model::NeededOps(model, part));
  if (!missing.empty())
    return base::Unimplemented("the backend '{}' lacks ops that {} needs: {}", backend.name(),
                               model.architecture, fmt::join(missing, ", "));
  LONGSPAN_ASSIGN_OR_RETURN(stage->queue_,
                            backend.CreateQueue({.threads = config.threads,
                                                 .cores = config.cores,
                                                 .device = std::max(0, config.device)}));
  if (!backend.is_on_host())
    LONGSPAN_RETURN_IF_ERROR(stage->groups_.UseDevice(config, links, *stage->queue_));
  stage->repeater_.emplace(backend, *stage->queue_, stage->groups_);
  LONGSPAN_RETURN_IF_ERROR(CheckWeightsFit(config, backend, model, part));
  LONGSPAN_ASSIGN_OR_RETURN(const auto weights, OpenWeights(config));
  model::WeightLoader loader(*weights, backend, *stage->queue_,
                             {.compute = config.compute,
                              // Parts of the cache are merged in the space of the latents.
                              .one_form = stage->deterministic() || config.shares_cache(),
                              .kept_first = config.mesh.cp > 1,
                              .share = config.tensor_share(),
                              .experts = config.expert_share()});
  LONGSPAN_ASSIGN_OR_RETURN(stage->model_, model::StageModel::Load(model, part, loader, progress));
  stage->ready_.weight_bytes = loader.bytes();
  LONGSPAN_RETURN_IF_ERROR(stage->TakeMemory());
  return stage;
}

base::Status Stage::TakeTables() {
  const int64_t rows = config_.max_own_rows();
  const int64_t pages_per_sequence =
      PageTableColumns(kv::PagesFor(config_.max_context, config_.page_size));
  LONGSPAN_ASSIGN_OR_RETURN(
      device_tables_, DeviceTables::Create(backend_, {.rows = rows,
                                                      .slices = config_.max_slices,
                                                      .pages_per_sequence = pages_per_sequence}));
  if (config_.mesh.cp > 1) {
    const int64_t all_slices = config_.shares_cache() ? config_.max_slices * config_.mesh.cp : 0;
    LONGSPAN_ASSIGN_OR_RETURN(
        gather_tables_, GatherTables::Create(backend_, {.own_rows = rows,
                                                        .all_rows = config_.max_rows,
                                                        .all_slices = all_slices,
                                                        .pages_per_sequence = pages_per_sequence}));
  }
  const int64_t rope_bytes =
      rows * model_->inverse_frequencies().size(0) * tensor::SizeOf(DType::kF32);
  LONGSPAN_ASSIGN_OR_RETURN(cosines_, backend_.Allocate(rope_bytes));
  LONGSPAN_ASSIGN_OR_RETURN(sines_, backend_.Allocate(rope_bytes));
  LONGSPAN_ASSIGN_OR_RETURN(embedding_rows_, backend_.Allocate(rows * tensor::SizeOf(DType::kI32)));
  return base::OkStatus();
}

base::Status Stage::TakeMemory() {
  const int64_t rows = config_.max_own_rows();
  const spec::ModelSpec& model = share_;
  const Sampler::Shape sampler = {.vocab_size = whole_model_.vocab_size,
                                  .hidden_size = model.hidden_size,
                                  .ranks = config_.mesh.tp};
  LONGSPAN_ASSIGN_OR_RETURN(
      residual_slots_,
      ResidualSlots::Create(backend_, ResidualBuffers(config_.stages()), rows, model.hidden_size,
                            config_.compute, IsStaged(links_.previous) || IsStaged(links_.next)));
  LONGSPAN_RETURN_IF_ERROR(TakeTables());

  const int64_t blocks = std::max(
      model_->ScratchBytes({.rows = rows,
                            .gathered_rows = config_.mesh.cp > 1 ? config_.max_rows : 0,
                            .sharing_ranks = config_.shares_cache() ? config_.mesh.cp : 0,
                            .compute = config_.compute,
                            .cache = config_.kv_cache}),
      config_.last() ? Sampler::ScratchBytes(config_.max_rows, sampler, config_.compute) : 0);
  const int64_t bytes =
      blocks +
      backend_.WorkspaceBytes(*queue_, WorkspaceShapeOf(model, config_, whole_model_.vocab_size));
  LONGSPAN_ASSIGN_OR_RETURN(auto workspace, backend_.Allocate(bytes));
  workspace_ = tensor::Workspace(std::move(workspace));
  context_.emplace(tensor::ExecutionContext{*queue_, workspace_, deterministic()});
  if (config_.last()) sampler_.emplace(backend_, *model_, sampler, groups_);

  ready_.workspace_bytes = bytes + device_tables_->bytes() +
                           (gather_tables_ ? gather_tables_->bytes() : 0) + cosines_.bytes() +
                           sines_.bytes() +
                           ResidualBuffers(config_.stages()) * rows * model.hidden_size *
                               tensor::SizeOf(config_.compute);
  // Of a divided cache a rank has its share of every page's bytes.
  const int64_t sharers = config_.page_share().size;
  ready_.kv_bytes_per_page =
      (KvCache::BytesPerPage(model, config_.ranges, config_.page_size, config_.kv_cache) + sharers -
       1) /
      sharers;
  ready_.available_bytes = backend_.AvailableBytes();
  // A device's memory is taken when it is asked for; a host's when it is written to.
  if (!backend_.is_on_host()) ready_.available_bytes += ready_.workspace_bytes;
  return base::OkStatus();
}

base::Status Stage::AllocateKv(int64_t pages) {
  LONGSPAN_ASSIGN_OR_RETURN(
      kv_cache_,
      KvCache::Allocate(backend_, share_, config_.ranges,
                        {.pages = std::max<int64_t>(1, config_.page_share().CountOf(pages)),
                         .page_size = config_.page_size,
                         .dtype = config_.kv_cache}));
  if (config_.synthetic_kv) return kv_cache_->FillSynthetic(backend_, *queue_);
  return base::OkStatus();
}

base::Result<std::optional<plan::StepResult>> Stage::Compute(const PreparedStep& prepared) {
  PlanWork& work = *prepared.work;
  const plan::StepPlan& plan = work.plan;
  plan::StepResult& result = work.result;
  if (prepared.loop == 0)
    result = {.plan = plan.number,
              .epoch = plan.epoch,
              .rank = config_.rank,
              .timing = {.intake = prepared.intake}};
  StepTimer timer(result.timing, {.last_end = last_end_, .awaited = prepared.awaited});
  LONGSPAN_ASSIGN_OR_RETURN(const model::Step step, timer.Kernels([&] { return BeginStep(work); }));
  const tensor::View residual = residual_slots_->Rows(prepared.slot, work.tables.rows);

  if (config_.embeds(prepared.loop)) {
    LONGSPAN_RETURN_IF_ERROR(EmbedTokens(step, work, timer, residual));
    LONGSPAN_RETURN_IF_ERROR(CollectHidden(work, 0, residual));
  } else {
    LONGSPAN_RETURN_IF_ERROR(timer.Receive(
        prepared.received, std::max(prepared.intake.posted, last_input_), residual.bytes()));
    last_input_ = std::max(last_input_, result.timing.receives.back().done);
    LONGSPAN_RETURN_IF_ERROR(
        residual_slots_->Store(*links_.previous, *queue_, prepared.slot, work.tables.rows));
  }
  const ComputeWatch::Scope computing(watch_, plan.number);
  LONGSPAN_RETURN_IF_ERROR(
      KernelsAndWaits(timer, [&] { return RunLayers(step, prepared, residual); }));

  comm::Transfer sent;
  if (!config_.samples(prepared.loop)) {
    sent = timer.Send(residual.bytes(), [&] { return SendOn(prepared); });
  } else {
    // Not before, since an earlier plan may still have had to sample for what this one releases.
    sampler_->Apply(plan);
    if (!plan.logits_rows.empty()) LONGSPAN_RETURN_IF_ERROR(Sample(step, residual, timer, work));
  }
  residual_slots_->Release(prepared.slot, std::move(sent));
  result.timing.exchanged += groups_.TakeReceived();
  timer.Stop();
  last_end_ = result.timing.end;
  std::optional<plan::StepResult> finished;
  if (prepared.loop == config_.loops() - 1) finished = std::move(result);
  return finished;
}

comm::Transfer Stage::SendOn(const PreparedStep& prepared) {
  const int loop = prepared.loop + (config_.last() ? 1 : 0);
  return links_.next->Send(
      ResidualMessage(prepared.work->plan.number, loop, config_.loops()),
      residual_slots_->LinkBytes(*links_.next, prepared.slot, prepared.work->tables.rows));
}

base::Result<model::Step> Stage::BeginStep(const PlanWork& work) {
  const HostTables& tables = work.tables;
  LONGSPAN_ASSIGN_OR_RETURN(ops::StepTables device, device_tables_->Upload(*queue_, tables));
  // What is repeated has the bound of all steps with its tables' shape.
  if (IsRepeatable(work)) device.max_kv_length = tables.max_pages * config_.page_size;
  const int64_t pairs = model_->inverse_frequencies().size(0);
  const tensor::View cosines = cosines_.AsView(DType::kF32, {tables.rows, pairs});
  const tensor::View sines = sines_.AsView(DType::kF32, {tables.rows, pairs});
  ops::Dispatch(*context_, backend_.ops().rope_table,
                {.positions = device.positions,
                 .inverse_frequencies = model_->inverse_frequencies(),
                 .amplitude = model_->rope_amplitude(),
                 .cosines = cosines,
                 .sines = sines});
  model::GatheredRows gathered;
  if (gather_tables_) {
    LONGSPAN_ASSIGN_OR_RETURN(
        gathered, gather_tables_->Upload(*queue_, tables, config_.context_share().rank));
  }
  return model::Step{*context_, backend_.ops(), groups_,  device,    cosines,
                     sines,     tables.extents, gathered, &backend_, tables.positions};
}

bool Stage::IsRepeatable(const PlanWork& work) const {
  // One row behind others in every slice: whatever its position, the same kernels compute it. Parts
  // of a chunk, and a prompt's first token, may be another form of attention's.
  const bool decodes = std::all_of(work.tables.extents.begin(), work.tables.extents.end(),
                                   [](const model::SliceExtent& slice) {
                                     return slice.begin > 0 && slice.end - slice.begin == 1;
                                   });
  return repeater_->can_repeat() && decodes && work.tables.rows == work.tables.slices &&
         !work.tables.sharded &&
         std::none_of(work.plan.logits_rows.begin(), work.plan.logits_rows.end(),
                      [](const plan::LogitsRow& row) { return row.return_hidden; });
}

uint64_t Stage::RepeatKey(const PreparedStep& prepared) const {
  const HostTables& tables = prepared.work->tables;
  uint64_t key = static_cast<uint64_t>(tables.rows);
  for (const int64_t part : {tables.max_pages, int64_t{prepared.slot}, int64_t{prepared.loop}})
    key = base::MixBits(key) + static_cast<uint64_t>(part);
  for (const int64_t count : tables.gathered_counts)
    key = base::MixBits(key) + static_cast<uint64_t>(count);
  return base::MixBits(key);
}

base::Status Stage::EmbedTokens(const model::Step& step, const PlanWork& work, StepTimer& timer,
                                const tensor::View& residual) {
  LONGSPAN_RETURN_IF_ERROR(token_feed_.TakeArrived());
  std::vector<int32_t> embedding_rows;
  embedding_rows.reserve(static_cast<size_t>(residual.size(0)));
  for (const plan::TokenSource& source : work.tables.tokens) {
    int32_t token = source.literal;
    if (!source.is_literal()) {
      auto resolved = timer.Wait([&] { return token_feed_.Resolve(source); });
      if (!resolved.ok()) return resolved.status();
      token = *resolved;
    }
    if (token < 0 || token >= whole_model_.vocab_size)
      return base::DataLoss("plan {} has token {} of a vocabulary of {}", work.plan.number.value,
                            token, whole_model_.vocab_size);
    embedding_rows.push_back(model_->EmbeddingRow(token));
  }
  const auto device =
      embedding_rows_.AsView(DType::kI32, {static_cast<int64_t>(embedding_rows.size())});
  LONGSPAN_RETURN_IF_ERROR(
      backend_.Upload(*queue_, std::as_bytes(std::span(embedding_rows)), device));
  return KernelsAndWaits(timer, [&] {
    model_->Embed(step, device, residual);
    return base::OkStatus();
  });
}

base::Status Stage::RunLayers(const model::Step& step, const PreparedStep& prepared,
                              const tensor::View& residual) {
  PlanWork& work = *prepared.work;
  const int loop = prepared.loop;
  base::Status status;
  // The last layer's output is reported after the final norm, by the sampler.
  const auto tap = [&](int layer, const tensor::ConstView& rows) {
    if (status.ok() && layer + 1 < whole_model_.layers())
      status = CollectHidden(work, layer + 1, rows);
  };
  const bool alone = config_.loops() == 1;
  const size_t first = alone ? 0 : static_cast<size_t>(loop);
  const size_t end = alone ? config_.ranges.size() : first + 1;
  const auto forward = [&] {
    for (size_t range = first; range < end; ++range)
      model_->Forward(step, range, kv_cache_->Layers(range), residual, tap);
  };
  if (IsRepeatable(work))
    work.result.timing.exchanged += repeater_->Run(RepeatKey(prepared), forward);
  else
    forward();
  LONGSPAN_RETURN_IF_ERROR(status);
  // The one wait of a step; where there are rows to sample, it is for what comes out of them.
  if (config_.samples(loop) && !work.plan.logits_rows.empty()) return base::OkStatus();
  if (!config_.samples(loop))
    LONGSPAN_RETURN_IF_ERROR(
        residual_slots_->Fetch(*links_.next, *queue_, prepared.slot, work.tables.rows));
  return queue_->Synchronize();
}

base::Status Stage::CollectHidden(PlanWork& work, int depth, const tensor::ConstView& residual) {
  if (config_.tensor_share().rank != 0) return base::OkStatus();
  const auto& wanted = work.plan.logits_rows;
  for (size_t slot = 0; slot < wanted.size(); ++slot) {
    const ListedRow& place = work.tables.listed[slot];
    if (!wanted[slot].return_hidden || place.rank != config_.context_share().rank) continue;
    LONGSPAN_ASSIGN_OR_RETURN(auto values,
                              FloatsToHost(backend_, *queue_, residual.Rows(place.row, 1)));
    work.result.hidden.push_back({static_cast<uint32_t>(slot), depth, std::move(values)});
  }
  return base::OkStatus();
}

base::Status Stage::Sample(const model::Step& step, const tensor::View& residual, StepTimer& timer,
                           PlanWork& work) {
  plan::StepResult& result = work.result;
  const size_t own_hidden = result.hidden.size();
  LONGSPAN_RETURN_IF_ERROR(KernelsAndWaits(
      timer, [&] { return sampler_->Run(step, work.plan, residual, work.tables.listed, result); }));
  LONGSPAN_RETURN_IF_ERROR(PassTokens(work.plan, result));
  // All ranks of the stage know them; one tells.
  if (!config_.leads_stage()) {
    result.rows.clear();
    result.hidden.resize(own_hidden);
  }
  return base::OkStatus();
}

base::Status Stage::PassTokens(const plan::StepPlan& plan, const plan::StepResult& result) {
  SampledTokens sampled{plan.number, std::vector<int32_t>(plan.logits_rows.size(), -1)};
  bool any = false;
  for (const plan::RowResult& row : result.rows) {
    sampled.tokens[row.slot] = row.token;
    any = any || row.token >= 0;
  }
  if (!any) return base::OkStatus();
  if (links_.tokens != nullptr) return links_.tokens->Send(EncodeTokens(sampled));
  token_feed_.Publish(std::move(sampled));
  return base::OkStatus();
}

}  // namespace longspan::runtime
