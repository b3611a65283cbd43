#include "espalier/tests/support/tiny_ops.h"

#include <cmath>
#include <memory>

#include "espalier/autograd/memo.h"
#include "espalier/tests/support/env.h"

namespace espalier::test {

namespace {

template <typename T>
void ZipInto(const Tensor& a, const Tensor& b, const Tensor& result,
             absl::FunctionRef<double(double, double)> fn) {
  const T* const x = a.data<T>();
  const T* const y = b ? b.data<T>() : nullptr;
  T* const out = result.mutable_data<T>();
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    out[i] = static_cast<T>(fn(x[i], y == nullptr ? 0 : y[i]));
  }
}

double Times(double a, double b) { return a * b; }

}  // namespace

Tensor Zip(const Tensor& a, const Tensor& b,
           absl::FunctionRef<double(double, double)> fn) {
  Tensor result = EmptyLike(a);
  if (a.dtype() == kF64) {
    ZipInto<double>(a, b, result, fn);
  } else {
    ZipInto<float>(a, b, result, fn);
  }
  return result;
}

Variable TinyAdd(const Variable& a, const Variable& b) {
  Tensor sum =
      Zip(a.value(), b.value(), [](double x, double y) { return x + y; });
  return autograd::Record(std::move(sum),
                          std::make_unique<TinyNode>(
                              "tiny_add", std::vector<Tensor>(),
                              [](TinyNode& node, absl::Span<const Tensor> dy) {
                                return std::vector<Tensor>{
                                    node.needs_grad(0) ? dy[0] : Tensor(),
                                    node.needs_grad(1) ? dy[0] : Tensor()};
                              }),
                          {&a, &b});
}

namespace {

// Records product = a * b.
Variable RecordProduct(Tensor product, const Variable& a, const Variable& b) {
  return autograd::Record(
      std::move(product),
      std::make_unique<TinyNode>(
          "tiny_mul",
          std::vector<Tensor>{
              autograd::NeedsGrad(b) ? a.value() : Tensor(),
              autograd::NeedsGrad(a) ? b.value() : Tensor(),
          },
          [](TinyNode& node, absl::Span<const Tensor> dy) {
            std::vector<Tensor> gradients(2);
            if (node.needs_grad(0)) {
              gradients[0] = Zip(dy[0], node.saved[1], Times);
            }
            if (node.needs_grad(1)) {
              gradients[1] = Zip(dy[0], node.saved[0], Times);
            }
            return gradients;
          }),
      {&a, &b});
}

// x * mask, whose mask is no variable.
Variable RecordMasked(const Variable& x, const Tensor& mask, const char* name) {
  return autograd::Record(
      Zip(x.value(), mask, Times),
      std::make_unique<TinyNode>(
          name, std::vector<Tensor>{mask},
          [](TinyNode& node, absl::Span<const Tensor> dy) {
            return std::vector<Tensor>{Zip(dy[0], node.saved[0], Times)};
          }),
      {&x});
}

}  // namespace

Variable TinyMul(const Variable& a, const Variable& b) {
  return RecordProduct(Zip(a.value(), b.value(), Times), a, b);
}

Variable TinyExpensive(const Variable& a, const Variable& b, int* runs) {
  ++*runs;
  return TinyMul(a, b);
}

Variable TinyDropout(const Variable& x, autograd::RngStream& rng) {
  const Tensor& v = x.value();
  const autograd::RandomRun run =
      rng.Take(static_cast<uint64_t>(v.num_elements()));
  uint64_t i = run.first;
  Tensor mask = Zip(v, Tensor(), [&](double, double) {
    return run.rng.Float(i++) < 0.5f ? 0.0 : 2.0;
  });
  return RecordMasked(x, std::move(mask), "tiny_dropout");
}

Variable TinyRoute(const Variable& x) {
  Tensor mask = autograd::MemoOne("tiny_route", [&] {
    const std::vector<double> v = ToDoubles(x.value());
    size_t i = 0;
    return Zip(x.value(), Tensor(), [&](double, double) {
      const size_t other = i ^ 1;
      const bool first = i < other;
      const bool wins = first ? v[i] >= v[other] : v[i] > v[other];
      ++i;
      return wins ? 1.0 : 0.0;
    });
  });
  return RecordMasked(x, std::move(mask), "tiny_route");
}

Variable TinySin(const Variable& x) {
  const auto sin = [](const Tensor& v) {
    return Zip(v, Tensor(), [](double e, double) { return std::sin(e); });
  };
  return autograd::Record(
      sin(x.value()),
      std::make_unique<TinyNode>(
          "tiny_sin", std::vector<Tensor>{x.value()},
          [](TinyNode& node, absl::Span<const Tensor> dy) {
            return std::vector<Tensor>{
                Zip(dy[0], node.saved[0],
                    [](double d, double v) { return d * std::cos(v); })};
          },
          [sin](TinyNode& node) { return sin(node.saved[0]); }),
      {&x});
}

std::vector<Variable> TinyFan(const Variable& x) {
  std::vector<Tensor> values;
  for (const double factor : {2.0, 3.0}) {
    values.push_back(Zip(x.value(), Tensor(),
                         [factor](double v, double) { return factor * v; }));
  }
  return autograd::RecordMany(
      std::move(values),
      std::make_unique<TinyNode>(
          "tiny_fan", std::vector<Tensor>(),
          [](TinyNode&, absl::Span<const Tensor> dy) {
            const Tensor& given = dy[0] ? dy[0] : dy[1];
            const double first = dy[0] ? 2 : 3;
            return std::vector<Tensor>{
                Zip(given, dy[0] ? dy[1] : Tensor(),
                    [first](double a, double b) { return first * a + 3 * b; })};
          }),
      {&x, 1});
}

Variable Leaf(int64_t count, double first, bool needs_grad) {
  Tensor values = Tensor::Empty(Cpu(), {count}, kF64);
  for (int64_t i = 0; i < count; ++i) {
    values.mutable_data<double>()[i] = first + static_cast<double>(i);
  }
  return Variable(std::move(values), needs_grad);
}

}  // namespace espalier::test
