#include "espalier/runtime/guard.h"

#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/check.h"

namespace espalier::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GuardTest, OkWhenNothingIsThrown) {
  int runs = 0;
  EXPECT_TRUE(Guard([&] { ++runs; }).ok());
  EXPECT_EQ(runs, 1);
}

TEST(GuardTest, FailureBecomesItsStatus) {
  const absl::Status status =
      Guard([] { Fail(absl::DataLossError("page 7 is torn")); });
  EXPECT_EQ(status, absl::DataLossError("page 7 is torn"));
}

TEST(GuardTest, FailureWithoutStatusIsNoSuccess) {
  EXPECT_TRUE(absl::IsInternal(Guard([] { Fail(absl::OkStatus()); })));
  EXPECT_TRUE(absl::IsInternal(
      GuardValue<int>([]() -> int { Fail(absl::OkStatus()); }).status()));
}

TEST(GuardTest, CheckNamesDetailFileAndCondition) {
  const int rows = 3;
  const absl::Status status =
      Guard([&] { ESPALIER_CHECK(rows == 4, "rows is ", rows); });
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rows is 3 (guard_test.cc:"),
                    HasSubstr(": rows == 4)"), Not(HasSubstr("/"))));
  EXPECT_THAT(std::string(Guard([&] { ESPALIER_CHECK(rows == 4); }).message()),
              ::testing::StartsWith("(guard_test.cc:"));
}

TEST(GuardTest, CheckEvaluatesItsPartsOnlyOnFailure) {
  int evaluations = 0;
  ESPALIER_CHECK(true, ++evaluations);
  EXPECT_EQ(evaluations, 0);
}

TEST(GuardTest, InnermostGuardTakesIt) {
  bool after_inner = false;
  const absl::Status outer = Guard([&] {
    const absl::Status inner = Guard([] { Fail(absl::AbortedError("in")); });
    EXPECT_TRUE(absl::IsAborted(inner));
    after_inner = true;
    Fail(absl::CancelledError("out"));
  });
  EXPECT_TRUE(after_inner);
  EXPECT_TRUE(absl::IsCancelled(outer));
}

TEST(GuardTest, ForeignExceptionsBecomeStatuses) {
  EXPECT_TRUE(absl::IsResourceExhausted(Guard([] { throw std::bad_alloc(); })));
  EXPECT_EQ(Guard([] { throw std::runtime_error("odd"); }),
            absl::InternalError("exception: odd"));
  EXPECT_EQ(Guard([] { throw 42; }), absl::InternalError("unknown exception"));
}

TEST(GuardTest, ValueComesThrough) {
  EXPECT_EQ(*GuardValue<int>([] { return 7; }), 7);
  auto moved =
      GuardValue<std::unique_ptr<int>>([] { return std::make_unique<int>(9); });
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(**moved, 9);
  EXPECT_TRUE(absl::IsNotFound(GuardValue<int>([]() -> int {
                                 Fail(absl::NotFoundError("no"));
                               }).status()));
}

}  // namespace
}  // namespace espalier::internal
