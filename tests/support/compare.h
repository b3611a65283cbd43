#ifndef ESPALIER_TESTS_SUPPORT_COMPARE_H_
#define ESPALIER_TESTS_SUPPORT_COMPARE_H_

#include "gtest/gtest.h"

#include "espalier/runtime/tensor.h"

namespace espalier::test {

// max |got - want| / max |want|; infinity on NaN or another shape.
double RelativeError(const Tensor& got, const Tensor& want);

// Same shape, dtype and bits.
::testing::AssertionResult SameBits(const Tensor& a, const Tensor& b);

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_SUPPORT_COMPARE_H_
