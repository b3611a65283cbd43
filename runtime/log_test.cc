#include "espalier/runtime/log.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/runtime/context.h"

namespace espalier {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class ListSink final : public LogSink {
 public:
  void Write(Severity severity, absl::string_view message) override {
    lines.push_back(absl::StrCat(ToString(severity), ": ", message));
  }
  std::vector<std::string> lines;  // unguarded: the context calls in turn
};

TEST(LogTest, NoSinkByDefault) {
  auto context = *Context::Create({});
  EXPECT_FALSE(context->logs(Severity::kError));
  context->Log(Severity::kError, "into the void");
}

TEST(LogTest, SinkGetsWhatIsSevereEnough) {
  ListSink sink;
  auto context = *Context::Create({.log_sink = &sink});
  EXPECT_FALSE(context->logs(Severity::kDebug));
  EXPECT_TRUE(context->logs(Severity::kInfo));
  context->Log(Severity::kDebug, "small");
  context->Log(Severity::kInfo, "step 3");
  context->Log(Severity::kWarning, "expert 7 idle");
  EXPECT_THAT(sink.lines,
              ElementsAre("info: step 3", "warning: expert 7 idle"));
}

TEST(LogTest, EachContextHasItsOwnSink) {
  ListSink chatty, terse;
  auto first =
      *Context::Create({.log_sink = &chatty, .min_severity = Severity::kDebug});
  auto second =
      *Context::Create({.log_sink = &terse, .min_severity = Severity::kError});
  for (Context* context : {first.get(), second.get()}) {
    context->Log(Severity::kDebug, "a");
    context->Log(Severity::kError, "b");
  }
  EXPECT_THAT(chatty.lines, ElementsAre("debug: a", "error: b"));
  EXPECT_THAT(terse.lines, ElementsAre("error: b"));
}

TEST(LogTest, PoolThreadsWriteInTurn) {
  ListSink sink;
  auto context = *Context::Create({.num_threads = 3, .log_sink = &sink});
  context->pool().ParallelFor(
      1000, 1, [&](int64_t, int64_t) { context->Log(Severity::kInfo, "x"); });
  EXPECT_EQ(sink.lines.size(), 1000u);
  EXPECT_THAT(sink.lines, Each("info: x"));
}

}  // namespace
}  // namespace espalier
