#include <cstring>

#include "espalier/ops/matmul/linear_terms.h"
#include "espalier/ops/packed_matmul/internal/kernels.h"
#include "espalier/ops/packed_matmul/panel_products.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_lanes.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::packed {
namespace {

// Both directions compute in the dtype of the forward x.
gemm::Compute ComputeOf(const LinearArgs& args) {
  const DType dtype =
      args.direction == Direction::kForward ? args.x.dtype : args.y.dtype;
  return gemm::ComputeFor(dtype, dtype);
}

Product MakeProduct(const LinearArgs& args, Isa isa) {
  Product product;
  product.m = args.x.dim(0);
  product.k = args.x.dim(1);
  product.n = args.y.dim(1);
  product.a = {args.x.pointer, args.x.dtype, args.x.stride(0), 1};
  product.pack_b = FindPack(args.weight, args.direction,
                            gemm::FindTile(isa, ComputeOf(args)));
  if (args.direction == Direction::kForward && args.x.dtype == kBF16) {
    product.fused = FindFused(args.weight, isa);
  }
  product.source = &args.weight;
  product.c = args.y.pointer;
  product.c_stride = args.y.stride(0);
  product.alpha = static_cast<float>(args.alpha);
  product.beta = static_cast<float>(args.beta);
  product.bias = args.bias.pointer;
  product.bias_dtype = args.bias.dtype;
  return product;
}

Products MakeProducts(const LinearArgs& args, const Product& product) {
  return {.list = absl::MakeConstSpan(&product, 1),
          .compute = ComputeOf(args),
          .c_dtype = args.y.dtype};
}

// Columns i and i + 4 of a word of 8 to byte i, as sign and magnitude.
uint32_t PairNibbles(uint32_t word) {
  uint32_t bytes = 0;
  for (int i = 0; i < 8; ++i) {
    const uint32_t lane = Int4ToLane(word >> (4 * i) & 15);
    bytes |= lane << (i % 4 * 8 + i / 4 * 4);
  }
  return bytes;
}

// 16 units of 4 bytes, one a feature and in the order of kRows, to a line.
void WriteLine(PackedFormat format, const uint32_t units[16], uint8_t* line) {
  uint32_t words[16];
  if (format == PackedFormat::kMxfp4) {
    for (int i = 0; i < 16; ++i) words[i] = SplitNibbles(units[i]);
  } else {
    const bool int4 = format == PackedFormat::kInt4;
    for (int64_t i = 0; i < 8; ++i) {  // features 2i, 2i + 1 of a set of four
      const int64_t at = i / 2 * 4 + i % 2;
      const uint32_t a = int4 ? PairNibbles(units[2 * i]) : units[2 * i];
      const uint32_t b =
          int4 ? PairNibbles(units[2 * i + 1]) : units[2 * i + 1];
      words[at] = (a & 0xffffu) | b << 16;
      words[at + 2] = a >> 16 | (b & 0xffff0000u);
    }
  }
  std::memcpy(line, words, 64);
}

void PreparePanel(const PrepareArgs& args, int64_t panel) {
  const PackedView& rows = args.rows;
  const int64_t strips = CeilDiv(rows.out, kPackedStrip);
  const int64_t first = panel * kPanelStrips;
  const int64_t width =
      strips - first < kPanelStrips ? strips - first : kPanelStrips;
  const int64_t columns = rows.format == PackedFormat::kFp8Block ? 4 : 8;
  const int64_t units = CeilDiv(rows.in, columns);
  const int64_t row_bytes = rows.codes.dim(1) * SizeOf(rows.codes.dtype);
  const int64_t stride = rows.codes.stride(0) * SizeOf(rows.codes.dtype);
  const auto* codes = rows.codes.data<uint8_t>();
  auto* line = args.codes.data<uint8_t>() + 64 * first * units;
  for (int64_t unit = 0; unit < units; ++unit) {
    const int64_t left = row_bytes - 4 * unit;
    const auto bytes = static_cast<size_t>(left < 4 ? left : 4);
    for (int64_t t = 0; t < width; ++t, line += 64) {
      uint32_t words[16] = {};
      for (int64_t i = 0; i < kPackedStrip; ++i) {
        const int64_t row = (first + t) * kPackedStrip + i;
        if (row >= rows.out) break;
        std::memcpy(&words[i], codes + row * stride + 4 * unit, bytes);
      }
      WriteLine(rows.format, words, line);
    }
  }
  if (!args.scales) return;
  const int64_t groups = rows.scales.dim(1);
  const int64_t size = SizeOf(rows.scales.dtype);
  const auto* from = rows.scales.data<uint8_t>();
  auto* to = args.scales.data<uint8_t>() + size * kPackedStrip * first * groups;
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t i = 0; i < width * kPackedStrip; ++i, to += size) {
      // Absent features repeat the last one: never an odd scale of their own.
      int64_t row = first * kPackedStrip + i;
      if (row >= rows.out) row = rows.out - 1;
      std::memcpy(to, from + (row * rows.scales.stride(0) + group) * size,
                  static_cast<size_t>(size));
    }
  }
}

}  // namespace

int64_t LinearWorkspaceBytes(const LinearArgs& args, Isa isa, int num_threads) {
  const Product product = MakeProduct(args, isa);
  return ProductsWorkspaceBytes(MakeProducts(args, product), isa, num_threads);
}

void LinearCpu(const LinearArgs& args, const Exec& exec) {
  if (args.beta != 0) matmul::CopyAddend(args.addend, args.y, exec);
  const Product product = MakeProduct(args, exec.isa);
  RunProducts(MakeProducts(args, product), exec,
              {args.workspace.pointer, args.workspace.dim(0)});
}

void PrepareCpu(const PrepareArgs& args, const Exec& exec) {
  constexpr int64_t kPanel = kPackedStrip * kPanelStrips;
  exec.pool.ParallelFor(CeilDiv(args.rows.out, kPanel), 1,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            PreparePanel(args, i);
                          }
                        });
}

}  // namespace espalier::packed
