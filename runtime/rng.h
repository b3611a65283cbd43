#ifndef ESPALIER_RUNTIME_RNG_H_
#define ESPALIER_RUNTIME_RNG_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

#include "espalier/runtime/tensor.h"

namespace espalier {

// Random numbers are a pure function of (seed, stream, counter): no state is
// saved but those three, any number can be had without the ones before it, and
// nothing depends on threads, devices or the machine.

using RandomBlock = std::array<uint32_t, 4>;

inline constexpr uint64_t kPhilox0 = 0xD2511F53u;
inline constexpr uint64_t kPhilox1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxKey0 = 0x9E3779B9u;
inline constexpr uint32_t kPhiloxKey1 = 0xBB67AE85u;

// Philox4x32-10: ten rounds over a 128-bit counter with a 64-bit key (Salmon,
// Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
constexpr RandomBlock Philox(RandomBlock counter, uint64_t key) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kPhilox0 * counter[0];
    const uint64_t b = kPhilox1 * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0,
               static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1,
               static_cast<uint32_t>(a)};
    key0 += kPhiloxKey0;
    key1 += kPhiloxKey1;
  }
  return counter;
}

// The top 24 bits of a word as a fraction: a multiple of 2^-24 in [0, 1).
constexpr float UniformFloat(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// The top 53 bits of two words as a fraction: a multiple of 2^-53 in [0, 1).
constexpr double UniformDouble(uint32_t low, uint32_t high) {
  const uint64_t bits = (uint64_t{high} << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Two independent standard normals of one block (Box and Muller 1958):
//   u = 1 - UniformDouble(w0, w1), v = UniformDouble(w2, w3)
//   sqrt(-2 ln u) * {cos(2 pi v), sin(2 pi v)}
// Logarithm, sine and cosine are evaluated with additions, multiplications and
// divisions of f64 alone, so the bits do not depend on a math library. Within
// 1e-15 * max(1, |value|) of the exact formula.
std::array<double, 2> NormalPair(const RandomBlock& block);

// One stream of numbers. Block number c of it is Philox of the counter words
// (c low, c high, stream low, stream high) under the key `seed`.
struct Rng {
  uint64_t seed = 0;
  uint64_t stream = 0;

  constexpr RandomBlock Block(uint64_t counter) const {
    return Philox(
        {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
         static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
        seed);
  }
  // Number i of the stream as 32 bits: word i mod 4 of block i / 4.
  constexpr uint32_t Bits(uint64_t i) const { return Block(i / 4)[i % 4]; }
  // Bits(i) for i in [index * kBatch, (index + 1) * kBatch), several times
  // faster than one by one.
  static constexpr int kBatch = 256;
  void BitsBatch(uint64_t index, uint32_t (&bits)[kBatch]) const;
  // UniformFloat of Bits(i).
  constexpr float Float(uint64_t i) const { return UniformFloat(Bits(i)); }
  // From words 2 (i mod 2) and the next of block i / 2.
  constexpr double Double(uint64_t i) const {
    const RandomBlock block = Block(i / 2);
    const size_t word = i % 2 * 2;
    return UniformDouble(block[word], block[word + 1]);
  }
  // Element i mod 2 of NormalPair of block i / 2.
  double Normal(uint64_t i) const { return NormalPair(Block(i / 2))[i % 2]; }
};

// A stream number made from a name, such as that of a parameter: FNV-1a, 64
// bits. Initial values then do not depend on the order of initialisation.
uint64_t StreamOf(absl::string_view name);

// Reads a stream from its start, 64 bits (two words) at a time.
class RandomSequence {
 public:
  explicit RandomSequence(const Rng& rng) : rng_(rng) {}
  uint64_t Next();
  // Uniform in [0, bound), bound >= 1, without bias: the high half of
  // bound * Next(), drawn again for the low halves that are too many (Lemire,
  // arXiv:1805.10941).
  uint64_t NextBelow(uint64_t bound);

 private:
  Rng rng_;
  RandomBlock block_{};
  uint64_t num_read_ = 0;
};

// A uniformly drawn order of 0 .. n-1 (Fisher and Yates, from the end down).
std::vector<int64_t> RandomPermutation(const Rng& rng, int64_t n);

// Overwrites a contiguous tensor, f64 f32 bf16 f16. Element i, in row-major
// order, is, with u = rng.Double(i) for f64 and rng.Float(i) otherwise,
//   low + (high - low) * u                    FillUniform, low <= high
//   mean + stddev * rng.Normal(i)             FillNormal, stddev >= 0
// in f64 (normal; uniform of f64) or f32 arithmetic, rounded once to the dtype.
// Rounding may reach `high`. Fails INTERNAL on a strided or read-only tensor,
// UNIMPLEMENTED on other dtypes.
void FillUniform(const Tensor& tensor, const Rng& rng, double low, double high);
void FillNormal(const Tensor& tensor, const Rng& rng, double mean,
                double stddev);

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_RNG_H_
