#include "espalier/dist/local/local.h"

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/env.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

// Runs body on every rank, each on a thread of its own; the ranks' Statuses.
std::vector<absl::Status> RunRanks(
    int size, const std::function<void(Communicator&)>& body,
    absl::Duration timeout = absl::Seconds(60)) {
  test::Cpu();
  auto group = MakeLocalGroup(size, timeout);
  std::vector<absl::Status> statuses(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<size_t>(rank);
      statuses[i] = internal::Guard([&] { body(*group[i]); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses)
    EXPECT_TRUE(status.ok()) << status;
}

// rows x 3, element (i, j) = 100 * rank + 10 * i + j.
Tensor Numbered(int64_t rank, int64_t rows, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      values.push_back(static_cast<double>(100 * rank + 10 * i + j));
    }
  }
  return test::FromDoubles(test::Cpu(), {rows, 3}, dtype, values);
}

class LocalTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, LocalTest, ::testing::Values(1, 2, 3, 4));

TEST_P(LocalTest, SumsEqualTheOrderOfRanksOnEveryRank) {
  const int size = GetParam();
  for (const DType dtype : {kF64, kF32, kBF16}) {
    ExpectAllOk(RunRanks(size, [&](Communicator& comm) {
      for (int round = 0; round < 20; ++round) {
        const Tensor x = Numbered(comm.rank(), size, dtype);
        const Tensor part = comm.ReduceScatterSum(x);
        comm.AllReduceSum(x);
        EXPECT_TRUE(test::SameBits(part, x.Slice(0, comm.rank(), 1)));
        const double ranks = size * (size - 1) / 2.0;
        EXPECT_EQ(ToDoubles(x)[1],
                  ToDoubles(test::FromDoubles(test::Cpu(), {1}, dtype,
                                              {100 * ranks + size}))[0]);
      }
    }));
  }
}

TEST_P(LocalTest, UnevenRowsAreGatheredAndExchanged) {
  const int size = GetParam();
  ExpectAllOk(RunRanks(size, [&](Communicator& comm) {
    // Rank r has r rows, so rank 0 has none.
    const Tensor all = comm.AllGather(Numbered(comm.rank(), comm.rank(), kF32));
    int64_t row = 0;
    for (int r = 0; r < size; ++r) {
      EXPECT_TRUE(test::SameBits(all.Slice(0, row, r), Numbered(r, r, kF32)));
      row += r;
    }
    EXPECT_EQ(all.dim(0), row);

    // Rank r sends s rows to rank s.
    std::vector<int64_t> send(static_cast<size_t>(size));
    std::iota(send.begin(), send.end(), 0);
    std::vector<int64_t> received;
    const Tensor got =
        comm.AllToAll(Numbered(comm.rank(), row, kF32), send, received);
    EXPECT_EQ(received,
              std::vector<int64_t>(static_cast<size_t>(size), comm.rank()));
    const int64_t rank = comm.rank();
    const int64_t before = rank * (rank - 1) / 2;
    for (int64_t r = 0; r < size; ++r) {
      EXPECT_TRUE(
          test::SameBits(got.Slice(0, r * comm.rank(), comm.rank()),
                         Numbered(r, row, kF32).Slice(0, before, comm.rank())));
    }
  }));
}

TEST_P(LocalTest, BroadcastGivesRootsBits) {
  ExpectAllOk(RunRanks(GetParam(), [&](Communicator& comm) {
    const int root = comm.size() - 1;
    const Tensor x = Numbered(comm.rank(), 2, kBF16);
    comm.Broadcast(x, root);
    EXPECT_TRUE(test::SameBits(x, Numbered(root, 2, kBF16)));
    comm.Barrier();
  }));
}

TEST(LocalFaultTest, DifferentCollectivesAreNamedOnBothSides) {
  const auto statuses = RunRanks(2, [](Communicator& comm) {
    if (comm.rank() == 0) {
      comm.Barrier();
    } else {
      comm.AllReduceSum(Numbered(1, 2, kF32));
    }
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 in barrier, rank 1 in "
                                            "all_reduce of f32 [2, 3]"));
  }
}

TEST(LocalFaultTest, AMissingRankIsNamedAndTheGroupStaysDead) {
  const auto statuses = RunRanks(
      3,
      [](Communicator& comm) {
        if (comm.rank() == 1) return;
        const absl::Status first = internal::Guard([&] { comm.Barrier(); });
        const absl::Status second = internal::Guard([&] { comm.Barrier(); });
        EXPECT_EQ(first, second);
        internal::Fail(first);
      },
      absl::Milliseconds(200));
  for (const int rank : {0, 2}) {
    const absl::Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr("for rank 1"));
  }
}

// A rank that runs short in the middle of a collective ends the group: tried
// again, it would meet its peers at the end of the first try.
TEST(LocalFaultTest, FailureInsideACollectiveEndsTheGroup) {
  constexpr int64_t kBytes = int64_t{1} << 20;
  auto group = MakeLocalGroup(2, absl::Seconds(60));
  std::vector<absl::Status> statuses[2];
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ContextOptions options;
      options.num_threads = 1;
      // Room for one tensor, not for the sum beside it.
      if (rank == 0) options.memory_budget_bytes = kBytes * 3 / 2;
      auto context = *Context::Create(options);
      const Tensor x = Tensor::Zeros(context->cpu(), {kBytes / 4}, kF32);
      for (int i = 0; i < 2; ++i) {
        statuses[rank].push_back(
            internal::Guard([&] { group[rank]->AllReduceSum(x); }));
      }
      EXPECT_EQ(x.use_count(), 1);  // the context may go before the group
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(statuses[0][0].code(), absl::StatusCode::kResourceExhausted);
  for (const absl::Status& status :
       {statuses[0][1], statuses[1][0], statuses[1][1]}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(status.message(), HasSubstr("rank 0 gave up: out of memory"));
  }
}

TEST(LocalFaultTest, ADeadGroupKeepsNoTensors) {
  auto context = *Context::Create({.num_threads = 1});
  const Tensor x = Tensor::Zeros(context->cpu(), {3}, kF32);
  auto group = MakeLocalGroup(2, absl::Milliseconds(1));
  EXPECT_EQ(internal::Guard([&] { group[0]->AllReduceSum(x); }).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(x.use_count(), 1);
}

TEST(LocalFaultTest, AbortReachesWaitingPeersWithTheReason) {
  const auto statuses = RunRanks(3, [](Communicator& comm) {
    if (comm.rank() == 2) {
      comm.Abort(absl::ResourceExhaustedError("no memory for layer 7"));
      return;
    }
    comm.AllGather(Numbered(comm.rank(), 1, kF32));
  });
  for (const int rank : {0, 1}) {
    const absl::Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(status.message(),
                HasSubstr("rank 2 gave up: no memory for layer 7"));
  }
}

}  // namespace
}  // namespace espalier
