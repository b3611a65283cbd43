#ifndef ESPALIER_TESTS_BENCH_OP_BENCH_H_
#define ESPALIER_TESTS_BENCH_OP_BENCH_H_

#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"

#include "espalier/autograd/backward.h"
#include "espalier/autograd/mode.h"
#include "espalier/autograd/variable.h"
#include "espalier/tests/bench/ceilings.h"

// The benchmark of an op over tensors of one dtype, registered with
//   BENCHMARK(BM_Name)->Apply(bench::ByDTypeAndThreads);
namespace espalier::bench {

// Far out of cache: 64 MiB of f32.
inline const Shape kWide = {4096, 4096};

// The first argument is the bytes of an element, the second the threads.
inline void ByDTypeAndThreads(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "threads"})
      ->ArgsProduct({{4, 2}, {1, 2}})
      ->UseRealTime();
}

inline DType DTypeAt(const benchmark::State& state) {
  return state.range(0) == 2 ? kBF16 : kF32;
}

// Uniform inputs of the shapes; the first `num_trained` need a gradient.
inline std::vector<Variable> MakeInputs(Context& context, DType dtype,
                                        const std::vector<Shape>& shapes,
                                        size_t num_trained) {
  std::vector<Variable> inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    inputs.emplace_back(RandomTensor(context.cpu(), shapes[i], dtype, i + 1),
                        i < num_trained);
  }
  return inputs;
}

// Times op(inputs), without gradients. Every input is counted as read once and
// the result as written once.
template <class Op>
void TimeForward(benchmark::State& state, const std::vector<Shape>& shapes,
                 const Op& op, Peak peak = Peak::kCopy) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = MakeContext(threads);
  const NoGrad no_grad;
  const std::vector<Variable> inputs =
      MakeInputs(*context, DTypeAt(state), shapes, 0);
  int64_t bytes = 0;
  for (const Variable& input : inputs) bytes += input.value().num_bytes();
  {
    const Variable y = op(inputs);  // its memory stays with the allocator
    bytes += y.value().num_bytes();
  }
  for ([[maybe_unused]] auto _ : state) op(inputs);
  ReportBytes(state, static_cast<double>(bytes), threads, peak);
}

// What a backward pass reads.
enum class Reads : uint8_t { kCotangentAndInputs, kCotangent };

// Times the backward pass of op(inputs) with gradients of the first
// `num_trained` inputs. Counted are what is read, once, and the gradients,
// written once.
template <class Op>
void TimeBackward(benchmark::State& state, const std::vector<Shape>& shapes,
                  size_t num_trained, const Op& op,
                  Reads reads = Reads::kCotangentAndInputs) {
  const int threads = static_cast<int>(state.range(1));
  const auto context = MakeContext(threads);
  std::vector<Variable> inputs =
      MakeInputs(*context, DTypeAt(state), shapes, num_trained);
  Tensor dy;
  const auto forward = [&] {
    for (Variable& input : inputs) input.ClearGrad();
    return op(inputs);
  };
  int64_t bytes = 0;
  {
    const Variable y = forward();
    dy = RandomTensor(context->cpu(), y.value().shape(), DTypeAt(state), 99);
    autograd::Backward(y, dy);  // its memory stays with the allocator
    bytes += dy.num_bytes();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t passes = (i < num_trained ? 1 : 0) +
                           (reads == Reads::kCotangentAndInputs ? 1 : 0);
    bytes += passes * inputs[i].value().num_bytes();
  }
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    const Variable y = forward();
    state.ResumeTiming();
    autograd::Backward(y, dy);
  }
  ReportBytes(state, static_cast<double>(bytes), threads);
}

}  // namespace espalier::bench

#endif  // ESPALIER_TESTS_BENCH_OP_BENCH_H_
