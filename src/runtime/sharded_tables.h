// The tables of a step whose cache is divided over context-parallel ranks, page by page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/page_share.h"
#include "plan/step_plan.h"
#include "runtime/own_pages.h"

namespace longspan::runtime {

// Tables as of ops/step_tables.h, in host memory.
struct RowTables {
  int64_t rows = 0;
  int64_t slices = 0;
  int64_t max_pages = 0;  // columns of page_table
  int64_t max_kv_length = 0;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> slice_row_begin = {0};
  std::vector<int32_t> page_table;
};

// What one rank needs to know beside the tables of its own rows.
struct ShardedTables {
  // Its rows by the rank that keeps them: where each comes when they are sorted, and how many every
  // rank gets.
  std::vector<int64_t> owner_places;
  std::vector<int64_t> outgoing;
  // How many rows it keeps of every rank's, and where, in its own cache.
  std::vector<int64_t> incoming;
  std::vector<int64_t> incoming_slots;
  // The rows of all ranks, rank by rank, over the pages that it has. These follow each other as if
  // the sequence had no others: a row's position is that of the last token in them that it sees, or
  // -1. Without slots.
  RowTables all;
  std::vector<int32_t> page_indices;  // which page of its sequence each of its page table is
};

// `rows`: of every rank its rows of the plan; `pages`: the page tables of the plan's slices.
ShardedTables BuildShardedTables(const plan::StepPlan& plan,
                                 const std::vector<std::vector<int32_t>>& rows,
                                 std::span<const SequencePageTable* const> pages, int page_size,
                                 const plan::PageShare& share);

}  // namespace longspan::runtime
