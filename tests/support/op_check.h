#ifndef ESPALIER_TESTS_SUPPORT_OP_CHECK_H_
#define ESPALIER_TESTS_SUPPORT_OP_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/autograd/variable.h"
#include "espalier/tests/support/env.h"

namespace espalier::test {

// An op with its options bound: inputs to one result.
using Fn = std::function<Variable(const std::vector<Variable>&)>;

// Standard normal values, f64, on Cpu(), that need a gradient.
Variable Normal(const Shape& shape, uint64_t seed);
// One of each shape, by seeds 1, 2, ...
std::vector<Variable> NormalInputs(const std::vector<Shape>& shapes);
// The same values without gradient.
Variable Frozen(const Variable& variable);
// Values in row-major order, f64.
Tensor FromDoubles(Device& device, const Shape& shape, DType dtype,
                   const std::vector<double>& values);

// Every check here fails, and names the place, on NaN and on a Failure inside
// fn. Inputs may be absent (optional operands) or of integer dtype.

// Gradients of sum(fn(inputs) * random cotangent) against central differences
// in f64 (step 1e-6), for every input that needs one; inputs that need none
// must get none. |got - want| <= atol + rtol * |want|.
::testing::AssertionResult GradCheck(const Fn& fn, std::vector<Variable> inputs,
                                     double rtol = 1e-6, double atol = 1e-7);

// Value and gradients of fn on target against the f64 reference on the same,
// already rounded, inputs and cotangent; inputs are standard normal.
::testing::AssertionResult MatchesReference(const Fn& fn, const Target& target,
                                            const std::vector<Shape>& shapes);
// The same on given f64 inputs.
::testing::AssertionResult MatchesReference(
    const Fn& fn, const Target& target, const std::vector<Variable>& inputs);

// Value and gradients are the same bits with 1, 2, 3 and 7 threads, and with
// tasks that run one after another. Fails also where the op, or its backward,
// opened no parallel region of several tasks: such inputs prove nothing.
::testing::AssertionResult SameBitsForAllThreads(
    const Fn& fn, const Target& target, const std::vector<Shape>& shapes);
// The same on given f64 inputs.
::testing::AssertionResult SameBitsForAllThreads(
    const Fn& fn, const Target& target, const std::vector<Variable>& inputs);

// For an op with CanRecompute: a later node that saves fn's result gets it made
// again in a selective region, and value and gradients are the bits of a run
// that saved it. Fails also where nothing was given up.
::testing::AssertionResult SameBitsWhenRecomputed(
    const Fn& fn, const Target& target, const std::vector<Shape>& shapes);

// Each once per Target.
class OpTest : public ::testing::TestWithParam<Target> {};

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_SUPPORT_OP_CHECK_H_
