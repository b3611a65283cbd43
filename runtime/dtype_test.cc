#include "espalier/runtime/dtype.h"

#include "gtest/gtest.h"

namespace espalier {
namespace {

struct Row {
  DType dtype;
  int64_t size;
  bool is_float;
  const char* name;
};

TEST(DTypeTest, SizesKindsAndNames) {
  for (const Row& row :
       {Row{kF64, 8, true, "f64"}, Row{kF32, 4, true, "f32"},
        Row{kBF16, 2, true, "bf16"}, Row{kF16, 2, true, "f16"},
        Row{kI64, 8, false, "i64"}, Row{kI32, 4, false, "i32"},
        Row{kU8, 1, false, "u8"}, Row{kBool, 1, false, "bool"}}) {
    EXPECT_EQ(SizeOf(row.dtype), row.size) << row.name;
    EXPECT_EQ(IsFloat(row.dtype), row.is_float) << row.name;
    EXPECT_EQ(ToString(row.dtype), row.name);
  }
}

template <typename T>
constexpr bool kSizesAgree = SizeOf(DTypeOf<T>::value) == sizeof(T);

TEST(DTypeTest, CppTypesHaveTheSizesOfTheirDTypes) {
  static_assert(kSizesAgree<double> && kSizesAgree<float> &&
                kSizesAgree<BFloat16> && kSizesAgree<Float16> &&
                kSizesAgree<int64_t> && kSizesAgree<int32_t> &&
                kSizesAgree<uint8_t> && kSizesAgree<bool>);
  EXPECT_EQ(DTypeOf<BFloat16>::value, kBF16);
  EXPECT_EQ(DTypeOf<Float16>::value, kF16);
  EXPECT_EQ(DTypeOf<bool>::value, kBool);
}

}  // namespace
}  // namespace espalier
