#include "espalier/runtime/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "espalier/runtime/check.h"
#include "espalier/runtime/kernel.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier {

namespace {

// ln x for x in (0, 1], normal. x = 2^e m with m in [sqrt(1/2), sqrt(2)), and
// ln m = 2 artanh f with f = (m - 1) / (m + 1), |f| <= 0.172.
double Log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdu;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // exact times any e here
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const uint64_t bits = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  const auto e = static_cast<double>(static_cast<int64_t>(bits) >> 52);
  const double m = std::bit_cast<double>((bits & 0xfffffffffffffu) + kSqrtHalf);
  const double f = (m - 1) / (m + 1);
  const double s = f * f;
  double p = 1.0 / 21;
  for (int k = 19; k >= 3; k -= 2) p = p * s + 1.0 / k;
  return e * kLn2High + (2 * f + (2 * f * s * p + e * kLn2Low));
}

// {cos(2 pi v), sin(2 pi v)} for v in [0, 1): a quarter turn is exact in v, the
// rest of at most an eighth goes into the Taylor series.
std::array<double, 2> CosSin(double v) {
  constexpr double kHalfPi = 0x1.921fb54442d18p+0;
  const double turns = v * 4;
  const auto quarter = static_cast<int64_t>(std::floor(turns + 0.5));
  const double x = (turns - static_cast<double>(quarter)) * kHalfPi;
  const double s = x * x;
  double sine = 1;
  for (int k = 16; k >= 2; k -= 2) sine = 1 - sine * s / (k * (k + 1));
  sine *= x;
  double cosine = 1;
  for (int k = 17; k >= 1; k -= 2) cosine = 1 - cosine * s / (k * (k + 1));
  switch (quarter & 3) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

constexpr int64_t kGrain = 1 << 14;  // elements; whole batches

struct FillArgs {
  View out;
  Rng rng;
  double offset;
  double scale;
};

template <typename T>
void UniformKernel(const FillArgs& args, const Exec& exec) {
  T* const out = args.out.data<T>();
  const auto offset = static_cast<float>(args.offset);
  const auto scale = static_cast<float>(args.scale);
  exec.pool.ParallelFor(
      args.out.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        uint32_t bits[Rng::kBatch];
        for (int64_t i = begin; i < end; i += Rng::kBatch) {
          args.rng.BitsBatch(static_cast<uint64_t>(i / Rng::kBatch), bits);
          const int64_t count = std::min<int64_t>(Rng::kBatch, end - i);
          for (int64_t k = 0; k < count; ++k) {
            out[i + k] = static_cast<T>(offset + scale * UniformFloat(bits[k]));
          }
        }
      });
}

void UniformKernelF64(const FillArgs& args, const Exec& exec) {
  double* const out = args.out.data<double>();
  exec.pool.ParallelFor(
      args.out.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          out[i] = args.offset +
                   args.scale * args.rng.Double(static_cast<uint64_t>(i));
        }
      });
}

template <typename T>
void NormalKernel(const FillArgs& args, const Exec& exec) {
  T* const out = args.out.data<T>();
  exec.pool.ParallelFor(
      args.out.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += 2) {
          const std::array<double, 2> pair =
              NormalPair(args.rng.Block(static_cast<uint64_t>(i / 2)));
          out[i] = static_cast<T>(args.offset + args.scale * pair[0]);
          if (i + 1 == end) break;
          out[i + 1] = static_cast<T>(args.offset + args.scale * pair[1]);
        }
      });
}

constexpr Kernel<FillArgs> kUniform[] = {
    {kCpu, kF64, UniformKernelF64},
    {kCpu, kF32, UniformKernel<float>},
    {kCpu, kBF16, UniformKernel<BFloat16>},
    {kCpu, kF16, UniformKernel<Float16>},
};

constexpr Kernel<FillArgs> kNormal[] = {
    {kCpu, kF64, NormalKernel<double>},
    {kCpu, kF32, NormalKernel<float>},
    {kCpu, kBF16, NormalKernel<BFloat16>},
    {kCpu, kF16, NormalKernel<Float16>},
};

void CheckFill(const Tensor& tensor) {
  ESPALIER_CHECK(tensor.is_contiguous(), "random fill of a strided view of ",
                 ToString(tensor));
}

}  // namespace

std::array<double, 2> NormalPair(const RandomBlock& block) {
  const double u = 1 - UniformDouble(block[0], block[1]);
  const double radius = std::sqrt(-2 * Log(u));
  const std::array<double, 2> point = CosSin(UniformDouble(block[2], block[3]));
  return {radius * point[0], radius * point[1]};
}

void Rng::BitsBatch(uint64_t index, uint32_t (&bits)[kBatch]) const {
  // Philox of kLanes counters at once. The two halves of each product are
  // written apart and the lanes are many, because only so does GCC vectorise.
  constexpr int kLanes = kBatch / 4;
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t counter = index * kLanes + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(counter);
    c1[i] = static_cast<uint32_t>(counter >> 32);
    c2[i] = static_cast<uint32_t>(stream);
    c3[i] = static_cast<uint32_t>(stream >> 32);
  }
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const auto a = static_cast<uint32_t>((kPhilox0 * c0[i]) >> 32);
      const auto b = static_cast<uint32_t>((kPhilox1 * c2[i]) >> 32);
      const uint32_t low_a = static_cast<uint32_t>(kPhilox0) * c0[i];
      const uint32_t low_b = static_cast<uint32_t>(kPhilox1) * c2[i];
      c0[i] = b ^ c1[i] ^ key0;
      c1[i] = low_b;
      c2[i] = a ^ c3[i] ^ key1;
      c3[i] = low_a;
    }
    key0 += kPhiloxKey0;
    key1 += kPhiloxKey1;
  }
  for (int64_t i = 0; i < kLanes; ++i) {
    bits[4 * i] = c0[i];
    bits[4 * i + 1] = c1[i];
    bits[4 * i + 2] = c2[i];
    bits[4 * i + 3] = c3[i];
  }
}

uint64_t StreamOf(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

uint64_t RandomSequence::Next() {
  if (num_read_ % 2 == 0) block_ = rng_.Block(num_read_ / 2);
  const size_t word = num_read_ % 2 * 2;
  ++num_read_;
  return (uint64_t{block_[word + 1]} << 32) | block_[word];
}

uint64_t RandomSequence::NextBelow(uint64_t bound) {
  ESPALIER_CHECK(bound > 0, "random number below 0");
  const uint64_t surplus = (0 - bound) % bound;  // 2^64 mod bound
  for (;;) {
    const auto product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<uint64_t>(product) >= surplus) {
      return static_cast<uint64_t>(product >> 64);
    }
  }
}

std::vector<int64_t> RandomPermutation(const Rng& rng, int64_t n) {
  ESPALIER_CHECK(n >= 0, "permutation of ", n);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomSequence sequence(rng);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[sequence.NextBelow(i)]);
  }
  return order;
}

void FillUniform(const Tensor& tensor, const Rng& rng, double low,
                 double high) {
  CheckFill(tensor);
  ESPALIER_CHECK(low <= high, "uniform between ", low, " and ", high);
  Launch("fill_uniform", kUniform, tensor,
         FillArgs{tensor.view(), rng, low, high - low}, {}, {&tensor});
}

void FillNormal(const Tensor& tensor, const Rng& rng, double mean,
                double stddev) {
  CheckFill(tensor);
  ESPALIER_CHECK(stddev >= 0, "normal of deviation ", stddev);
  Launch("fill_normal", kNormal, tensor,
         FillArgs{tensor.view(), rng, mean, stddev}, {}, {&tensor});
}

}  // namespace espalier
