#include "espalier/ops/online_softmax/online_softmax.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/tests/support/env.h"

namespace espalier::online_softmax {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Random(size_t count, float spread) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

double Score(float x, float scale, float cap) {
  const double z = double{x} * scale;
  return cap > 0 ? cap * std::tanh(z / cap) : z;
}

// Two blocks of one row, the second with larger scores.
void CheckTwoBlocks(Isa isa, int64_t width, int32_t begin, int32_t end,
                    float cap) {
  const int64_t stride = width + kSlack;
  const float scale = 0.3f;
  float max = -INFINITY;
  float sum = 0;
  std::vector<float> out(3);
  double want_sum = 0;
  double highest = -INFINITY;
  std::vector<double> all;
  for (int block = 0; block < 2; ++block) {
    const std::vector<float> raw =
        Random(static_cast<size_t>(width), block == 0 ? 1.0f : 30.0f);
    std::vector<float> scores(static_cast<size_t>(stride), kNan);
    std::copy(raw.begin(), raw.end(), scores.begin());
    const float old_max = max;
    out = {1, 2, 3};
    AddBlock({.scores = scores.data(),
              .stride = stride,
              .rows = 1,
              .begin = &begin,
              .end = &end,
              .zero_begin = 0,
              .zero_end = width,
              .scale = scale,
              .cap = cap,
              .max = &max,
              .sum = &sum,
              .out = out.data(),
              .out_stride = 3,
              .out_width = 3},
             isa);
    for (int64_t c = 0; c < width; ++c) {
      const size_t i = static_cast<size_t>(c);
      if (c < begin || c >= end) {
        EXPECT_EQ(scores[i], 0) << c;
        continue;
      }
      const double z = Score(raw[i], scale, cap);
      all.push_back(z);
      highest = std::max(highest, z);
      EXPECT_NEAR(scores[i], std::exp(z - max * kLn2), 4e-6) << c;
    }
    if (block == 1 && begin < end) {
      EXPECT_NEAR(out[1], 2 * std::exp2(old_max - max), 1e-6);
    }
  }
  if (begin >= end) {
    EXPECT_EQ(max, -INFINITY);
    EXPECT_EQ(sum, 0);
    EXPECT_EQ(out[1], 2);
    return;
  }
  for (const double z : all) want_sum += std::exp(z - highest);
  EXPECT_NEAR(LogSumExp(max, sum), highest + std::log(want_sum),
              2e-6 * (1 + std::abs(highest)));
}

TEST(OnlineSoftmaxTest, TwoBlocksGiveTheSoftmaxOfBoth) {
  for (const Isa isa : test::RunnableIsas()) {
    for (const int32_t width : {1, 7, 16, 31, 32, 33, 100}) {
      for (const float cap : {0.0f, 2.5f}) {
        CheckTwoBlocks(isa, width, 0, width, cap);
        CheckTwoBlocks(isa, width, width / 3, width - width / 4, cap);
        CheckTwoBlocks(isa, width, 1, 1, cap);
      }
    }
  }
}

TEST(OnlineSoftmaxTest, NanReachesTheSum) {
  for (const Isa isa : test::RunnableIsas()) {
    for (const int32_t at : {0, 20, 36}) {
      std::vector<float> scores(37 + kSlack, 1.0f);
      scores[static_cast<size_t>(at)] = kNan;
      const int32_t begin = 0, end = 37;
      float max = -INFINITY, sum = 0;
      AddBlock({.scores = scores.data(),
                .rows = 1,
                .begin = &begin,
                .end = &end,
                .max = &max,
                .sum = &sum},
               isa);
      EXPECT_TRUE(std::isnan(sum)) << at;
      EXPECT_TRUE(std::isnan(scores[static_cast<size_t>(at)])) << at;
    }
  }
}

TEST(OnlineSoftmaxTest, FarScoresVanish) {
  for (const Isa isa : test::RunnableIsas()) {
    std::vector<float> scores(3 + kSlack, 0.0f);
    scores[1] = -1e30f;
    scores[2] = -1e4f;
    const int32_t begin = 0, end = 3;
    float max = -INFINITY, sum = 0;
    AddBlock({.scores = scores.data(),
              .rows = 1,
              .begin = &begin,
              .end = &end,
              .max = &max,
              .sum = &sum},
             isa);
    EXPECT_EQ(max, 0);
    EXPECT_EQ(sum, 1);
    EXPECT_EQ(scores[0], 1);
    EXPECT_LT(scores[1], 1e-37f);
    EXPECT_LT(scores[2], 1e-37f);
  }
}

TEST(OnlineSoftmaxTest, ScalesAndRoundsRows) {
  for (const Isa isa : test::RunnableIsas()) {
    const std::vector<float> from = Random(size_t{2} * 40, 1);
    const std::vector<float> factors = {2.0f, -0.7f};
    std::vector<BFloat16> to(size_t{2} * 37, BFloat16(kNan));
    ScaleRows({.from = from.data(),
               .from_stride = 40,
               .factors = factors.data(),
               .rows = 2,
               .width = 37,
               .to = to.data(),
               .to_stride = 37,
               .to_dtype = kBF16},
              isa);
    for (size_t r = 0; r < 2; ++r) {
      for (size_t i = 0; i < 37; ++i) {
        EXPECT_EQ(to[r * 37 + i].bits,
                  BFloat16(from[r * 40 + i] * factors[r]).bits);
      }
    }
  }
}

}  // namespace
}  // namespace espalier::online_softmax
