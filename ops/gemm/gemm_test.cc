#include "espalier/ops/gemm/gemm.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/ops/gemm/plan.h"
#include "espalier/runtime/context.h"
#include "espalier/runtime/guard.h"
#include "espalier/tests/support/env.h"

namespace espalier::gemm {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<Isa> Isas() {
  std::vector<Isa> isas = {BaselineIsa()};
  if (DetectIsa() != BaselineIsa()) isas.push_back(DetectIsa());
  if (DetectIsa() == Isa::kAvx512Bf16) isas.push_back(Isa::kAvx512);
  return isas;
}

// A matrix [rows, cols] in memory of a dtype, row-major or transposed, with a
// gap between its lines.
struct Matrix {
  Matrix(int64_t rows, int64_t cols, DType dtype, bool transposed,
         uint32_t seed)
      : dtype(dtype),
        row_stride(transposed ? 1 : cols + 3),
        col_stride(transposed ? rows + 5 : 1),
        f32(static_cast<size_t>((rows + 5) * (cols + 5)), kNan),
        bf16(f32.size(), BFloat16(kNan)) {
    uint32_t state = seed * 2654435761u + 12345u;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        state = state * 1664525u + 1013904223u;
        const BFloat16 small(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
        const size_t at = static_cast<size_t>(r * row_stride + c * col_stride);
        // f32 values need all their bits, bf16 ones must be exact in f64 sums.
        f32[at] = dtype == kF32 ? static_cast<float>(state) * 0x1p-31f - 1.0f
                                : float{small};
        bf16[at] = small;
      }
    }
  }
  double at(int64_t r, int64_t c) const {
    const size_t i = static_cast<size_t>(r * row_stride + c * col_stride);
    return dtype == kF32 ? f32[i] : float{bf16[i]};
  }
  const void* data() const {
    return dtype == kF32 ? static_cast<const void*>(f32.data()) : bf16.data();
  }
  Operand AsA() const { return {data(), dtype, row_stride, col_stride}; }
  Operand AsB() const { return {data(), dtype, col_stride, row_stride}; }

  DType dtype;
  int64_t row_stride, col_stride;
  std::vector<float> f32;
  std::vector<BFloat16> bf16;
};

struct Case {
  int64_t m, n, k;
  DType a = kF32, b = kF32, c = kF32;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 0;
  bool bias = false, prepack = false;
};

std::string Name(const Case& t) {
  return absl::StrCat(t.m, "x", t.n, "x", t.k, " ", ToString(t.a),
                      t.transpose_a ? "T " : "N ", ToString(t.b),
                      t.transpose_b ? "T " : "N ", ToString(t.c), " alpha ",
                      t.alpha, " beta ", t.beta, t.bias ? " bias" : "",
                      t.prepack ? " prepacked" : "");
}

uint32_t* Aligned(std::vector<char>& storage, int64_t bytes) {
  storage.assign(static_cast<size_t>(bytes) + 64, '\xff');
  void* at = storage.data();
  size_t space = storage.size();
  return static_cast<uint32_t*>(
      std::align(64, static_cast<size_t>(bytes), at, space));
}

class Harness {
 public:
  Harness(Isa isa, int num_threads, Executor* executor = nullptr) {
    ContextOptions options;
    options.num_threads = num_threads;
    options.max_isa = isa;
    options.executor = executor;
    context_ = *Context::Create(options);
  }
  Exec exec() { return context_->cpu().exec(context_->cpu().compute_stream()); }

  // C as f32 values, from a C that starts at 0.5 (NaN with beta 0).
  std::vector<float> Run(const Case& t) {
    const Matrix a(t.m, t.k, t.a, t.transpose_a, 1);
    const Matrix b(t.k, t.n, t.b, t.transpose_b, 2);
    const std::vector<float> bias(static_cast<size_t>(t.n), 0.25f);
    const float before = t.beta == 0 ? kNan : 0.5f;
    const int64_t stride = t.n + 2;
    std::vector<float> c(static_cast<size_t>(t.m * stride), before);
    std::vector<BFloat16> c16(c.size(), BFloat16(before));
    GemmArgs args;
    args.m = t.m;
    args.n = t.n;
    args.k = t.k;
    args.a = a.AsA();
    args.b = b.AsB();
    args.compute = ComputeFor(t.a, t.b);
    args.c = t.c == kF32 ? static_cast<void*>(c.data()) : c16.data();
    args.c_dtype = t.c;
    args.c_stride = stride;
    args.alpha = t.alpha;
    args.beta = t.beta;
    if (t.bias) args.bias = bias.data();
    std::vector<char> packed;
    if (t.prepack) {
      const Tile& tile = FindTile(exec().isa, args.compute);
      uint32_t* at = Aligned(packed, PackedBBytes(t.n, t.k, tile));
      PackB(args.b, t.n, t.k, tile, exec().pool, at);
      args.packed_b = at;
    }
    std::vector<char> workspace;
    const int64_t bytes = WorkspaceBytes(args, exec().isa);
    Gemm(args, exec(), {Aligned(workspace, bytes), bytes});
    std::vector<float> out;
    for (int64_t i = 0; i < t.m; ++i) {
      for (int64_t j = 0; j < t.n; ++j) {
        const size_t at = static_cast<size_t>(i * stride + j);
        out.push_back(t.c == kF32 ? c[at] : float{c16[at]});
      }
      for (int64_t j = t.n; j < stride; ++j) {  // the gap is not touched
        const size_t at = static_cast<size_t>(i * stride + j);
        const float gap = t.c == kF32 ? c[at] : float{c16[at]};
        EXPECT_TRUE(std::isnan(before) ? std::isnan(gap) : gap == before);
      }
    }
    return out;
  }

 private:
  std::unique_ptr<Context> context_;
};

void ExpectMatchesF64(const Case& t, const std::vector<float>& got) {
  const Matrix a(t.m, t.k, t.a, t.transpose_a, 1);
  const Matrix b(t.k, t.n, t.b, t.transpose_b, 2);
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = 0; j < t.n; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < t.k; ++k) {
        sum += a.at(i, k) * b.at(k, j);
        magnitude += std::fabs(a.at(i, k) * b.at(k, j));
      }
      const double want = t.alpha * sum + (t.beta == 0 ? 0 : t.beta * 0.5) +
                          (t.bias ? 0.25 : 0);
      // A chain of k roundings is within sqrt(k) of random ones; 2^-8 is one
      // rounding of the result to bf16.
      double tolerance = 2e-7 * (magnitude + 1) * (1 + std::sqrt(t.k) / 8);
      if (t.c == kBF16) tolerance += std::fabs(want) * 0x1p-8;
      const float value = got[static_cast<size_t>(i * t.n + j)];
      ASSERT_NEAR(value, want, tolerance) << Name(t) << " at " << i << "," << j;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const std::vector<std::vector<int64_t>> shapes = {
      {0, 3, 4},   {3, 0, 4},    {3, 5, 0},    {1, 1, 1},    {1, 17, 3},
      {2, 33, 31}, {7, 64, 5},   {13, 15, 16}, {15, 47, 65}, {16, 96, 130},
      {29, 49, 7}, {43, 31, 33}, {60, 70, 90}, {180, 40, 20}};
  for (const auto& s : shapes) {
    for (DType dtype : {kF32, kBF16}) {
      for (int form = 0; form < 4; ++form) {
        Case t{s[0], s[1], s[2], dtype, dtype, dtype};
        t.transpose_a = (form & 1) != 0;
        t.transpose_b = (form & 2) != 0;
        cases.push_back(t);
        t.c = dtype == kF32 ? kBF16 : kF32;
        t.prepack = form == 2;
        t.alpha = 0.5f;
        t.beta = form == 1 ? 0.0f : 2.0f;
        t.bias = form != 0;
        cases.push_back(t);
      }
    }
    cases.push_back({s[0], s[1], s[2], kBF16, kF32, kF32, false, true});
    cases.push_back({s[0], s[1], s[2], kF32, kBF16, kBF16, true, false});
  }
  // Several blocks of K, of M and of N.
  for (DType dtype : {kF32, kBF16}) {
    for (DType c : {kF32, kBF16}) {
      Case t{9, 35, 2500, dtype, dtype, c};
      cases.push_back(t);
      t.transpose_b = t.prepack = t.bias = true;
      t.alpha = 3;
      cases.push_back(t);
      t.beta = 1;
      cases.push_back(t);
    }
    cases.push_back({1100, 40, 3, dtype, dtype, kF32});
    cases.push_back({17, 2100, 9, dtype, dtype, kBF16, true, true});
  }
  return cases;
}

TEST(GemmTest, MatchesF64Loops) {
  for (Isa isa : Isas()) {
    Harness harness(isa, 1);
    for (const Case& t : Cases()) ExpectMatchesF64(t, harness.Run(t));
  }
}

TEST(GemmTest, BitEqualAtAnyNumberOfThreads) {
  const std::vector<Case> cases = {
      {300, 520, 1100, kBF16, kBF16, kBF16, false, true},
      {300, 520, 1100, kF32, kF32, kF32, true, false},
      {1200, 300, 1100, kBF16, kBF16, kBF16, true, true},
      {9, 300, 1100, kBF16, kBF16, kBF16, false, true}};
  for (const Case& t : cases) {
    const std::vector<float> one = Harness(DetectIsa(), 1).Run(t);
    for (int threads : {2, 3, 7}) {
      EXPECT_EQ(Harness(DetectIsa(), threads).Run(t), one)
          << Name(t) << " " << threads;
    }
    test::CountingExecutor executor;
    EXPECT_EQ(Harness(DetectIsa(), 7, &executor).Run(t), one) << Name(t);
    EXPECT_GT(executor.num_regions(), 0) << Name(t);
  }
}

TEST(GemmTest, BitEqualOnEveryInstructionSet) {
  for (const Case& t : {Case{37, 50, 1300, kF32, kF32, kF32},
                        Case{37, 50, 2101, kBF16, kBF16, kF32, false, true},
                        Case{5, 50, 2101, kBF16, kBF16, kBF16, true, false}}) {
    const std::vector<float> base = Harness(BaselineIsa(), 1).Run(t);
    for (Isa isa : Isas()) {
      EXPECT_EQ(Harness(isa, 1).Run(t), base)
          << Name(t) << " " << ToString(isa);
    }
  }
}

TEST(GemmTest, RowsDoNotDependOnTheirNumber) {
  for (DType dtype : {kF32, kBF16}) {
    Case t{200, 70, 1200, dtype, dtype, dtype, false, true};
    Harness harness(DetectIsa(), 1);
    const std::vector<float> all = harness.Run(t);
    for (int64_t m : {1, 4, 15, 40}) {
      t.m = m;
      const std::vector<float> some = harness.Run(t);
      EXPECT_EQ(some, std::vector<float>(all.begin(), all.begin() + m * t.n))
          << m;
    }
  }
}

TEST(GemmTest, BothStridesFree) {
  // Every second row and every second column of larger matrices.
  for (DType dtype : {kF32, kBF16}) {
    const int64_t m = 19, n = 21, k = 37;
    const Matrix a(2 * m, 2 * k, dtype, false, 1);
    const Matrix b(2 * k, 2 * n, dtype, false, 2);
    std::vector<float> c(static_cast<size_t>(m * n), kNan);
    GemmArgs args;
    args.m = m;
    args.n = n;
    args.k = k;
    args.a = {a.data(), dtype, 2 * a.row_stride, 2 * a.col_stride};
    args.b = {b.data(), dtype, 2 * b.col_stride, 2 * b.row_stride};
    args.compute = ComputeFor(dtype, dtype);
    args.c = c.data();
    args.c_stride = n;
    for (Isa isa : Isas()) {
      std::vector<char> workspace;
      const int64_t bytes = WorkspaceBytes(args, isa);
      GemmSerial(args, isa, {Aligned(workspace, bytes), bytes});
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            sum += a.at(2 * i, 2 * l) * b.at(2 * l, 2 * j);
          }
          ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], sum, 1e-5);
        }
      }
    }
  }
}

TEST(GemmTest, BatchesEqualSingleProducts) {
  const int64_t m = 5, n = 18, k = 9, batches = 37;
  const Matrix a(batches * m, k, kF32, false, 1);
  const Matrix b(k, n, kF32, false, 2);  // shared: stride 0
  std::vector<float> c(static_cast<size_t>(batches * m * n), kNan);
  GemmArgs args;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a = a.AsA();
  args.b = b.AsB();
  args.c = c.data();
  args.c_stride = n;
  args.num_batches = batches;
  args.a_batch_stride = m * a.row_stride;
  args.c_batch_stride = m * n;
  Harness harness(DetectIsa(), 3);
  std::vector<char> workspace;
  const int64_t bytes = WorkspaceBytes(args, DetectIsa());
  Gemm(args, harness.exec(), {Aligned(workspace, bytes), bytes});
  EXPECT_EQ(c, [&] {
    return harness.Run({batches * m, n, k, kF32, kF32, kF32});
  }());
}

TEST(GemmTest, RefusesAWorkspaceOneByteShort) {
  const Matrix a(9, 40, kF32, false, 1);
  const Matrix b(40, 33, kF32, false, 2);
  std::vector<float> c(size_t{9} * 33, 7.0f);
  GemmArgs args;
  args.m = 9;
  args.n = 33;
  args.k = 40;
  args.a = a.AsA();
  args.b = b.AsB();
  args.c = c.data();
  args.c_stride = 33;
  Harness harness(DetectIsa(), 1);
  std::vector<char> storage;
  for (const int64_t batches : {1, 3}) {
    args.num_batches = batches;  // all strides 0: the same product again
    const int64_t bytes = WorkspaceBytes(args, DetectIsa());
    const Workspace workspace = {Aligned(storage, bytes), bytes - 1};
    const absl::Status s =
        internal::Guard([&] { Gemm(args, harness.exec(), workspace); });
    EXPECT_THAT(std::string(s.message()),
                ::testing::HasSubstr(absl::StrCat("workspace of ", bytes - 1,
                                                  " bytes for 9x33x40 in ",
                                                  batches, " pieces: k 1x64")));
  }
  const Workspace none;
  const absl::Status s =
      internal::Guard([&] { GemmSerial(args, DetectIsa(), none); });
  EXPECT_EQ(s.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(c, std::vector<float>(c.size(), 7.0f));
}

// Two cuts of K whose sum is subnormal: whole tiles and edges keep it.
TEST(GemmTest, SubnormalSumsAreRoundedNotFlushed) {
  const int64_t m = 20, n = 45, k = 1056;
  const size_t cut = static_cast<size_t>(SplitK(k, Compute::kBF16).k_block);
  std::vector<BFloat16> a(static_cast<size_t>(m * k), BFloat16(0.0f));
  std::vector<BFloat16> b(static_cast<size_t>(n * k), BFloat16(0.0f));
  for (size_t i = 0; i < static_cast<size_t>(m); ++i) {
    a[i * static_cast<size_t>(k)] = BFloat16(0x1p-60f);
    a[i * static_cast<size_t>(k) + cut] = BFloat16(-1.25f * 0x1p-60f);
  }
  for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
    b[j * static_cast<size_t>(k)] = BFloat16(0x1p-66f);
    b[j * static_cast<size_t>(k) + cut] = BFloat16(0x1p-66f);
  }
  std::vector<BFloat16> c(static_cast<size_t>(m * n), BFloat16(kNan));
  GemmArgs args;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a = {a.data(), kBF16, k, 1};
  args.b = {b.data(), kBF16, k, 1};
  args.compute = Compute::kBF16;
  args.c = c.data();
  args.c_dtype = kBF16;
  args.c_stride = n;
  for (Isa isa : Isas()) {
    std::vector<char> workspace;
    const int64_t bytes = WorkspaceBytes(args, isa);
    GemmSerial(args, isa, {Aligned(workspace, bytes), bytes});
    for (const BFloat16 value : c) ASSERT_EQ(float{value}, -0x1p-128f);
  }
}

}  // namespace
}  // namespace espalier::gemm
