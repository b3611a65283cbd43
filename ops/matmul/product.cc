#include "espalier/ops/matmul/internal/product.h"

#include "espalier/ops/matmul/internal/kernels.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/kernel.h"

namespace espalier::matmul {

namespace {

constexpr Kernel<ProductArgs> kProduct[] = {
    {kCpu, kF64, ProductRef},
    {kCpu, kF32, ProductCpu},
    {kCpu, kBF16, ProductCpu},
};

// With all of `args` set but a, the terms, c and the workspace; reads `b`.
void Run(absl::string_view op, ProductArgs args, const Tensor& a,
         const Tensor& b, const Terms& terms, const Tensor& c) {
  args.a = a.view();
  args.bias = terms.bias.view();
  args.c = c.view();
  args.addend = terms.addend.view();
  args.beta = terms.addend ? terms.beta : 0;
  Device& device = c.device();
  Tensor workspace;
  if (c.dtype() != kF64) {
    const MemoryScope scope(device, MemoryTag::kWorkspace);
    workspace = Tensor::Empty(
        device, {WorkspaceBytes(args, device.context().isa())}, kU8);
    args.workspace = workspace.view();
  }
  Launch(op, kProduct, a, args, {&a, &b, &terms.bias, &terms.addend},
         {&c, &workspace});
}

}  // namespace

void Product(absl::string_view op, const Tensor& a, const Tensor& b,
             const Terms& terms, double alpha, const Tensor& c) {
  ProductArgs args;
  args.b = b.view();
  args.alpha = alpha;
  Run(op, args, a, b, terms, c);
}

void PanelProduct(absl::string_view op, const Tensor& a, const Tensor& panels,
                  DType b_dtype, const Terms& terms, double alpha,
                  const Tensor& c) {
  ProductArgs args;
  args.b.dtype = b_dtype;
  args.b.ndim = 2;
  args.b.shape[0] = a.dim(-1);
  args.b.shape[1] = c.dim(-1);
  args.prepared = true;
  args.panels = panels.view();
  args.alpha = alpha;
  Run(op, args, a, panels, terms, c);
}

}  // namespace espalier::matmul
