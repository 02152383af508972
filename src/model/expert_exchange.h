// How rows get to the ranks that have their experts, and the results back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/routed_experts.h"
#include "model/step.h"
#include "plan/expert_share.h"

namespace longspan::model {

// Of one layer in one step. A row goes once to every rank that has any of its experts, with their
// numbers and weights, and comes back as one sum from each. How many rows go where is told first.
// The calls follow one another in the order of their declarations; between Send and Receive, rows
// are on their way while the caller computes something else.
//
// Who gets what is decided on the host: the choices are copied there, for which a device is waited
// for once a layer, and the numbers of rows come back. Takes its memory from the
// step's workspace and gives it back in the end. After a failure between ranks, which the step
// tells (model/stage_ranks.h), no rows arrive and what AddUp leaves is unspecified.
class ExpertExchange {
 public:
  struct Shape {
    plan::ExpertShare share;
    int experts = 0;  // in all
    int choices = 0;  // of a row
    int64_t hidden = 0;
  };

  // x [rows, hidden]: the step's rows, which stay until the end.
  ExpertExchange(const Step& step, const Shape& shape, const tensor::ConstView& x);
  ExpertExchange(const ExpertExchange&) = delete;
  ExpertExchange& operator=(const ExpertExchange&) = delete;

  // The rows that this rank sends, [own, hidden]: the ranks that have the same rows share them out
  // (plan::ExpertShare::Sends).
  const tensor::ConstView& own_rows() const { return own_rows_; }

  // What the router chose for the own rows, of all experts.
  void Send(const ExpertChoices& choices);

  // The rows that have come, this rank's own among them, and their choices here. Until the end.
  void Receive();
  const tensor::ConstView& rows() const { return rows_; }
  const ExpertChoices& choices() const { return choices_; }
  // Where the caller puts what the experts here make of the rows: [rows, hidden].
  const tensor::View& results() const { return results_; }

  // Sends the results back and fills out [rows, hidden] with the sums of the own rows' results, in
  // the order of the ranks, in f32; other rows with zeros.
  void AddUp(const tensor::View& out);

  // Workspace that it takes for a step of so many rows, if no rank that sends rows has more.
  static int64_t ScratchBytes(const Shape& shape, int64_t rows, tensor::DType compute);
  // How many rows may come then.
  static int64_t MostRows(const Shape& shape, int64_t rows) {
    return rows * shape.share.row_sources();
  }

 private:
  // What a rank tells another one ahead.
  struct Announcement {
    int32_t rows = 0;
    int32_t pairs = 0;  // of a row and an expert there
  };

  // Rows on their way with their choices, dense: columns, experts, weights of each.
  struct Records {
    tensor::View x;
    tensor::View experts;
    tensor::View weights;
    std::span<std::byte> bytes;
    size_t size = 0;  // of one

    std::span<std::byte> Bytes(int64_t begin, int64_t count) const {
      return bytes.subspan(static_cast<size_t>(begin) * size, static_cast<size_t>(count) * size);
    }
  };

  int ranks() const { return shape_.share.size; }
  int rank() const { return shape_.share.rank; }
  int experts_per_rank() const { return shape_.share.count(shape_.experts); }
  // Own rows as they are packed: by the rank that they go to, those that stay here last.
  struct Packing {
    tensor::View rows;     // i32: of x
    tensor::View choices;  // i32: of the choices
    tensor::View places;   // i32: 0, 1, 2 ...
    tensor::View experts;  // i32 [packed, choices]: numbered from the rank's first, or -1
  };

  // A copy in the step's memory, taken from the scratch.
  template <typename T>
  tensor::View ToDevice(const std::vector<T>& values);
  Records TakeRecords(int64_t count);
  // What the own rows chose, on the host.
  void ReadChoices(const ExpertChoices& choices);
  void Announce();
  Packing ArrangeRows();
  void AwaitAnnouncements();
  // Packed rows [begin, begin + count) into records from `first` on.
  void Pack(const Packing& packing, const ExpertChoices& choices, int64_t begin, int64_t count,
            const Records& records, int64_t first);

  const Step& step_;
  const Shape shape_;
  const tensor::ConstView x_;
  tensor::Workspace::Scope scratch_;

  std::vector<int32_t> own_;  // rows of x
  tensor::ConstView own_rows_;
  std::vector<int32_t> experts_;  // [own, choices]
  std::vector<uint64_t> owners_;  // of the experts of every own row, as bits

  // By rank; what goes to this rank itself is not sent, but stands before what comes from others.
  std::vector<Announcement> sent_;
  std::vector<Announcement> received_;
  int64_t sent_rows_ = 0;

  ExpertChoices choices_;
  tensor::ConstView rows_;
  tensor::View all_results_;  // those that come back, then those of rows_
  tensor::View results_;
};

}  // namespace longspan::model
