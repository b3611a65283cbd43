#include "espalier/autograd/saved_hooks.h"

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/node.h"
#include "espalier/autograd/offload.h"
#include "espalier/autograd/recompute.h"
#include "espalier/autograd/saved.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/op_check.h"
#include "espalier/tests/support/tiny_ops.h"

namespace espalier {
namespace {

using autograd::FileOffload;
using autograd::RecomputePolicy;
using autograd::SavedTensorHooks;
using autograd::SavedTensorScope;
using test::Leaf;
using test::TinyAdd;
using test::TinyExpensive;
using test::TinyMul;
using test::TinyNode;
using test::TinySin;
using ::testing::HasSubstr;

using Inputs = absl::Span<const Variable>;

constexpr int64_t kCount = 1 << 14;
constexpr int64_t kBytes = kCount * 8;

int64_t HeldActivations() {
  return test::Cpu().allocator().stats().by_tag[static_cast<size_t>(
      MemoryTag::kActivations)];
}

Variable Model(RecomputePolicy policy, const Variable& x, const Variable& w) {
  Variable y = TinySin(x);
  for (int layer = 0; layer < 3; ++layer) {
    y = autograd::RecomputeOne(policy, "layer", {&y, 1}, [w](Inputs in) {
      int runs = 0;
      const Variable a = TinyExpensive(TinySin(in[0]), w, &runs);
      return TinyMul(TinyAdd(TinySin(a), in[0]), TinySin(a));
    });
  }
  return y;
}

struct Outcome {
  std::vector<double> value, dx, dw;
  int64_t held = 0;  // between forward and backward, beside leaves and root
  autograd::SavedBytes saved;
};

Outcome RunModel(RecomputePolicy policy, SavedTensorHooks* hooks) {
  const Variable x = Leaf(kCount, 1);
  const Variable w = Leaf(kCount, 2);
  const int64_t before = HeldActivations();
  Variable y;
  {
    const SavedTensorScope scope(hooks);
    y = Model(policy, x, w);
  }
  Outcome outcome;
  outcome.held = HeldActivations() - before - kBytes;
  outcome.saved = autograd::CountSaved({&y, 1}).total;
  autograd::Backward(y, y.value());
  EXPECT_EQ(HeldActivations() - before, kBytes);
  outcome.value = ToDoubles(y.value());
  outcome.dx = ToDoubles(x.grad());
  outcome.dw = ToDoubles(w.grad());
  return outcome;
}

// Maps of files without a name.
int NumUnnamedMaps() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("(deleted)") != std::string::npos) ++count;
  }
  return count;
}

TEST(FileOffloadTest, SameBitsAndLessMemoryUnderEveryPolicy) {
  const int maps = NumUnnamedMaps();
  const Outcome want = RunModel(RecomputePolicy::kNone, nullptr);
  EXPECT_EQ(want.held, want.saved.activations);
  for (const RecomputePolicy policy :
       {RecomputePolicy::kNone, RecomputePolicy::kSelective,
        RecomputePolicy::kFull}) {
    const Outcome kept = RunModel(policy, nullptr);
    // Three storages to a chunk, so that there are several.
    FileOffload files(::testing::TempDir(),
                      {.min_bytes = 0, .chunk_bytes = 3 * kBytes});
    const Outcome moved = RunModel(policy, &files);
    EXPECT_EQ(moved.value, want.value);
    EXPECT_EQ(moved.dx, want.dx);
    EXPECT_EQ(moved.dw, want.dw);
    EXPECT_GT(kept.held, 0);
    EXPECT_EQ(moved.held, 0);
    EXPECT_EQ(moved.saved.activations, 0);
    EXPECT_EQ(moved.saved.moved, kept.saved.activations);
    EXPECT_EQ(moved.saved.leaves, kept.saved.leaves);
    // Only the chunk being filled is left.
    EXPECT_LE(NumUnnamedMaps() - maps, 1);
  }
  EXPECT_EQ(NumUnnamedMaps(), maps);
}

TEST(FileOffloadTest, DroppedGraphGivesTheSpaceBack) {
  const int maps = NumUnnamedMaps();
  {
    FileOffload files(::testing::TempDir(),
                      {.min_bytes = 0, .chunk_bytes = kBytes});
    const SavedTensorScope scope(&files);
    const Variable y =
        Model(RecomputePolicy::kNone, Leaf(kCount, 1), Leaf(kCount, 2));
    EXPECT_GT(NumUnnamedMaps(), maps + 5);
  }
  EXPECT_EQ(NumUnnamedMaps(), maps);
}

TEST(FileOffloadTest, SmallStoragesAndLeavesStay) {
  FileOffload files(::testing::TempDir(), {.min_bytes = kBytes + 1});
  const Outcome small = RunModel(RecomputePolicy::kNone, &files);
  EXPECT_EQ(small.saved.moved, 0);
  EXPECT_EQ(small.held, small.saved.activations);
}

TEST(FileOffloadTest, MissingFolderIsAFailure) {
  FileOffload files(::testing::TempDir() + "/no/such/folder", {.min_bytes = 0});
  const absl::Status status = internal::Guard([&] {
    const SavedTensorScope scope(&files);
    Model(RecomputePolicy::kNone, Leaf(kCount, 1), Leaf(kCount, 2));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no/such/folder"));
  // The scope ended with it.
  EXPECT_TRUE(TinySin(Leaf(1, 1)).needs_grad());
}

TEST(FileOffloadTest, MetaTensorsAreCountedAway) {
  Device& meta = test::Cpu().context().meta();
  FileOffload files("/no/such/folder", {.min_bytes = 0});
  const Variable x(Tensor::Empty(meta, {kCount}, kF64), true);
  const Variable source(Tensor::Empty(meta, {kCount}, kF64));
  const auto held = [&] {
    return meta.allocator()
        .stats()
        .by_tag[static_cast<size_t>(MemoryTag::kActivations)];
  };
  const int64_t before = held();
  Variable y;
  {
    const SavedTensorScope scope(&files);
    y = autograd::Record(
        Tensor::Empty(meta, {kCount}, kF64),
        std::make_unique<TinyNode>(
            "meta", std::vector<Tensor>{Tensor::Empty(meta, {kCount}, kF64)},
            [](TinyNode& node, absl::Span<const Tensor>) {
              EXPECT_EQ(node.saved[0].shape(), (Shape{kCount}));
              return std::vector<Tensor>{EmptyLike(node.saved[0])};
            }),
        {&x});
  }
  EXPECT_EQ(held() - before, kBytes);  // y
  autograd::Backward(y, source.value());
  EXPECT_TRUE(x.grad());
}

// Keeps copies on the heap of the test, and says what it was given.
class Recorder final : public SavedTensorHooks {
 public:
  std::unique_ptr<autograd::PackedBytes> Pack(absl::string_view,
                                              const Tensor& bytes) override {
    ++packed;
    return std::make_unique<Copy>(bytes.CopyTo(bytes.device()), *this);
  }
  int packed = 0;
  int unpacked = 0;
  int64_t missing = 0;  // bytes that Unpack leaves out

 private:
  class Copy final : public autograd::PackedBytes {
   public:
    Copy(Tensor bytes, Recorder& recorder)
        : bytes_(std::move(bytes)), recorder_(recorder) {}
    Tensor Unpack() override {
      ++recorder_.unpacked;
      return bytes_.Slice(0, 0, bytes_.dim(0) - recorder_.missing)
          .CopyTo(bytes_.device());
    }

   private:
    const Tensor bytes_;
    Recorder& recorder_;
  };
};

TEST(SavedTensorScopeTest, StorageOfSeveralViewsIsPackedOnce) {
  const Variable x(test::Normal({4, 6}, 1).value(), true);
  std::vector<std::vector<double>> want;
  for (const bool hooked : {false, true}) {
    Recorder recorder;
    Variable y;
    {
      const SavedTensorScope scope(hooked ? &recorder : nullptr);
      const Variable a = TinySin(x);
      const Tensor v = a.value();
      const std::vector<Tensor> views{
          v.Slice(1, 1, 2), v.Transpose(0, 1),
          v.Slice(0, 2, 1), v,
          Tensor(),         v.Reshape({24}).Slice(0, 5, 3)};
      y = autograd::Record(
          v,
          std::make_unique<TinyNode>(
              "views", views,
              [&want, views](TinyNode& node, absl::Span<const Tensor> dy) {
                for (size_t i = 0; i < views.size(); ++i) {
                  if (i == 4) {
                    EXPECT_FALSE(node.saved[i]);
                    continue;
                  }
                  EXPECT_EQ(node.saved[i].shape(), views[i].shape());
                  EXPECT_TRUE(node.saved[i].SharesStorage(node.saved[0]));
                  want.push_back(ToDoubles(node.saved[i]));
                }
                return std::vector<Tensor>{dy[0]};
              }),
          {&a});
      y = TinySin(y);  // the same storage again
    }
    autograd::Backward(y, y.value());
    EXPECT_EQ(recorder.packed, hooked ? 1 : 0);
    EXPECT_EQ(recorder.unpacked, hooked ? 1 : 0);
  }
  ASSERT_EQ(want.size(), 10u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(want[i], want[i + 5]) << i;
}

TEST(SavedTensorScopeTest, LaterStoragesAreNotTakenForEarlierOnes) {
  std::vector<std::vector<double>> want;
  for (const bool hooked : {false, true}) {
    Recorder recorder;
    const SavedTensorScope scope(hooked ? &recorder : nullptr);
    const Variable x = Leaf(8, 1);
    Variable y = TinySin(x);
    // Storages come and go, at the same addresses.
    for (int i = 0; i < 50; ++i) y = TinySin(TinyMul(y, x));
    autograd::Backward(y, y.value());
    const std::vector<std::vector<double>> got{ToDoubles(x.grad())};
    if (want.empty()) want = got;
    EXPECT_EQ(got, want);
    EXPECT_EQ(recorder.packed, hooked ? 100 : 0);
  }
}

TEST(SavedTensorScopeTest, InnerScopesReplaceOuterOnes) {
  Recorder outer, inner;
  const Variable x = Leaf(8, 1);
  const SavedTensorScope outer_scope(&outer);
  const Variable a = TinySin(TinySin(x));
  EXPECT_EQ(outer.packed, 1);
  {
    const SavedTensorScope off(nullptr);
    TinySin(TinySin(a));
    EXPECT_EQ(outer.packed, 1);
    const SavedTensorScope inner_scope(&inner);
    TinySin(a);
    EXPECT_EQ(inner.packed, 1);
  }
  TinySin(a);
  EXPECT_EQ(outer.packed, 2);
}

TEST(SavedTensorScopeTest, SecondRunOfARegionPacksNothing) {
  Recorder recorder;
  const SavedTensorScope scope(&recorder);
  const Variable x = Leaf(8, 1);
  const Variable w = Leaf(8, 1);
  const Variable y = Model(RecomputePolicy::kFull, x, w);
  EXPECT_EQ(recorder.packed, 3);  // the layers' inputs
  autograd::Backward(y, y.value());
  EXPECT_EQ(recorder.packed, 3);
  EXPECT_EQ(recorder.unpacked, 3);
}

TEST(SavedTensorScopeTest, ViewsDoNotFitOnSmallerStorages) {
  const Tensor whole = Tensor::Zeros(test::Cpu(), {4, 6}, kF64);
  const Tensor view = whole.Slice(0, 1, 2).Slice(1, 2, 3);
  const Tensor window = view.WithoutBytes();
  EXPECT_FALSE(window);
  // Its last element is number 6 + 6 + 4 of the storage.
  const auto on = [&](int64_t bytes) {
    return internal::Guard([&] {
      (void)window.OnBytes(Tensor::Zeros(test::Cpu(), {bytes}, kU8));
    });
  };
  EXPECT_TRUE(on(136).ok());  // 17 * 8
  EXPECT_FALSE(on(135).ok());
  EXPECT_FALSE(internal::Guard([&] { (void)window.OnBytes(whole); }).ok());
  EXPECT_EQ(ToString(window.OnBytes(whole.AsBytes())), ToString(view));
}

TEST(SavedTensorScopeTest, WrongBytesAreRefusedByName) {
  Recorder recorder;
  recorder.missing = 8;
  const Variable x = Leaf(8, 1);
  Variable y;
  {
    const SavedTensorScope scope(&recorder);
    y = TinySin(TinySin(x));
  }
  const absl::Status status =
      internal::Guard([&] { autograd::Backward(y, y.value()); });
  EXPECT_THAT(status.message(),
              HasSubstr("tiny_sin: saved came back as u8 [56] on cpu, expected "
                        "64 bytes on cpu"));
}

TEST(DeviceOffloadTest, BytesOfTheTargetStay) {
  autograd::DeviceOffload hooks(test::Cpu());
  const Outcome outcome = RunModel(RecomputePolicy::kNone, &hooks);
  EXPECT_EQ(outcome.saved.moved, 0);
}

TEST(DeviceOffloadTest, SameBitsByWayOfAnotherDevice) {
  Device* sim = nullptr;
  const absl::Status status =
      internal::Guard([&] { sim = &test::Cpu().context().sim(); });
  if (!status.ok()) GTEST_SKIP() << status.ToString();
  autograd::DeviceOffload hooks(*sim);
  const Outcome want = RunModel(RecomputePolicy::kNone, nullptr);
  for (const RecomputePolicy policy :
       {RecomputePolicy::kNone, RecomputePolicy::kFull}) {
    const Outcome moved = RunModel(policy, &hooks);
    EXPECT_EQ(moved.value, want.value);
    EXPECT_EQ(moved.dx, want.dx);
    EXPECT_EQ(moved.dw, want.dw);
    EXPECT_EQ(moved.held, 0);
    EXPECT_GT(moved.saved.moved, 0);
  }
  EXPECT_EQ(sim->allocator().stats().allocated, 0);
}

}  // namespace
}  // namespace espalier
