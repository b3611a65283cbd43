#ifndef ESPALIER_TESTS_SUPPORT_REFUSALS_H_
#define ESPALIER_TESTS_SUPPORT_REFUSALS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace espalier::test {

// What is changed of a good config, and a part of the message it is refused
// with.
template <typename Config>
using Refusals = std::vector<std::pair<void (*)(Config&), std::string>>;

// Validate accepts `good`, and gives INVALID_ARGUMENT after each change.
template <typename Config>
void ExpectRefused(const Config& good, const Refusals<Config>& refusals) {
  EXPECT_EQ(Validate(good), absl::OkStatus());
  for (const auto& [change, text] : refusals) {
    Config config = good;
    change(config);
    const absl::Status refused = Validate(config);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(text));
  }
}

}  // namespace espalier::test

#endif  // ESPALIER_TESTS_SUPPORT_REFUSALS_H_
