#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/kernel.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 4096;
constexpr int kSeeds = 25;

std::unique_ptr<Context> MakeContext(uint64_t seed) {
  ContextOptions options;
  options.num_threads = 2;
  options.sim_seed = seed;
  auto context = Context::Create(options);
  EXPECT_TRUE(context.ok()) << context.status();
  return *std::move(context);
}

// Two streams and a way to queue work that touches one block.
class SimDeviceTest : public ::testing::Test {
 protected:
  void Start(uint64_t seed) {
    context_ = MakeContext(seed);
    device_ = &context_->sim();
  }
  Stream& compute() { return device_->compute_stream(); }
  Stream& comm() { return device_->comm_stream(); }
  char* Allocate(Stream& stream, int64_t bytes = kBytes) {
    return static_cast<char*>(
        device_->allocator().Allocate(bytes, MemoryTag::kComms, stream));
  }
  static void Write(Stream& stream, const char* op, char* data, char value,
                    int64_t bytes = kBytes) {
    const Access access{data, bytes, /*write=*/true};
    stream.Enqueue(op, absl::MakeConstSpan(&access, 1), [=] {
      std::memset(data, value, static_cast<size_t>(bytes));
    });
  }
  // Adds up what the stream finds.
  static void Sum(Stream& stream, const char* op, const char* data,
                  int64_t* sum) {
    const Access access{data, kBytes, /*write=*/false};
    stream.Enqueue(op, absl::MakeConstSpan(&access, 1), [=] {
      for (int64_t i = 0; i < kBytes; ++i) *sum += data[i];
    });
  }
  // Queues an access that only the judge sees: nothing races for real.
  static void Pretend(Stream& stream, const char* op, const char* data,
                      bool write, int64_t bytes = kBytes) {
    const Access access{data, bytes, write};
    stream.Enqueue(op, absl::MakeConstSpan(&access, 1), [] {});
  }
  static void WaitFor(Stream& waiting, Stream& source) {
    waiting.Wait(source.Record());
  }

  std::unique_ptr<Context> context_;
  Device* device_ = nullptr;
};

TEST_F(SimDeviceTest, OrderedStreamsGiveTheRightResultUnderAnyTiming) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Start(seed);
    int64_t first = 0, second = 0;
    char* const data = Allocate(compute());
    Write(compute(), "produce", data, 1);
    WaitFor(comm(), compute());
    Sum(comm(), "send", data, &first);
    WaitFor(compute(), comm());
    Write(compute(), "overwrite", data, 2);
    Sum(compute(), "read", data, &second);
    compute().Synchronize();
    EXPECT_EQ(first, kBytes);
    EXPECT_EQ(second, 2 * kBytes);
    std::vector<char> host(kBytes);
    device_->CopyToHost(host.data(), data, kBytes);
    EXPECT_EQ(host, std::vector<char>(kBytes, 2));
    device_->allocator().Free(data);
  }
}

TEST_F(SimDeviceTest, LeftOutWaitIsCaughtUnderAnyTiming) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Start(seed);
    char* const data = Allocate(compute());
    Write(compute(), "produce", data, 1);
    const absl::Status status = internal::Guard(
        [&] { Pretend(comm(), "all_reduce", data, /*write=*/false); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("'all_reduce' on sim.comm reads"),
                      HasSubstr("bytes [0, 4096) of block"),
                      HasSubstr("'produce' on sim.compute wrote"),
                      HasSubstr("missing: a wait of sim.comm for an event "
                                "recorded on sim.compute after 'produce'")));
    // The device has failed for good.
    EXPECT_EQ(internal::Guard([&] { compute().Synchronize(); }), status);
    EXPECT_EQ(internal::Guard([&] { Write(compute(), "x", data, 1); }), status);
    EXPECT_EQ(internal::Guard([&] { device_->CopyToHost(nullptr, data, 0); }),
              status);
    device_->allocator().Free(data);
  }
}

TEST_F(SimDeviceTest, EventRecordedTooEarlyIsNoExcuse) {
  Start(1);
  char* const data = Allocate(compute());
  const Event early = compute().Record();
  Write(compute(), "produce", data, 1);
  comm().Wait(early);
  EXPECT_FALSE(internal::Guard([&] {
                 Pretend(comm(), "send", data, /*write=*/false);
               }).ok());
}

TEST_F(SimDeviceTest, WriteAfterReadNeedsAWaitAndTwoReadsDoNot) {
  Start(2);
  char* const data = Allocate(compute());
  WaitFor(comm(), compute());
  Pretend(comm(), "send", data, /*write=*/false);
  Pretend(compute(), "read", data, /*write=*/false);
  const absl::Status status = internal::Guard(
      [&] { Pretend(compute(), "overwrite", data, /*write=*/true); });
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'send' on sim.comm read; missing: a wait"));
}

TEST_F(SimDeviceTest, RangesOfOneBlockAreApart) {
  Start(3);
  char* const data = Allocate(compute());
  WaitFor(comm(), compute());
  Write(compute(), "low", data, 1, kBytes / 2);
  Write(comm(), "high", data + kBytes / 2, 2, kBytes / 2);
  EXPECT_FALSE(internal::Guard([&] {
                 Pretend(comm(), "all", data, /*write=*/false);
               }).ok());
}

TEST_F(SimDeviceTest, WaitsCarryOverThirdPartiesAndTheHost) {
  Start(4);
  char* const data = Allocate(compute());
  char* const other = Allocate(comm());
  Write(comm(), "other", other, 1);
  comm().Synchronize();  // the host knows, and queues after it
  Write(compute(), "produce", data, 1);
  Pretend(compute(), "use other", other, /*write=*/true);
  compute().Synchronize();
  Pretend(comm(), "use data", data, /*write=*/true);
  comm().Synchronize();
}

TEST_F(SimDeviceTest, EarlyFreeIsCaught) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Start(seed);
    char* const data = Allocate(compute());
    WaitFor(comm(), compute());
    Pretend(comm(), "send", data, /*write=*/false);
    device_->allocator().Free(data);
    // The next tenant would have overwritten what is being sent.
    EXPECT_NE(Allocate(compute()), data);
    const absl::Status status =
        internal::Guard([&] { compute().Synchronize(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("is freed while 'send' on sim.comm"),
                      HasSubstr("missing: RecordUse(block, sim.comm)")));
  }
}

TEST_F(SimDeviceTest, FreeWithRecordUseOrAWaitIsSafeUnderAnyTiming) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Start(seed);
    int64_t sums[2] = {0, 0};
    for (int round = 0; round < 2; ++round) {
      char* const data = Allocate(compute());
      Write(compute(), "produce", data, 1);
      WaitFor(comm(), compute());
      Sum(comm(), "send", data, &sums[round]);
      if (round == 0) {
        device_->allocator().RecordUse(data, comm());
      } else {
        WaitFor(compute(), comm());
      }
      device_->allocator().Free(data);
      // At once others take, and write to, what is free.
      for (char value = 2; value < 6; ++value) {
        char* const next = Allocate(compute());
        Write(compute(), "next", next, value);
        device_->allocator().Free(next);
      }
    }
    comm().Synchronize();
    compute().Synchronize();
    EXPECT_EQ(sums[0], kBytes);
    EXPECT_EQ(sums[1], kBytes);
  }
}

TEST_F(SimDeviceTest, WorkMayHoldItsTensors) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Start(seed);
    int64_t sum = 0;
    {
      Tensor tensor = Tensor::Zeros(*device_, {kBytes}, kU8);
      WaitFor(comm(), compute());
      const View view = tensor.view();
      const Access access{view.pointer, kBytes, /*write=*/false};
      comm().Enqueue("send", absl::MakeConstSpan(&access, 1),
                     // The only holder: a handle that the host drops last
                     // is an early free.
                     [tensor = std::move(tensor), view, &sum] {
                       for (int64_t i = 0; i < kBytes; ++i) {
                         sum += view.data<uint8_t>()[i];
                       }
                     });
    }
    const Tensor next = Tensor::Zeros(*device_, {kBytes}, kU8);
    comm().Synchronize();
    compute().Synchronize();
    EXPECT_EQ(sum, 0);
  }
}

TEST_F(SimDeviceTest, FreedAndForeignMemoryIsRefused) {
  Start(5);
  char* const data = Allocate(compute());
  device_->allocator().Free(data);
  const absl::Status freed = internal::Guard(
      [&] { Pretend(compute(), "late", data, /*write=*/false); });
  EXPECT_THAT(std::string(freed.message()),
              HasSubstr("'late' on sim.compute reads 4096 bytes that are in no "
                        "live block"));
  Start(6);
  char host[64] = {};
  EXPECT_FALSE(internal::Guard([&] {
                 Pretend(compute(), "host", host, /*write=*/true, 64);
               }).ok());
  Start(7);
  char* const block = Allocate(compute());
  const absl::Status past = internal::Guard(
      [&] { Pretend(compute(), "long", block, /*write=*/true, kBytes + 1); });
  EXPECT_THAT(std::string(past.message()), HasSubstr("past its end"));
}

TEST_F(SimDeviceTest, NewBlocksOfAnotherStreamNeedAWait) {
  Start(8);
  char* const data = Allocate(compute());
  const absl::Status status = internal::Guard(
      [&] { Pretend(comm(), "receive", data, /*write=*/true); });
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'allocation' on sim.compute wrote"));
}

TEST_F(SimDeviceTest, HostReadWithoutACopyIsRefused) {
  Start(9);
  const Tensor tensor = Tensor::Zeros(*device_, {3}, kF32);
  const absl::Status status =
      internal::Guard([&] { (void)tensor.data<float>(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("copy with ToHost()"));
  EXPECT_EQ(ToDoubles(tensor), (std::vector<double>{0, 0, 0}));
}

TEST_F(SimDeviceTest, FreshAndFreedMemoryReadsNaN) {
  Start(10);
  const Tensor tensor = Tensor::Empty(*device_, {5}, kF32);
  for (const double value : ToDoubles(tensor)) EXPECT_NE(value, value);
}

TEST_F(SimDeviceTest, FailureOfQueuedWorkSurfacesAtSynchronizeAndStays) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Start(seed);
    bool ran = false;
    // The failure meets whichever call comes after it.
    const absl::Status status = internal::Guard([&] {
      compute().Enqueue("broken", {}, [] {
        internal::Fail(absl::DataLossError("a bit flipped"));
      });
      WaitFor(comm(), compute());
      comm().Enqueue("after", {}, [&ran] { ran = true; });
      comm().Synchronize();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), "sim: 'broken' on sim.compute: a bit flipped");
    EXPECT_FALSE(ran);
    EXPECT_EQ(internal::Guard([&] { compute().Synchronize(); }), status);
    EXPECT_EQ(
        internal::Guard([&] { (void)Tensor::Zeros(*device_, {1}, kF32); }),
        status);
  }
}

TEST_F(SimDeviceTest, EventsPassInTime) {
  Start(11);
  const Event start = compute().Record();
  EXPECT_TRUE(compute().Passed(start));
  std::atomic<bool> open = false;
  compute().Enqueue("hold", {}, [&open] {
    while (!open) std::this_thread::yield();
  });
  const Event end = compute().Record();
  EXPECT_FALSE(compute().Passed(end));
  EXPECT_TRUE(compute().Passed(start));
  open = true;
  compute().Synchronize();
  EXPECT_TRUE(compute().Passed(end));
}

// y[i] = a * x[i] + y[i], rows over the pool.
struct AxpyArgs {
  View x, y;
  double a;
};

void AxpyCpu(const AxpyArgs& args, const Exec& exec) {
  const float* x = args.x.data<float>();
  float* y = args.y.data<float>();
  const auto a = static_cast<float>(args.a);
  exec.pool.ParallelFor(args.y.num_elements(), 100,
                        [=](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            y[i] = a * x[i] + y[i];
                          }
                        });
}

constexpr Kernel<AxpyArgs> kAxpy[] = {{kCpu, kF32, AxpyCpu}};

Tensor Chain(Device& device) {
  std::vector<float> values(1003);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 1.0f / static_cast<float>(i + 3);
  }
  Tensor x = Tensor::FromHost<float>(device, {1003}, values);
  for (int step = 0; step < 30; ++step) {
    Tensor y = Tensor::Zeros(device, {1003}, kF32);
    const AxpyArgs args{x.view(), y.view(), 1.0 + 0.1 / (step + 1)};
    Launch("axpy", kAxpy, y, args, {&x, &y}, {&y});
    x = y;  // frees the old one while its reader may still be queued
  }
  return x.ToHost();
}

TEST_F(SimDeviceTest, ChainOfKernelsHasTheBitsOfTheCpu) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Start(seed);
    const Tensor expected = Chain(context_->cpu());
    const Tensor got = Chain(*device_);
    const auto bits = [](const Tensor& tensor) {
      std::vector<uint32_t> out(1003);
      std::memcpy(out.data(), tensor.data<float>(), 1003 * sizeof(float));
      return out;
    };
    EXPECT_EQ(bits(expected), bits(got));
  }
}

}  // namespace

}  // namespace espalier
