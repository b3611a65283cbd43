#include "espalier/runtime/internal/strided_copy.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "espalier/runtime/context.h"
#include "espalier/runtime/rng.h"
#include "espalier/runtime/tensor.h"

namespace espalier {
namespace {

// Values of a view read one by one through its strides.
template <typename T>
std::vector<T> ReadStrided(const View& view) {
  std::vector<T> values;
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    int64_t offset = 0;
    for (int64_t d = view.ndim - 1, rest = i; d >= 0; --d) {
      offset += rest % view.shape[d] * view.strides[d];
      rest /= view.shape[d];
    }
    values.push_back(view.data<T>()[offset]);
  }
  return values;
}

template <typename T>
Tensor Numbered(Device& device, const Shape& shape) {
  std::vector<T> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    values.push_back(static_cast<T>(i % 251));
  }
  return Tensor::FromHost<T>(device, shape, absl::MakeConstSpan(values));
}

template <typename T>
void CheckCopy(const Tensor& tensor) {
  const Tensor copy = tensor.ToHost();
  EXPECT_TRUE(copy.is_contiguous());
  EXPECT_EQ(copy.shape(), tensor.shape());
  EXPECT_FALSE(copy.SharesStorage(tensor));
  const T* const data = copy.data<T>();
  EXPECT_EQ(std::vector<T>(data, data + copy.num_elements()),
            ReadStrided<T>(tensor.view()))
      << ToString(tensor);
}

template <typename T>
void CheckViews(Device& device) {
  const Tensor x = Numbered<T>(device, {7, 3, 5, 11});
  CheckCopy<T>(x);
  CheckCopy<T>(x.Transpose(0, 3));
  CheckCopy<T>(x.Transpose(1, 2));
  CheckCopy<T>(x.Transpose(2, 3).Transpose(0, 1));
  CheckCopy<T>(x.Slice(3, 2, 6));
  CheckCopy<T>(x.Slice(3, 10, 1));
  CheckCopy<T>(x.Slice(1, 1, 1).Slice(2, 1, 3));
  CheckCopy<T>(x.Slice(1, 1, 2).Transpose(0, 2).Slice(0, 2, 2));
  CheckCopy<T>(x.Slice(0, 3, 0).Transpose(1, 2));
  CheckCopy<T>(Numbered<T>(device, {300, 500}).Transpose(0, 1));
  CheckCopy<T>(Numbered<T>(device, {300, 500}).Slice(1, 1, 400));
}

TEST(StridedCopyTest, EveryElementSizeAndThreadCount) {
  for (int num_threads : {1, 2, 3, 7}) {
    auto context = *Context::Create({.num_threads = num_threads});
    CheckViews<uint8_t>(context->cpu());
    CheckViews<int32_t>(context->cpu());
    CheckViews<double>(context->cpu());
  }
  auto context = *Context::Create({});
  const Tensor x = Numbered<int32_t>(context->cpu(), {1, 1, 4}).Transpose(0, 2);
  CheckCopy<int32_t>(x);
}

TEST(StridedCopyTest, BetweenDevices) {
  auto context = *Context::Create({});
  const Tensor host = Numbered<int32_t>(context->cpu(), {7, 3, 5});
  const Tensor far = host.Transpose(0, 2).CopyTo(context->sim());
  EXPECT_EQ(far.device().type(), kSim);
  EXPECT_EQ(ToDoubles(far), ToDoubles(host.Transpose(0, 2)));
  EXPECT_EQ(ToDoubles(far.Transpose(0, 1).Slice(1, 2, 3)),
            ToDoubles(host.Transpose(0, 2).Transpose(0, 1).Slice(1, 2, 3)));
}

TEST(StridedCopyTest, BFloat16) {
  auto context = *Context::Create({});
  const Tensor x = Tensor::Empty(context->cpu(), {13, 9}, kBF16);
  FillUniform(x, Rng{1, 1}, -1, 1);
  const std::vector<double> rows = ToDoubles(x);
  const std::vector<double> columns = ToDoubles(x.Transpose(0, 1));
  for (size_t i = 0; i < 13; ++i) {
    for (size_t j = 0; j < 9; ++j) {
      EXPECT_EQ(columns[j * 13 + i], rows[i * 9 + j]);
    }
  }
}

}  // namespace
}  // namespace espalier
