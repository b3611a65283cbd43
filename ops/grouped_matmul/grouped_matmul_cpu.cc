#include "espalier/ops/grouped_matmul/internal/kernels.h"
#include "espalier/ops/packed_matmul/pack.h"
#include "espalier/ops/packed_matmul/panel_products.h"

namespace espalier::grouped_matmul {
namespace {

using packed::Direction;
using packed::Product;

char* At(const View& view, int64_t index) {
  return static_cast<char*>(view.pointer) + index * SizeOf(view.dtype);
}

gemm::Compute ComputeOf(const Args& args) {
  return gemm::ComputeFor(args.a.dtype, args.b ? args.b.dtype : args.a.dtype);
}

void SetPacked(const PackedView& weight, const Args& args, Isa isa,
               Product& product) {
  const bool forward = args.form == Form::kForward;
  product.source = &weight;
  product.pack_b = packed::FindPack(
      weight, forward ? Direction::kForward : Direction::kInputGradient,
      gemm::FindTile(isa, ComputeOf(args)));
  if (forward && args.a.dtype == kBF16) {
    product.fused = packed::FindFused(weight, isa);
  }
}

// One product a group.
std::vector<Product> MakeProducts(const Args& args, Isa isa) {
  std::vector<Product> products(args.offsets.size() - 1);
  const int64_t k = args.a.dim(1);
  const int64_t n = args.c.dim(-1);
  for (size_t e = 0; e < products.size(); ++e) {
    const int64_t begin = args.offsets[e];
    const int64_t rows = args.offsets[e + 1] - begin;
    const auto expert = static_cast<int64_t>(e);
    Product& product = products[e];
    product.n = n;
    product.c_stride = n;
    if (args.form == Form::kWeightGradient) {
      product.m = k;
      product.k = rows;
      product.a = {At(args.a, begin * k), args.a.dtype, 1, k};
      product.b = {At(args.b, begin * n), args.b.dtype, 1, n};
      product.c = At(args.c, expert * k * n);
      continue;
    }
    product.m = rows;
    product.k = k;
    product.a = {At(args.a, begin * k), args.a.dtype, k, 1};
    product.c = At(args.c, begin * n);
    if (!args.b) {
      SetPacked(args.packed[e], args, isa, product);
    } else if (args.form == Form::kForward) {
      product.b = {At(args.b, expert * n * k), args.b.dtype, k, 1};
    } else {
      product.b = {At(args.b, expert * n * k), args.b.dtype, 1, n};
    }
  }
  return products;
}

}  // namespace

int64_t WorkspaceBytes(const Args& args, Isa isa, int num_threads) {
  const std::vector<Product> products = MakeProducts(args, isa);
  return packed::ProductsWorkspaceBytes(
      {.list = products, .compute = ComputeOf(args), .c_dtype = args.c.dtype},
      isa, num_threads);
}

void GroupedCpu(const Args& args, const Exec& exec) {
  const std::vector<Product> products = MakeProducts(args, exec.isa);
  packed::RunProducts(
      {.list = products, .compute = ComputeOf(args), .c_dtype = args.c.dtype},
      exec, {args.workspace.pointer, args.workspace.dim(0)});
}

}  // namespace espalier::grouped_matmul
