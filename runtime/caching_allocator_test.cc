#include "espalier/runtime/caching_allocator.h"

#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/guard.h"
#include "espalier/runtime/internal/allocation_trace.h"
#include "espalier/runtime/internal/asan.h"
#include "espalier/runtime/internal/block_size.h"
#include "espalier/runtime/stream.h"

namespace espalier {

namespace {

using internal::BlockBytes;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
// Leaves room for the red zone of AddressSanitizer builds.
constexpr int64_t kMargin = internal::kAsan ? 512 : 0;

// Runs work at once, but events pass only when the test says so.
class ManualStream final : public Stream {
 public:
  absl::string_view name() const override { return "manual"; }
  void Enqueue(absl::string_view, absl::Span<const Access>,
               std::function<void()> work) override {
    work();
  }
  Event Record() override { return {this, ++recorded_}; }
  void Wait(const Event&) override {}
  bool Passed(const Event& event) const override {
    return !held_ || event.position <= passed_;
  }
  void Synchronize() override {
    ++synchronized_;
    passed_ = recorded_;
  }

  void Hold() {
    passed_ = recorded_;
    held_ = true;
  }
  void Let() { held_ = false; }
  int synchronized() const { return synchronized_; }

 private:
  uint64_t recorded_ = 0;
  uint64_t passed_ = 0;
  bool held_ = false;
  int synchronized_ = 0;
};

std::unique_ptr<Allocator> MakeHost(
    std::optional<int64_t> budget_bytes = std::nullopt, bool poison = false) {
  return MakeCachingAllocator(internal::MakeHostMemory(),
                              {.device = "test",
                               .budget_bytes = budget_bytes,
                               .poison = poison,
                               .host_memory = true});
}

TEST(CachingAllocatorTest, CountsToTheByte) {
  auto allocator = MakeHost();
  ManualStream stream;
  void* const small = allocator->Allocate(100, MemoryTag::kWeights, stream);
  void* const large =
      allocator->Allocate(3 * kMiB + 1, MemoryTag::kActivations, stream);
  MemoryStats stats = allocator->stats();
  EXPECT_EQ(stats.requested, 100 + 3 * kMiB + 1);
  EXPECT_EQ(stats.allocated, 128 + 3 * kMiB + 512);
  EXPECT_EQ(stats.by_tag[0], 128);
  EXPECT_EQ(stats.by_tag[1], 3 * kMiB + 512);
  EXPECT_EQ(stats.num_allocations, 2);
  EXPECT_GE(stats.reserved, stats.allocated);
  EXPECT_EQ(stats.peak_reserved, stats.reserved);
  allocator->Free(large);
  allocator->ResetPeak();
  allocator->Free(small);
  stats = allocator->stats();
  EXPECT_EQ(stats.allocated, 0);
  EXPECT_EQ(stats.requested, 0);
  EXPECT_EQ(stats.peak_allocated, 128);
  EXPECT_EQ(stats.peak_by_tag[1], 0);
  EXPECT_GE(stats.largest_free, 3 * kMiB);
  allocator->ReleaseCached();
  EXPECT_EQ(allocator->stats().reserved, 0);
}

TEST(CachingAllocatorTest, ZeroBytesGiveBlocksOfTheirOwn) {
  auto allocator = MakeHost();
  ManualStream stream;
  void* const a = allocator->Allocate(0, MemoryTag::kWeights, stream);
  void* const b = allocator->Allocate(0, MemoryTag::kWeights, stream);
  EXPECT_NE(a, nullptr);
  EXPECT_NE(a, b);
  EXPECT_EQ(allocator->stats().allocated, 128);
  allocator->Free(a);
  allocator->Free(b);
  allocator->Free(b);        // left alone
  allocator->Free(nullptr);  // left alone
  EXPECT_EQ(allocator->stats().allocated, 0);
}

TEST(CachingAllocatorTest, RefusesWhatNoMachineHas) {
  auto allocator = MakeHost();
  ManualStream stream;
  for (const int64_t bytes : {int64_t{1} << 45, int64_t{1} << 55, INT64_MAX}) {
    const absl::Status status = internal::Guard([&] {
      (void)allocator->Allocate(bytes, MemoryTag::kGradients, stream);
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(bytes, " bytes")));
    EXPECT_THAT(status.message(), HasSubstr("for gradients"));
  }
  EXPECT_EQ(allocator->stats().allocated, 0);
  EXPECT_FALSE(internal::Guard([&] {
                 (void)allocator->Allocate(-1, MemoryTag::kComms, stream);
               }).ok());
}

TEST(CachingAllocatorTest, BudgetIsHardAndItsMessageHelps) {
  auto allocator = MakeHost(64 * kMiB);
  ManualStream stream;
  std::vector<void*> blocks;
  blocks.reserve(16);
  for (int i = 0; i < 16; ++i) {
    blocks.push_back(allocator->Allocate(4 * kMiB - kMargin,
                                         MemoryTag::kActivations, stream));
  }
  const absl::Status status = internal::Guard(
      [&] { (void)allocator->Allocate(100, MemoryTag::kWorkspace, stream); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("on test: 100 bytes"));
  EXPECT_THAT(message, HasSubstr("for workspace"));
  EXPECT_THAT(message, HasSubstr("budget 64.0 MiB"));
  EXPECT_THAT(message, HasSubstr("activations        64.0 MiB"));
  const size_t recompute = message.find("recompute");
  const size_t micro_batch = message.find("micro-batch");
  const size_t zero = message.find("ZeRO");
  const size_t parallel = message.find("expert or tensor parallelism");
  EXPECT_LT(recompute, micro_batch);
  EXPECT_LT(micro_batch, zero);
  EXPECT_LT(zero, parallel);
  EXPECT_NE(parallel, std::string::npos);
  // Every other block gone: 32 MiB free, in pieces of 4. What is asked for
  // next gets the memory of the pieces at another address.
  for (size_t i = 0; i < blocks.size(); i += 2) allocator->Free(blocks[i]);
  void* const whole =
      allocator->Allocate(30 * kMiB, MemoryTag::kActivations, stream);
  std::memset(whole, 1, 30 * kMiB);
  EXPECT_LE(allocator->stats().peak_reserved, 64 * kMiB);
}

// Without a budget too, memory goes where it is needed: holes cost addresses.
TEST(CachingAllocatorTest, HolesGiveTheirMemoryToWhatDoesNotFitIntoThem) {
  auto allocator = MakeHost();
  ManualStream stream;
  std::vector<void*> blocks;
  blocks.reserve(32);
  for (int i = 0; i < 32; ++i) {
    blocks.push_back(
        allocator->Allocate(4 * kMiB - kMargin, MemoryTag::kWeights, stream));
  }
  for (size_t i = 0; i < blocks.size(); i += 2) allocator->Free(blocks[i]);
  void* const whole =
      allocator->Allocate(50 * kMiB, MemoryTag::kActivations, stream);
  EXPECT_EQ(allocator->stats().peak_reserved, 128 * kMiB);
  allocator->Free(whole);
  for (size_t i = 0; i < blocks.size(); i += 2) {
    (void)allocator->Allocate(4 * kMiB - kMargin, MemoryTag::kWeights, stream);
  }
  EXPECT_LE(allocator->stats().peak_reserved, 132 * kMiB);  // with slack
}

TEST(CachingAllocatorTest, SmallBudgetsHaveFineChunks) {
  for (const int64_t budget : {kMiB / 2, kMiB, 3 * kMiB, 64 * kMiB}) {
    auto allocator = MakeHost(budget);
    ManualStream stream;
    for (int i = 0; i < 7; ++i) {
      (void)allocator->Allocate(budget / 8, MemoryTag::kWeights, stream);
    }
    EXPECT_LE(allocator->stats().reserved, budget);
    EXPECT_FALSE(internal::Guard([&] {
                   (void)allocator->Allocate(budget / 4, MemoryTag::kWeights,
                                             stream);
                 }).ok());
  }
}

TEST(CachingAllocatorTest, FreedBlockServesItsOwnStreamAtOnce) {
  auto allocator = MakeHost();
  ManualStream stream, other;
  stream.Hold();
  for (const int64_t bytes : {int64_t{64}, 5 * kMiB}) {
    void* const first = allocator->Allocate(bytes, MemoryTag::kComms, stream);
    allocator->Free(first);
    void* const elsewhere =
        allocator->Allocate(bytes, MemoryTag::kComms, other);
    EXPECT_NE(elsewhere, first);
    EXPECT_EQ(allocator->Allocate(bytes, MemoryTag::kComms, stream), first);
  }
}

TEST(CachingAllocatorTest, BlockUsedElsewhereWaitsForThatWork) {
  auto allocator = MakeHost();
  ManualStream stream, comm;
  for (const int64_t bytes : {int64_t{64}, 5 * kMiB}) {
    void* const first = allocator->Allocate(bytes, MemoryTag::kComms, stream);
    allocator->RecordUse(first, comm);
    allocator->RecordUse(first, comm);
    allocator->RecordUse(first, stream);
    comm.Hold();
    allocator->Free(first);
    EXPECT_EQ(allocator->stats().by_tag[5], 0);
    void* const second = allocator->Allocate(bytes, MemoryTag::kComms, stream);
    EXPECT_NE(second, first);
    comm.Let();
    EXPECT_EQ(allocator->Allocate(bytes, MemoryTag::kComms, stream), first);
    allocator->Free(first);
    allocator->Free(second);
  }
}

TEST(CachingAllocatorTest, WaitsForStreamsBeforeItFails) {
  auto allocator = MakeHost(64 * kMiB);
  ManualStream stream, comm;
  void* const block = allocator->Allocate(40 * kMiB, MemoryTag::kComms, stream);
  allocator->RecordUse(block, comm);
  comm.Hold();
  allocator->Free(block);
  EXPECT_EQ(allocator->Allocate(40 * kMiB, MemoryTag::kComms, stream), block);
  EXPECT_EQ(comm.synchronized(), 1);
}

TEST(CachingAllocatorTest, ReleaseSparesStreamsWithWorkQueued) {
  auto allocator = MakeHost();
  ManualStream stream;
  allocator->Free(
      allocator->Allocate(8 * kMiB - kMargin, MemoryTag::kComms, stream));
  stream.Hold();
  allocator->ReleaseCached();
  EXPECT_EQ(allocator->stats().reserved, 8 * kMiB);
  stream.Let();
  allocator->ReleaseCached();
  EXPECT_EQ(allocator->stats().reserved, 0);
}

TEST(CachingAllocatorTest, PoisonFillsAtAllocationAndAtFree) {
  auto allocator = MakeHost(std::nullopt, /*poison=*/true);
  ManualStream stream;
  constexpr size_t kFloats = 1000;
  auto* const values = static_cast<float*>(allocator->Allocate(
      kFloats * sizeof(float), MemoryTag::kActivations, stream));
  for (size_t i = 0; i < kFloats; ++i) {
    ASSERT_NE(values[i], values[i]);
    values[i] = 1;
  }
  allocator->Free(values);
  internal::AllowAccess(values, kFloats * sizeof(float));
  for (size_t i = 0; i < kFloats; ++i) ASSERT_NE(values[i], values[i]);
  internal::ForbidAccess(values, kFloats * sizeof(float));
}

#ifdef ESPALIER_ASAN
TEST(CachingAllocatorTest, AddressSanitizerSeesFreedBlocksAndOverruns) {
  auto allocator = MakeHost();
  ManualStream stream;
  for (const int64_t bytes : {int64_t{100}, 512 * int64_t{100}}) {
    auto* const data = static_cast<char*>(
        allocator->Allocate(bytes, MemoryTag::kActivations, stream));
    data[bytes - 1] = 1;
    EXPECT_TRUE(__asan_address_is_poisoned(data + bytes));
    allocator->Free(data);
    EXPECT_TRUE(__asan_address_is_poisoned(data));
    EXPECT_EQ(data,
              allocator->Allocate(bytes, MemoryTag::kActivations, stream));
    EXPECT_FALSE(__asan_address_is_poisoned(data));
  }
}
#endif

// Sizes as training has them: many small, few large.
int64_t RandomBytes(std::mt19937_64& random) {
  const auto bits = static_cast<int>(random() % 23);
  return static_cast<int64_t>(random() % (uint64_t{1} << bits));
}

// A shadow of the live blocks: no two overlap, each keeps its content, the
// statistics agree, and in the end everything has merged again.
TEST(CachingAllocatorTest, RandomWorkloadKeepsItsInvariants) {
  auto allocator = MakeHost();
  ManualStream streams[2];
  std::mt19937_64 random(7);
  struct Live {
    int64_t bytes;
    char mark;
  };
  std::map<char*, Live> live;
  std::vector<char*> order;
  MemoryStats expected;
  const auto check_and_free = [&](size_t index) {
    std::swap(order[index], order.back());
    char* const data = order.back();
    order.pop_back();
    const Live block = live[data];
    if (block.bytes > 0) {
      ASSERT_EQ(data[0], block.mark);
      ASSERT_EQ(data[block.bytes - 1], block.mark);
    }
    live.erase(data);
    expected.allocated -= BlockBytes(block.bytes);
    expected.requested -= block.bytes;
    allocator->Free(data);
  };
  for (int op = 0; op < 100000; ++op) {
    if (op % 20000 == 19999) allocator->ReleaseCached();
    if (order.size() > 300 || (!order.empty() && random() % 2 == 0)) {
      check_and_free(random() % order.size());
      continue;
    }
    const Live block{RandomBytes(random), static_cast<char>(op)};
    auto* const data = static_cast<char*>(allocator->Allocate(
        block.bytes, MemoryTag::kActivations, streams[random() % 2]));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    const auto next = live.lower_bound(data);
    if (next != live.end()) {
      ASSERT_LE(data + BlockBytes(block.bytes), next->first);
    }
    if (next != live.begin()) {
      const auto& [before, other] = *std::prev(next);
      ASSERT_LE(before + BlockBytes(other.bytes), data);
    }
    if (block.bytes > 0) {
      data[0] = block.mark;
      data[block.bytes - 1] = block.mark;
    }
    live[data] = block;
    order.push_back(data);
    expected.allocated += BlockBytes(block.bytes);
    expected.requested += block.bytes;
    expected.peak_allocated =
        std::max(expected.peak_allocated, expected.allocated);
    const MemoryStats stats = allocator->stats();
    ASSERT_EQ(stats.allocated, expected.allocated);
    ASSERT_EQ(stats.requested, expected.requested);
    ASSERT_EQ(stats.peak_allocated, expected.peak_allocated);
    ASSERT_GE(stats.reserved, stats.allocated);
  }
  while (!order.empty()) check_and_free(order.size() - 1);
  EXPECT_EQ(allocator->stats().allocated, 0);
  allocator->ReleaseCached();
  EXPECT_EQ(allocator->stats().reserved, 0);
}

// A dry run needs no memory and counts the same.
TEST(CachingAllocatorTest, MetaCountsWhatTheHostHolds) {
  auto host = MakeHost();
  auto meta =
      MakeCachingAllocator(internal::MakeNoMemory(), {.device = "meta"});
  ManualStream stream;
  std::mt19937_64 random(3);
  std::vector<std::pair<void*, void*>> live;
  for (int op = 0; op < 20000; ++op) {
    if (live.size() > 200 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      host->Free(live.back().first);
      meta->Free(live.back().second);
      live.pop_back();
    } else {
      const int64_t bytes = RandomBytes(random);
      const auto tag = static_cast<MemoryTag>(random() % kNumMemoryTags);
      live.emplace_back(host->Allocate(bytes, tag, stream),
                        meta->Allocate(bytes, tag, stream));
    }
  }
  const MemoryStats a = host->stats();
  const MemoryStats b = meta->stats();
  EXPECT_EQ(a.allocated, b.allocated);
  EXPECT_EQ(a.peak_allocated, b.peak_allocated);
  EXPECT_EQ(a.by_tag, b.by_tag);
  EXPECT_EQ(a.peak_by_tag, b.peak_by_tag);
  EXPECT_EQ(a.peak_reserved, b.peak_reserved);
  // More than any machine: 16 TiB of weights.
  for (int i = 0; i < 16; ++i) {
    (void)meta->Allocate(int64_t{1} << 40, MemoryTag::kWeights, stream);
  }
}

// Steps of lengths an eighth apart leave no holes behind, within one range of
// address space (of 1024 tokens at most) or over several (of 16384).
TEST(CachingAllocatorTest, VaryingLengthsDoNotFragment) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    internal::TraceOptions options;
    options.seed = seed;
    if (seed > 5) {
      options.min_tokens *= 16;
      options.max_tokens *= 16;
    }
    const internal::AllocationTrace trace =
        internal::TraceWriter(options).Write();
    auto meta =
        MakeCachingAllocator(internal::MakeNoMemory(), {.device = "meta"});
    ManualStream stream;
    std::vector<void*> blocks(static_cast<size_t>(trace.num_blocks));
    for (const internal::TraceOp& op : trace.ops) {
      void*& block = blocks[static_cast<size_t>(op.block)];
      if (op.bytes >= 0) {
        block = meta->Allocate(op.bytes, op.tag, stream);
      } else {
        meta->Free(block);
      }
    }
    const MemoryStats stats = meta->stats();
    EXPECT_LT(stats.fragmentation_at_peak, 0.05) << ToString(stats);
    EXPECT_LT(static_cast<double>(stats.peak_reserved),
              1.05 * static_cast<double>(trace.peak_bytes));
  }
}

TEST(CachingAllocatorTest, TwoAllocatorsKnowNothingOfEachOther) {
  auto a = MakeHost(64 * kMiB);
  auto b = MakeHost(64 * kMiB);
  ManualStream stream;
  void* const block = a->Allocate(40 * kMiB, MemoryTag::kWeights, stream);
  EXPECT_EQ(b->stats().reserved, 0);
  (void)b->Allocate(40 * kMiB, MemoryTag::kWeights, stream);
  b->Free(block);  // left alone
  EXPECT_EQ(a->stats().allocated, 40 * kMiB);
  EXPECT_EQ(b->stats().allocated, 40 * kMiB);
}

TEST(CachingAllocatorTest, ThreadsShareIt) {
  auto allocator = MakeHost();
  ManualStream streams[4];
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&allocator, &stream = streams[t], t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      std::vector<std::pair<char*, int64_t>> live;
      for (int op = 0; op < 5000; ++op) {
        if (live.size() > 40 || (!live.empty() && random() % 2 == 0)) {
          std::swap(live[random() % live.size()], live.back());
          const auto [data, bytes] = live.back();
          EXPECT_TRUE(bytes == 0 || data[bytes / 2] == static_cast<char>(t));
          allocator->Free(data);
          live.pop_back();
        } else {
          const int64_t bytes = RandomBytes(random) / 64;
          auto* const data = static_cast<char*>(
              allocator->Allocate(bytes, MemoryTag::kActivations, stream));
          if (bytes > 0) data[bytes / 2] = static_cast<char>(t);
          live.emplace_back(data, bytes);
        }
      }
      for (const auto& [data, bytes] : live) allocator->Free(data);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator->stats().allocated, 0);
}

}  // namespace

}  // namespace espalier
