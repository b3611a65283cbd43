#include "espalier/runtime/shape.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/guard.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string RefusalOf(std::vector<int64_t> dims) {
  const absl::Status status = internal::Guard([&] { Shape shape(dims); });
  EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
  return std::string(status.message());
}

TEST(ShapeTest, ScalarHasOneElement) {
  const Shape shape;
  EXPECT_EQ(shape.ndim(), 0);
  EXPECT_EQ(shape.num_elements(), 1);
  EXPECT_EQ(ToString(shape), "[]");
  EXPECT_EQ(shape, Shape({}));
}

TEST(ShapeTest, DimsCountFromBothEnds) {
  const Shape shape = {2, 3, 5};
  EXPECT_EQ(shape.ndim(), 3);
  EXPECT_EQ(shape.num_elements(), 30);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape.dim(-3), 2);
  EXPECT_THAT(shape.dims(), ElementsAre(2, 3, 5));
  EXPECT_EQ(ToString(shape), "[2, 3, 5]");
  for (int index : {3, -4}) {
    EXPECT_THAT(internal::Guard([&] { shape.dim(index); }).message(),
                HasSubstr("of [2, 3, 5]"));
  }
}

TEST(ShapeTest, EqualityReadsAllDims) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_FALSE(Shape({2, 3}) == Shape({3, 2}));
  EXPECT_FALSE(Shape({2, 3}) == Shape({2, 3, 1}));
  EXPECT_FALSE(Shape({0}) == Shape({0, 0}));
}

TEST(ShapeTest, WithDimReplacesOne) {
  EXPECT_EQ(Shape({2, 3}).WithDim(-1, 7), Shape({2, 7}));
  EXPECT_EQ(Shape({2, 3}).WithDim(0, 0).num_elements(), 0);
  EXPECT_FALSE(internal::Guard([] { Shape({2}).WithDim(1, 7); }).ok());
}

TEST(ShapeTest, RefusesNegativeAndTooMany) {
  EXPECT_THAT(RefusalOf({3, -1}), HasSubstr("dim 1 is -1"));
  EXPECT_EQ(RefusalOf(std::vector<int64_t>(8, 2)), "");
  EXPECT_THAT(RefusalOf(std::vector<int64_t>(9, 2)),
              HasSubstr("shape has 9 dims, at most 8"));
}

TEST(ShapeTest, RefusesTwoToThe63Elements) {
  EXPECT_EQ(RefusalOf({kMax}), "");
  EXPECT_EQ(RefusalOf({int64_t{1} << 31, (int64_t{1} << 32) - 1}), "");
  EXPECT_THAT(RefusalOf({int64_t{1} << 31, int64_t{1} << 32}),
              HasSubstr("number of elements"));
  EXPECT_THAT(RefusalOf({kMax, 2}), HasSubstr("overflows int64"));
}

TEST(ShapeTest, EmptyShapesKeepTheirStridesInRange) {
  EXPECT_EQ(Shape({0, kMax}).num_elements(), 0);
  EXPECT_NE(RefusalOf({0, int64_t{1} << 32, int64_t{1} << 32}), "");
  EXPECT_NE(RefusalOf({int64_t{1} << 32, int64_t{1} << 32, 0}), "");
}

TEST(ShapeTest, ByteCountsAreChecked) {
  EXPECT_EQ(NumBytes({3, 5}, kBF16), 30);
  EXPECT_EQ(NumBytes({}, kF64), 8);
  EXPECT_EQ(NumBytes({4, 0}, kF32), 0);
  EXPECT_EQ(NumBytes({kMax}, kU8), kMax);
  EXPECT_THAT(internal::Guard([] { NumBytes({kMax}, kBF16); }).message(),
              HasSubstr("bytes: 9223372036854775807 * 2 overflows"));
  EXPECT_FALSE(internal::Guard([] { CheckedAdd(kMax, 1, "sum"); }).ok());
  EXPECT_EQ(CheckedAdd(kMax, -1, "sum"), kMax - 1);
  EXPECT_FALSE(
      internal::Guard([] { CheckedMul(-kMax - 1, -1, "product"); }).ok());
}

}  // namespace
}  // namespace espalier
