#include "espalier/runtime/tensor.h"

#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TensorTest : public ::testing::Test {
 protected:
  // 0, 1, 2, ... in row-major order.
  Tensor Iota(const Shape& shape) {
    std::vector<float> values(static_cast<size_t>(shape.num_elements()));
    std::iota(values.begin(), values.end(), 0.0f);
    return Tensor::FromHost<float>(cpu_, shape, values);
  }
  template <typename Fn>
  static std::string RefusalOf(Fn fn) {
    const absl::Status status = internal::Guard(fn);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    return std::string(status.message());
  }
  int64_t Allocated() { return cpu_.allocator().stats().allocated; }

  std::unique_ptr<Context> context_ = *Context::Create({.num_threads = 2});
  Device& cpu_ = context_->cpu();
  Device& meta_ = context_->meta();
};

TEST_F(TensorTest, AbsentTensor) {
  const Tensor absent;
  EXPECT_FALSE(absent);
  EXPECT_FALSE(absent.view());
  EXPECT_EQ(ToString(absent), "absent");
  EXPECT_FALSE(absent.SharesStorage(absent));
  EXPECT_THAT(RefusalOf([&] { absent.device(); }), HasSubstr("absent"));
  EXPECT_THAT(RefusalOf([&] { absent.data<float>(); }), HasSubstr("absent"));
}

TEST_F(TensorTest, EmptyIsContiguousAndCounted) {
  {
    const Tensor x = Tensor::Empty(cpu_, {2, 3, 5}, kBF16);
    EXPECT_EQ(x.shape(), Shape({2, 3, 5}));
    EXPECT_EQ(x.stride(0), 15);
    EXPECT_EQ(x.stride(-1), 1);
    EXPECT_TRUE(x.is_contiguous());
    EXPECT_EQ(x.num_bytes(), 60);
    EXPECT_EQ(x.storage_kind(), StorageKind::kHeap);
    EXPECT_EQ(ToString(x), "bf16 [2, 3, 5] on cpu");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data<BFloat16>()) % 64, 0u);
    EXPECT_GE(Allocated(), 60);
  }
  EXPECT_EQ(Allocated(), 0);
}

TEST_F(TensorTest, NoElementsIsNotAbsent) {
  for (const Tensor& x :
       {Tensor::Zeros(cpu_, {0, 4}, kF32), Iota({3, 4}).Slice(0, 3, 0),
        Tensor::Borrow(cpu_, {0, 4}, kF32, nullptr, nullptr),
        Tensor::MapReadOnly(cpu_, {0, 4}, kF32, nullptr, nullptr)}) {
    EXPECT_TRUE(x);
    EXPECT_TRUE(x.view());
    EXPECT_TRUE(x.is_contiguous());
    EXPECT_EQ(x.num_bytes(), 0);
    EXPECT_TRUE(ToDoubles(x).empty());
    EXPECT_EQ(x.Reshape({4, 0}).shape(), Shape({4, 0}));
  }
}

TEST_F(TensorTest, ZerosOverwritesUsedMemory) {
  auto context = *Context::Create({.poison_memory = true});
  const Tensor dirty = Tensor::Empty(context->cpu(), {33}, kF32);
  EXPECT_NE(dirty.data<float>()[32], dirty.data<float>()[32]);  // NaN
  EXPECT_THAT(ToDoubles(Tensor::Zeros(context->cpu(), {33}, kF32)),
              ::testing::Each(0));
  EXPECT_EQ(ZerosLike(dirty).shape(), dirty.shape());
}

TEST_F(TensorTest, FromHostChecksTheCount) {
  EXPECT_THAT(ToDoubles(Iota({2, 2})), ElementsAre(0, 1, 2, 3));
  const std::vector<int64_t> ids = {5, -6, 7};
  const Tensor x = Tensor::FromHost<int64_t>(cpu_, {3}, ids);
  EXPECT_EQ(x.dtype(), kI64);
  EXPECT_THAT(ToDoubles(x), ElementsAre(5, -6, 7));
  EXPECT_THAT(RefusalOf([&] {
                Tensor::FromHost<int64_t>(cpu_, {2, 2}, ids);
              }),
              HasSubstr("3 values for [2, 2]"));
}

TEST_F(TensorTest, HostAccessChecksTheType) {
  const Tensor x = Iota({2, 3});
  EXPECT_EQ(x.data<float>()[4], 4);
  x.mutable_data<float>()[4] = 9;
  EXPECT_EQ(x.data<float>()[4], 9);
  EXPECT_THAT(RefusalOf([&] { x.data<double>(); }),
              HasSubstr("access as f64 to f32 [2, 3] on cpu"));
  EXPECT_THAT(RefusalOf([&] { x.data<int32_t>(); }),
              HasSubstr("access as i32"));
}

TEST_F(TensorTest, SliceSharesStorage) {
  const Tensor x = Iota({4, 5});
  const Tensor rows = x.Slice(0, 1, 2);
  EXPECT_TRUE(rows.SharesStorage(x));
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_EQ(rows.storage_bytes(), 80);
  EXPECT_THAT(ToDoubles(rows), ElementsAre(5, 6, 7, 8, 9, 10, 11, 12, 13, 14));
  const Tensor columns = x.Slice(-1, 3, 2);
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_THAT(ToDoubles(columns), ElementsAre(3, 4, 8, 9, 13, 14, 18, 19));
  EXPECT_THAT(ToDoubles(columns.Slice(0, 2, 1)), ElementsAre(13, 14));
  columns.mutable_data<float>()[0] = 100;
  EXPECT_EQ(x.data<float>()[3], 100);
}

TEST_F(TensorTest, SliceRefusesWhatIsOutside) {
  const Tensor x = Iota({4, 5});
  for (auto [start, count] : {std::pair<int64_t, int64_t>{-1, 2},
                              {0, 5},
                              {4, 1},
                              {2, -1},
                              {1, std::numeric_limits<int64_t>::max()}}) {
    EXPECT_THAT(RefusalOf([&, start = start, count = count] {
                  x.Slice(0, start, count);
                }),
                HasSubstr("of dim 0 of [4, 5]"));
  }
  EXPECT_THAT(RefusalOf([&] { x.Slice(2, 0, 1); }),
              HasSubstr("dim 2 of [4, 5]"));
}

TEST_F(TensorTest, TransposeSwapsDims) {
  const Tensor x = Iota({2, 3, 4});
  const Tensor y = x.Transpose(0, -1);
  EXPECT_EQ(y.shape(), Shape({4, 3, 2}));
  EXPECT_FALSE(y.is_contiguous());
  const std::vector<double> values = ToDoubles(y);
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < 3; ++b) {
      for (size_t c = 0; c < 2; ++c) {
        EXPECT_EQ(values[(a * 3 + b) * 2 + c],
                  static_cast<double>((c * 3 + b) * 4 + a));
      }
    }
  }
  EXPECT_TRUE(y.Transpose(2, 0).is_contiguous());
  EXPECT_TRUE(x.Transpose(1, 1).is_contiguous());
}

TEST_F(TensorTest, TransposeOfAnEnormousShape) {
  // Replacing one extent and then the other would pass 2^63 elements.
  const int64_t k = 1 << 24;
  const Tensor x = Tensor::Empty(meta_, {k, 1, 1 << 16}, kU8);
  EXPECT_EQ(x.Transpose(0, 1).shape(), Shape({1, k, 1 << 16}));
  EXPECT_EQ(x.Transpose(1, 0).Transpose(0, 1).shape(), x.shape());
  EXPECT_EQ(x.Transpose(1, 2).shape(), Shape({k, 1 << 16, 1}));
}

TEST_F(TensorTest, ReshapeKeepsTheOrder) {
  const Tensor x = Iota({3, 4}).Slice(0, 1, 2);
  const Tensor y = x.Reshape({2, -1, 2});
  EXPECT_EQ(y.shape(), Shape({2, 2, 2}));
  EXPECT_TRUE(y.SharesStorage(x));
  EXPECT_THAT(ToDoubles(y), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_EQ(Iota({1}).Reshape(std::vector<int64_t>{}).ndim(), 0);
}

TEST_F(TensorTest, ReshapeRefusals) {
  const Tensor x = Iota({3, 4});
  EXPECT_THAT(RefusalOf([&] {
                x.Reshape({5, 2});
              }),
              HasSubstr("reshape of [3, 4] to [5, 2]"));
  EXPECT_THAT(RefusalOf([&] {
                x.Reshape({5, -1});
              }),
              HasSubstr("reshape of [3, 4] by 5"));
  EXPECT_THAT(RefusalOf([&] {
                x.Reshape({-1, -1});
              }),
              HasSubstr("two open dims"));
  EXPECT_THAT(RefusalOf([&] {
                x.Reshape({-2, -6});
              }),
              HasSubstr("dim 0 is -2"));
  EXPECT_THAT(RefusalOf([&] { x.Transpose(0, 1).Reshape({12}); }),
              HasSubstr("strided view of [4, 3]"));
  EXPECT_THAT(RefusalOf([&] {
                Tensor::Zeros(cpu_, {0, 4}, kF32).Reshape({0, -1});
              }),
              HasSubstr("reshape of [0, 4] by 0"));
}

TEST_F(TensorTest, ReadOnlyMapRefusesWrites) {
  const std::vector<float> page = {1, 2, 3, 4};
  const Tensor x =
      Tensor::MapReadOnly(cpu_, {2, 2}, kF32, page.data(), nullptr);
  EXPECT_TRUE(x.read_only());
  EXPECT_EQ(x.data<float>(), page.data());
  EXPECT_EQ(x.storage_bytes(), 16);
  EXPECT_THAT(RefusalOf([&] { x.mutable_data<float>(); }),
              HasSubstr("mapped file pages"));
  EXPECT_THAT(RefusalOf([&] { x.Slice(0, 1, 1).mutable_data<float>(); }),
              HasSubstr("mapped file pages"));
  EXPECT_THAT(RefusalOf([&] {
                x.CopyFrom(Iota({2, 2}));
              }),
              HasSubstr("mapped file pages"));
  EXPECT_FALSE(x.ToHost().read_only());
  EXPECT_EQ(x.ToHost().storage_kind(), StorageKind::kHeap);
}

TEST_F(TensorTest, LentMemoryKeepsItsOwner) {
  auto owner = std::make_shared<std::vector<float>>(6, 1.5f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor x = Tensor::Borrow(cpu_, {2, 3}, kF32, owner->data(), owner);
  Tensor view = x.Slice(0, 1, 1);
  owner.reset();
  x = Tensor();
  EXPECT_FALSE(watch.expired());
  view.mutable_data<float>()[0] = 2;
  EXPECT_THAT(ToDoubles(view), ElementsAre(2, 1.5, 1.5));
  EXPECT_EQ(view.storage_kind(), StorageKind::kHost);
  view = Tensor();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(Allocated(), 0);
}

TEST_F(TensorTest, LentMemoryRefusals) {
  float value = 0;
  EXPECT_THAT(
      RefusalOf([&] { Tensor::Borrow(meta_, {1}, kF32, &value, nullptr); }),
      HasSubstr("borrowed memory on meta"));
  EXPECT_THAT(
      RefusalOf([&] { Tensor::Borrow(cpu_, {1}, kF32, nullptr, nullptr); }),
      HasSubstr("borrowed memory is null"));
  EXPECT_THAT(RefusalOf([&] {
                Tensor::MapReadOnly(cpu_, {1}, kF32, nullptr, nullptr);
              }),
              HasSubstr("mapped memory is null"));
}

TEST_F(TensorTest, MetaHasShapesAndNoData) {
  const Tensor x = Tensor::Zeros(meta_, {int64_t{1} << 34, 3}, kF32);
  EXPECT_EQ(x.num_bytes(), (int64_t{1} << 34) * 12);
  EXPECT_THAT(RefusalOf([&] { x.data<float>(); }),
              HasSubstr("host access to memory of meta"));
  EXPECT_THAT(internal::Guard([&] { x.Slice(0, 0, 2).ToHost(); }).message(),
              HasSubstr("meta tensors have no data"));
  // Copies of and to meta tensors are shapes again, of any strides.
  EXPECT_EQ(Iota({2, 3}).CopyTo(meta_).shape(), Shape({2, 3}));
  EXPECT_EQ(x.CopyTo(meta_).shape(), x.shape());
  const Tensor packed = x.Transpose(0, 1).CopyTo(meta_);
  EXPECT_EQ(packed.shape(), Shape({3, int64_t{1} << 34}));
  EXPECT_TRUE(packed.is_contiguous());
  EXPECT_EQ(Iota({2, 3}).Transpose(0, 1).CopyTo(meta_).shape(), Shape({3, 2}));
}

TEST_F(TensorTest, CopyFromChecks) {
  const Tensor x = Iota({4, 2});
  EXPECT_THAT(RefusalOf([&] {
                x.CopyFrom(Iota({2, 4}));
              }),
              HasSubstr("copy of f32 [2, 4] on cpu to f32 [4, 2] on cpu"));
  EXPECT_THAT(RefusalOf([&] {
                x.CopyFrom(Tensor::Zeros(cpu_, {4, 2}, kBF16));
              }),
              HasSubstr("copy of bf16 [4, 2]"));
  EXPECT_THAT(RefusalOf([&] {
                x.CopyFrom(Iota({2, 4}).Transpose(0, 1));
              }),
              HasSubstr("strided"));
  EXPECT_THAT(RefusalOf([&] { x.Slice(0, 0, 3).CopyFrom(x.Slice(0, 1, 3)); }),
              HasSubstr("overlapping views of [3, 2]"));
  x.CopyFrom(x);
  x.Slice(0, 0, 2).CopyFrom(x.Slice(0, 2, 2));
  EXPECT_THAT(ToDoubles(x), ElementsAre(4, 5, 6, 7, 4, 5, 6, 7));
}

TEST_F(TensorTest, FailedAllocationHoldsNothing) {
  auto context = *Context::Create({.memory_budget_bytes = 1 << 16});
  const absl::Status status =
      internal::Guard([&] { Tensor::Empty(context->cpu(), {1 << 21}, kU8); });
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(context->cpu().allocator().stats().allocated, 0);
}

TEST_F(TensorTest, ToDoublesReadsEveryDType) {
  const Tensor bytes =
      Tensor::FromHost<uint8_t>(cpu_, {2}, std::vector<uint8_t>{0, 255});
  EXPECT_THAT(ToDoubles(bytes), ElementsAre(0, 255));
  const bool flags[] = {true, false};
  EXPECT_THAT(ToDoubles(Tensor::FromHost<bool>(cpu_, {2}, flags)),
              ElementsAre(1, 0));
  const Float16 halves[] = {Float16(0.5f), Float16(-2.0f)};
  EXPECT_THAT(ToDoubles(Tensor::FromHost<Float16>(cpu_, {2}, halves)),
              ElementsAre(0.5, -2));
  const double doubles[] = {1e300};
  EXPECT_THAT(ToDoubles(Tensor::FromHost<double>(cpu_, {1}, doubles)),
              ElementsAre(1e300));
}

}  // namespace
}  // namespace espalier
