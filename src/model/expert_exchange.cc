#include "model/expert_exchange.h"

#include <algorithm>
#include <numeric>

namespace longspan::model {
namespace {

using tensor::DType;

constexpr bool Has(uint64_t ranks, int rank) { return (ranks >> rank & 1) != 0; }

// Bytes of a row's columns, so that what follows is aligned.
int64_t ColumnBytes(int64_t hidden, DType dtype) {
  return (hidden * tensor::SizeOf(dtype) + 3) / 4 * 4;
}

int64_t RecordBytes(const ExpertExchange::Shape& shape, DType dtype) {
  return ColumnBytes(shape.hidden, dtype) + int64_t{8} * shape.choices;
}

// The most ranks that a row's experts are at.
int64_t MostOwners(const ExpertExchange::Shape& shape) {
  return std::min(shape.choices, shape.share.size);
}

}  // namespace

ExpertExchange::ExpertExchange(const Step& step, const Shape& shape, const tensor::ConstView& x)
    : step_(step),
      shape_(shape),
      x_(x),
      scratch_(step.context.workspace),
      own_rows_(x),
      sent_(static_cast<size_t>(shape.share.size)),
      received_(static_cast<size_t>(shape.share.size)) {
  const int64_t rows = x.size(0);
  if (shape.share.row_parts == 1) {
    own_.resize(static_cast<size_t>(rows));
    std::iota(own_.begin(), own_.end(), 0);
    return;
  }
  for (int64_t row = 0; row < rows; ++row)
    if (shape.share.Sends(step.host_positions[static_cast<size_t>(row)]))
      own_.push_back(static_cast<int32_t>(row));
  const tensor::View index = ToDevice(own_);
  const tensor::View gathered = scratch_.Take(x.dtype(), {std::ssize(own_), shape.hidden});
  ops::Dispatch(step.context, step.ops.gather_rows, {.x = x, .index = index, .out = gathered});
  own_rows_ = gathered;
}

template <typename T>
tensor::View ExpertExchange::ToDevice(const std::vector<T>& values) {
  const tensor::View view = scratch_.Take(tensor::DTypeOf<T>::kValue, {std::ssize(values)});
  // What fails here the queue tells in the end.
  if (!values.empty())
    (void)step_.backend->Upload(step_.context.queue, std::as_bytes(std::span(values)), view);
  return view;
}

ExpertExchange::Records ExpertExchange::TakeRecords(int64_t count) {
  const int64_t columns = ColumnBytes(shape_.hidden, x_.dtype());
  const int64_t size = RecordBytes(shape_, x_.dtype());
  void* memory = scratch_.Take(DType::kI32, {count, size / 4}).raw();
  const auto part = [&](DType dtype, int64_t begin, int64_t width) {
    const int64_t element = tensor::SizeOf(dtype);
    return tensor::View(memory, dtype, {count, size / element}).Columns(begin / element, width);
  };
  return {.x = part(x_.dtype(), 0, shape_.hidden),
          .experts = part(DType::kI32, columns, shape_.choices),
          .weights = part(DType::kF32, columns + int64_t{4} * shape_.choices, shape_.choices),
          .bytes = {static_cast<std::byte*>(memory), static_cast<size_t>(count * size)},
          .size = static_cast<size_t>(size)};
}

void ExpertExchange::ReadChoices(const ExpertChoices& choices) {
  experts_.assign(static_cast<size_t>(std::ssize(own_) * shape_.choices), 0);
  if (own_.empty()) return;
  const base::Status status = step_.backend->Download(step_.context.queue, choices.experts,
                                                      std::as_writable_bytes(std::span(experts_)));
  // The step has failed, and says so in the end.
  if (!status.ok()) std::fill(experts_.begin(), experts_.end(), 0);
}

void ExpertExchange::Announce() {
  for (int64_t i = 0; i < std::ssize(own_); ++i) {
    uint64_t owners = 0;
    for (int choice = 0; choice < shape_.choices; ++choice) {
      const int owner = experts_[i * shape_.choices + choice] / experts_per_rank();
      ++sent_[owner].pairs;
      if (!Has(owners, owner)) ++sent_[owner].rows;
      owners |= uint64_t{1} << owner;
    }
    owners_.push_back(owners);
  }
  std::vector<std::span<const std::byte>> outgoing(sent_.size());
  std::vector<std::span<std::byte>> incoming(sent_.size());
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    sent_rows_ += sent_[other].rows;
    outgoing[other] = std::as_bytes(std::span(&sent_[other], 1));
    incoming[other] = std::as_writable_bytes(std::span(&received_[other], 1));
  }
  step_.ranks.TellExperts(outgoing, incoming);
}

ExpertExchange::Packing ExpertExchange::ArrangeRows() {
  std::vector<int32_t> rows, choices, experts;
  for (int turn = 1; turn <= ranks(); ++turn) {
    // The others in order, then this one.
    const int to = turn == ranks() ? rank() : turn - (turn <= rank() ? 1 : 0);
    const int first_expert = to * experts_per_rank();
    for (int64_t i = 0; i < std::ssize(own_); ++i) {
      if (!Has(owners_[i], to)) continue;
      rows.push_back(own_[i]);
      choices.push_back(static_cast<int32_t>(i));
      for (int choice = 0; choice < shape_.choices; ++choice) {
        const int local = experts_[i * shape_.choices + choice] - first_expert;
        experts.push_back(local >= 0 && local < experts_per_rank() ? local : -1);
      }
    }
  }
  std::vector<int32_t> places(rows.size());
  std::iota(places.begin(), places.end(), 0);
  Packing packing = {.rows = ToDevice(rows),
                     .choices = ToDevice(choices),
                     .places = ToDevice(places),
                     .experts = ToDevice(experts)};
  packing.experts =
      tensor::View(packing.experts.raw(), DType::kI32, {std::ssize(rows), shape_.choices});
  return packing;
}

void ExpertExchange::AwaitAnnouncements() {
  if (!step_.ranks.AwaitExperts()) std::fill(received_.begin(), received_.end(), Announcement());
  received_[rank()] = sent_[rank()];
}

void ExpertExchange::Pack(const Packing& packing, const ExpertChoices& choices, int64_t begin,
                          int64_t count, const Records& records, int64_t first) {
  const auto gather = [&](const tensor::ConstView& x, const tensor::View& index,
                          const tensor::View& out) {
    ops::Dispatch(step_.context, step_.ops.gather_rows,
                  {.x = x, .index = index.Rows(begin, count), .out = out.Rows(first, count)});
  };
  gather(x_, packing.rows, records.x);
  gather(choices.weights, packing.choices, records.weights);
  gather(packing.experts, packing.places, records.experts);
}

void ExpertExchange::Send(const ExpertChoices& choices) {
  ReadChoices(choices);
  Announce();
  const Packing packing = ArrangeRows();
  const Records leaving = TakeRecords(sent_rows_);
  Pack(packing, choices, 0, sent_rows_, leaving, 0);
  std::vector<std::span<const std::byte>> outgoing(sent_.size());
  int64_t next = 0;
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    outgoing[other] = leaving.Bytes(next, sent_[other].rows);
    next += sent_[other].rows;
  }

  AwaitAnnouncements();
  int64_t count = 0;
  for (const Announcement& announced : received_) {
    count += announced.rows;
    choices_.pairs += announced.pairs;
  }
  const Records here = TakeRecords(count);
  std::vector<std::span<std::byte>> incoming(sent_.size());
  next = sent_[rank()].rows;
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    incoming[other] = here.Bytes(next, received_[other].rows);
    next += received_[other].rows;
  }
  step_.ranks.ExchangeWithExperts(outgoing, incoming);
  Pack(packing, choices, sent_rows_, sent_[rank()].rows, here, 0);
  rows_ = here.x;
  choices_.experts = here.experts;
  choices_.weights = here.weights;
}

void ExpertExchange::Receive() {
  if (!step_.ranks.AwaitExperts()) {
    // The records of others are whatever the memory held: none have come.
    std::fill(received_.begin(), received_.end(), Announcement());
    received_[rank()] = sent_[rank()];
    rows_ = rows_.Rows(0, sent_[rank()].rows);
    choices_ = {.experts = choices_.experts.Rows(0, sent_[rank()].rows),
                .weights = choices_.weights.Rows(0, sent_[rank()].rows),
                .pairs = sent_[rank()].pairs};
  }
  const int64_t count = rows_.size(0);
  all_results_ = scratch_.Take(x_.dtype(), {sent_rows_ + count, shape_.hidden});
  results_ = all_results_.Rows(sent_rows_, count);
}

void ExpertExchange::AddUp(const tensor::View& out) {
  const auto bytes_of = [](const tensor::View& rows) {
    return std::span(static_cast<std::byte*>(rows.raw()), static_cast<size_t>(rows.bytes()));
  };
  std::vector<std::span<const std::byte>> outgoing(sent_.size());
  std::vector<std::span<std::byte>> incoming(sent_.size());
  std::vector<int32_t> next(sent_.size());  // where the results of every rank stand
  next[rank()] = static_cast<int32_t>(sent_rows_);
  int64_t from = sent_[rank()].rows;
  int32_t to = 0;
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    outgoing[other] = bytes_of(results_.Rows(from, received_[other].rows));
    incoming[other] = bytes_of(all_results_.Rows(to, sent_[other].rows));
    next[other] = to;
    from += received_[other].rows;
    to += sent_[other].rows;
  }
  step_.ranks.ExchangeWithExperts(outgoing, incoming);

  const int64_t owners = MostOwners(shape_);
  std::vector<int32_t> places(static_cast<size_t>(out.size(0) * owners), -1);
  for (int64_t i = 0; i < std::ssize(own_); ++i) {
    int32_t* place = places.data() + own_[i] * owners;
    for (int owner = 0; owner < ranks(); ++owner)
      if (Has(owners_[i], owner)) *place++ = next[owner]++;
  }
  const auto table_of = [&](const tensor::View& values) {
    return tensor::View(values.raw(), values.dtype(), {out.size(0), owners});
  };
  const tensor::View sorted_places = table_of(ToDevice(places));
  const tensor::View ones = table_of(ToDevice(std::vector<float>(places.size(), 1.0F)));
  (void)step_.ranks.AwaitExperts();
  ops::Dispatch(
      step_.context, step_.ops.expert_combine,
      {.x = all_results_, .sorted_places = sorted_places, .expert_weights = ones, .out = out});
}

int64_t ExpertExchange::ScratchBytes(const Shape& shape, int64_t rows, DType compute) {
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t row = shape.hidden * tensor::SizeOf(compute);
  const int64_t record = RecordBytes(shape, compute);
  const int64_t sent = rows * std::min(shape.choices, shape.share.size - 1);
  const int64_t received = MostRows(shape, rows);
  const int64_t gathered = shape.share.row_parts == 1 ? 0 : padded(4 * rows) + padded(rows * row);
  const int64_t packed = rows * MostOwners(shape);
  const int64_t packing = 3 * padded(4 * packed) + padded(4 * packed * shape.choices);
  return gathered + padded(sent * record) + padded(received * record) + packing +
         padded((sent + received) * row) + 2 * padded(4 * rows * MostOwners(shape));
}

}  // namespace longspan::model
