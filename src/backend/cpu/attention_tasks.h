// The tasks of an attention op, given to threads: a tile each, or, where few tiles have long
// contexts (decoding), the segments of their contexts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/attention_scratch.h"
#include "backend/cpu/isa.h"
#include "tensor/thread_pool.h"

namespace longspan::backend::cpu {

// Results do not depend on who takes what: a tile's segments are merged in order by one thread as
// by several (kernel_table.h).
class AttentionTasks {
 public:
  using Kernel = void (*)(const AttentionTile& tile);

  // `rows`: of the tiles that may be parted, query heads of a task; others have more.
  static int64_t Bytes(int threads, const AttentionScratch& scratch, int64_t rows) {
    return scratch.Bytes(threads) + tensor::Workspace::PaddedBytes(Slots(threads, scratch, rows) *
                                                                   SlotWords(scratch, rows) * 4);
  }

  AttentionTasks(tensor::Workspace::Scope& scope, tensor::ThreadPool& pool,
                 const AttentionScratch& scratch, int64_t rows)
      : pool_(pool),
        scratch_(scratch),
        memory_(scratch.Take(scope, pool.threads())),
        slot_rows_(SlotRows(rows)),
        slot_words_(SlotWords(scratch, rows)),
        slots_(Slots(pool.threads(), scratch, rows)),
        slot_memory_(scope.Take(tensor::DType::kF32, {slots_, slot_words_}).data<float>()) {}

  // make(task) gives the tile of a task without its scratch; wrote(tile) is told when its `out` and
  // its result are there. Both are called by any thread.
  template <typename Make, typename Wrote>
  void Run(int64_t tasks, Kernel kernel, Kernel write, const Make& make, const Wrote& wrote) const {
    const int64_t most_segments = MostSegmentsOfParted(tasks, make);
    if (most_segments > 1) return RunSegments(tasks, most_segments, kernel, write, make, wrote);
    pool_.ParallelFor(tasks, [&](int64_t task, int thread) {
      AttentionTile tile = make(task);
      scratch_.Divide(memory_, thread, tile);
      kernel(tile);
      wrote(tile);
    });
  }

 private:
  // Sums of segments that wait to be merged: so much memory of a step, where that is enough.
  static constexpr int64_t kSlotBytes = int64_t{4} << 20;

  static int64_t SlotRows(int64_t rows) { return DivideUp(std::max<int64_t>(rows, 1), 16) * 16; }
  static int64_t SlotWords(const AttentionScratch& scratch, int64_t rows) {
    return SumsWords(SlotRows(rows), scratch.dim_padded);
  }
  static int64_t Slots(int threads, const AttentionScratch& scratch, int64_t rows) {
    return std::max(int64_t{4} * threads, kSlotBytes / (SlotWords(scratch, rows) * 4));
  }

  static int64_t Segments(const AttentionTile& tile) {
    const int64_t keys = tile.positions[tile.tokens - 1] + int64_t{1};
    return std::max<int64_t>(1, DivideUp(keys, SegmentKeys(tile.block_keys, tile.keys.page_size)));
  }
  AttentionSums Slot(int64_t index) const {
    return SumsAt(slot_memory_ + index * slot_words_, slot_rows_, scratch_.dim_padded);
  }

  // Of the longest context, where threads would wait for it; else 1.
  template <typename Make>
  int64_t MostSegmentsOfParted(int64_t tasks, const Make& make) const {
    if (pool_.threads() == 1 || 2 * tasks > slots_) return 1;
    int64_t all = 0;
    int64_t most = 0;
    for (int64_t task = 0; task < tasks; ++task) {
      const AttentionTile tile = make(task);
      if (tile.tokens * tile.group > slot_rows_) return 1;
      all += Segments(tile);
      most = std::max(most, Segments(tile));
    }
    return 2 * most * pool_.threads() > all ? most : 1;
  }

  // Round by round, since there are not slots for all segments: the first slots are the tasks'
  // results, then as many segments of each as there is room for.
  template <typename Make, typename Wrote>
  void RunSegments(int64_t tasks, int64_t most_segments, Kernel kernel, Kernel write,
                   const Make& make, const Wrote& wrote) const {
    const int64_t round = std::min(slots_ / tasks - 1, most_segments);
    for (int64_t first = 0; first < most_segments; first += round) {
      pool_.ParallelFor(tasks * round, [&](int64_t index, int thread) {
        AttentionTile tile = make(index / round);
        tile.segment = first + index % round;
        if (tile.segment >= Segments(tile)) return;
        scratch_.Divide(memory_, thread, tile);
        tile.result = Slot(tasks + index);
        kernel(tile);
      });
      pool_.ParallelFor(tasks, [&](int64_t task, int thread) {
        AttentionTile tile = make(task);
        const int64_t count = std::min(Segments(tile) - first, round);
        if (count <= 0) return;
        scratch_.Divide(memory_, thread, tile);
        tile.result = Slot(task);
        for (int64_t i = 0; i < count; ++i)
          ActiveKernels().merge_segment(tile, Slot(tasks + task * round + i), first + i == 0);
        if (first + count < Segments(tile)) return;
        write(tile);
        wrote(tile);
      });
    }
  }

  tensor::ThreadPool& pool_;
  AttentionScratch scratch_;
  AttentionScratch::Memory memory_;
  int64_t slot_rows_;
  int64_t slot_words_;
  int64_t slots_;
  float* slot_memory_;
};

}  // namespace longspan::backend::cpu
