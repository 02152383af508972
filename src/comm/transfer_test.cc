#include "comm/transfer.h"

#include <thread>

#include <gtest/gtest.h>

namespace longspan::comm {
namespace {

using std::chrono::milliseconds;

TEST(TransferTest, ADefaultOneIsDoneAndOk) {
  const Transfer transfer;
  EXPECT_TRUE(transfer.done());
  EXPECT_TRUE(transfer.Wait().ok());
  EXPECT_TRUE(transfer.WaitFor(milliseconds(0)).ok());
}

TEST(TransferTest, EveryCopyLearnsTheEnd) {
  TransferSource source;
  const Transfer transfer = source.transfer();
  const Transfer copy = transfer;
  EXPECT_FALSE(copy.done());
  EXPECT_EQ(copy.WaitFor(milliseconds(5)).code(), base::StatusCode::kDeadlineExceeded);
  std::thread waiter([copy] { EXPECT_EQ(copy.Wait().message(), "gone"); });
  source.Complete(base::Unavailable("gone"));
  waiter.join();
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.WaitFor(milliseconds(0)).message(), "gone");
}

TEST(TransferTest, OnDoneRunsOnceBeforeOrAfterTheEnd) {
  TransferSource source;
  const Transfer transfer = source.transfer();
  int before = 0, after = 0;
  transfer.OnDone([&](const base::Status& status) { before += status.ok() ? 1 : 100; });
  EXPECT_EQ(before, 0);
  source.Complete(base::OkStatus());
  transfer.OnDone([&](const base::Status& status) { after += status.ok() ? 1 : 100; });
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 1);
}

TEST(TransferTest, DoneHasTheStatus) {
  EXPECT_EQ(Transfer::Done(base::Aborted("no")).Wait().code(), base::StatusCode::kAborted);
}

TEST(TransferDeathTest, AForgottenTransferIsAProgrammersMistake) {
  EXPECT_DEATH({ TransferSource source; }, "forgotten");
}

}  // namespace
}  // namespace longspan::comm
