#include "apps/memory_probe.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "tensor/buffer.h"

namespace longspan::apps {
namespace {

constexpr int64_t kTableBytes = int64_t{256} << 20;
constexpr int64_t kSliceBytes = int64_t{1} << 20;
constexpr double kSeconds = 0.2;
constexpr int kFewestPasses = 5;

// Adds up the words of a slice, in as many sums as keep loads in flight.
uint64_t SumOf(const uint64_t* words, int64_t count) {
  constexpr int64_t kSums = 32;
  uint64_t sums[kSums] = {};
  for (int64_t i = 0; i < count; i += kSums)
    for (int64_t j = 0; j < kSums; ++j) sums[j] += words[i + j];
  uint64_t all = 0;
  for (const uint64_t sum : sums) all += sum;
  return all;
}

}  // namespace

base::Result<double> MeasureReadRate(tensor::ThreadPool& pool) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto table, tensor::AllocateHost(kTableBytes));
  const auto* words = static_cast<const uint64_t*>(table.data());
  constexpr int64_t kSlices = kTableBytes / kSliceBytes;
  constexpr int64_t kWords = kSliceBytes / int64_t{sizeof(uint64_t)};
  pool.ParallelFor(kSlices, [&](int64_t slice, int) {
    // Pages that were never written are all one page of zeros.
    std::memset(static_cast<char*>(table.data()) + slice * kSliceBytes, 1, kSliceBytes);
  });
  const base::Clock& clock = base::SteadyClock();
  std::atomic<uint64_t> sum{0};
  double best = 0;
  const auto start = clock.Now();
  for (int pass = 0; pass < kFewestPasses || base::Seconds(clock.Now() - start) < kSeconds;
       ++pass) {
    const auto begin = clock.Now();
    pool.ParallelFor(kSlices, [&](int64_t slice, int) {
      sum.fetch_add(SumOf(words + slice * kWords, kWords), std::memory_order_relaxed);
    });
    best = std::max(best, static_cast<double>(kTableBytes) / base::Seconds(clock.Now() - begin));
  }
  LONGSPAN_CHECK(sum.load() != 0, "the table has no zeros");
  return best;
}

}  // namespace longspan::apps
