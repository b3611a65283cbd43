#include "espalier/ops/embedding/embedding.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "espalier/runtime/guard.h"
#include "espalier/tests/support/compare.h"
#include "espalier/tests/support/op_check.h"

namespace espalier {
namespace {

test::Fn Lookup(std::vector<int32_t> ids) {
  return [ids = std::move(ids)](const std::vector<Variable>& in) {
    return Embedding(in[0], Tensor::FromHost<int32_t>(
                                in[0].value().device(),
                                {static_cast<int64_t>(ids.size())}, ids));
  };
}

class EmbeddingTest : public test::OpTest {};
INSTANTIATE_TEST_SUITE_P(Targets, EmbeddingTest,
                         ::testing::ValuesIn(test::Targets(1e-6, 1e-2)),
                         ::testing::PrintToStringParamName());

TEST_P(EmbeddingTest, MatchesF64Reference) {
  EXPECT_TRUE(test::MatchesReference(Lookup({3, 0, 3, 4, 3}), GetParam(),
                                     {Shape{6, 7}}));
  EXPECT_TRUE(test::MatchesReference(Lookup({0}), GetParam(), {Shape{1, 1}}));
  EXPECT_TRUE(
      test::MatchesReference(Lookup({1, 1, 0}), GetParam(), {Shape{2, 700}}));
}

TEST_P(EmbeddingTest, SameBitsForAllThreads) {
  std::vector<int32_t> ids;
  ids.reserve(400);
  for (int i = 0; i < 400; ++i) ids.push_back(i * i % 329);
  EXPECT_TRUE(
      test::SameBitsForAllThreads(Lookup(ids), GetParam(), {{331, 300}}));
}

TEST(EmbeddingValueTest, RowsAreCopied) {
  const Variable weight = test::Normal({4, 3}, 1);
  const Variable y = Lookup({2, 0})({weight});
  EXPECT_TRUE(
      test::SameBits(y.value().Slice(0, 0, 1), weight.value().Slice(0, 2, 1)));
  EXPECT_TRUE(
      test::SameBits(y.value().Slice(0, 1, 1), weight.value().Slice(0, 0, 1)));
  EXPECT_EQ(Lookup({})({weight}).shape(), (Shape{0, 3}));
}

TEST(EmbeddingGradTest, RepeatedAndUnusedIds) {
  EXPECT_TRUE(
      test::GradCheck(Lookup({3, 0, 3, 1, 3}), {test::Normal({5, 4}, 1)}));
  EXPECT_TRUE(
      test::GradCheck(Lookup({3, 0}), {test::Frozen(test::Normal({5, 4}, 1))}));
}

TEST(EmbeddingCheckTest, NamesIdAndPosition) {
  for (const int32_t id : {-1, 5}) {
    const absl::Status s = internal::Guard([&] {
      Lookup({0, id})({test::Normal({5, 4}, 1)});
    });
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(s.message(), ::testing::HasSubstr(absl::StrCat(
                                 "token id ", id, " at position 1")));
  }
}

}  // namespace
}  // namespace espalier
