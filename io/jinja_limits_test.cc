#include <sys/resource.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/jinja.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

absl::Status StatusOf(const std::string& source, const JsonValue& data,
                      const JinjaOptions& options = JinjaOptions()) {
  const auto parsed = JinjaTemplate::Parse(source, "t", options);
  if (!parsed.ok()) return parsed.status();
  const JinjaVariable x = {"x", &data, JinjaVariable::Origin::kData, {}};
  return parsed->Render({&x, 1}).status();
}

int64_t PeakKiB() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Each would take gigabytes; x is "\x01", and a value may have 8 MiB.
TEST(JinjaLimitsTest, RoomIsAskedForBeforeItIsTaken) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ 'a' | center(2000000000) }}", "center"},
      {"{{ 'a' | center(9223372036854775807) }}", "center"},
      {"{{ 'a' | indent(2000000000, true) }}", "indent"},
      {"{{ ('\\n' * 99999) | indent(30000, true, true) }}", "indent"},
      {"{{ 'a' * 2000000000 }}", "*"},
      {"{{ 9223372036854775807 * 'ab' }}", "*"},
      {"{{ 50000000 * [0] }}", "*"},
      {"{{ range(99999) | join('a' * 30000) }}", "join"},
      {"{{ ('a' * 30000).join('b' * 9999) }}", "join"},
      {"{{ ('a' * 99999) | replace('a', 'b' * 30000) }}", "replace"},
      {"{{ ('a' * 99999).replace('', 'b' * 30000) }}", "replace"},
      // Marks take room, too: two for each character.
      {"{{ ((x * 4000000).replace('', '-')) | length }}", "replace"},
      {"{{ ('%9999s' * 99999) % (('',) * 99999) }}", "%"},
      {"{{ ('%.9999f' * 99999) % ((0.1,) * 99999) }}", "%"},
      {"{{ ('{:9999}' * 99999).format(*([''] * 99999)) }}", "format"},
      {"{{ range(2000000000) }}", "range"},
      {"{{ ('a' * 6000000) | list }}", "iterating over a value"},
      {"{{ ('a ' * 3000000).split() }}", "split"},
      {"{{ ('ab' * 3000000).rsplit('a') }}", "split"},
      {"{{ ('\\n' * 6000000).splitlines() }}", "splitlines"},
      {"{{ (range(99999) | list) | tojson(indent='x' * 30000) }}", "tojson"},
      {"{{ (range(99999) | list) | tojson(separators=('x' * 30000, '')) }}",
       "tojson"},
      {"{{ (x * 3000000) | tojson }}", "tojson"},
      {"{{ [x * 3000000] ~ '' }}", "the text of a value"},
      {"{{ ('a' * 6000000) ~ ('a' * 6000000) }}", "~"},
      {"{{ ('a' * 6000000) + ('a' * 6000000) }}", "+"},
      {"{{ ([0] * 200000) + ([0] * 200000) }}", "+"},
      {"{{ ('<' * 6000000) | e }}", "escape"},
      {"{{ ('\u0390' * 3000000) | upper }}", "upper"},
      {"{{ ('\u0390' * 3000000).title() }}", "title"},
      {"{{ [1] | batch(49999999, 0) | list }}", "batch"},
      {"{{ (x * 6000000)[::-1] }}", "a slice"},
      {"{{ strftime_now('%F' * 2000000) }}", "strftime_now"},
  };
  EXPECT_THAT(
      std::string(StatusOf("{{ 'a' | center(2000000000) }}", "x").message()),
      HasSubstr("center makes a value of"));
  JinjaOptions small;
  small.limits.max_value_bytes = 8 << 20;
  const JsonValue data("\x01");
  [[maybe_unused]] const int64_t before = PeakKiB();
  for (const auto& [source, what] : cases) {
    const absl::Status status = StatusOf(source, data, small);
    EXPECT_THAT(status.code(),
                ::testing::AnyOf(absl::StatusCode::kResourceExhausted,
                                 absl::StatusCode::kInvalidArgument))
        << source << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::StartsWith(absl::StrCat("t: line 1: ", what, " ")))
        << source;
#if !defined(ESPALIER_ASAN) && !defined(ESPALIER_TSAN)  // which keep memory
    EXPECT_LT(PeakKiB() - before, 100 << 10) << source;
#endif
  }
}

// What is made on the way is bounded as a whole.
TEST(JinjaLimitsTest, AllThatIsMadeIsBoundedTogether) {
  JinjaOptions small;
  small.limits.max_text_bytes = 1 << 20;
  const std::string loop = "{% for i in range(9999) %}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% set a = x * 999 %}", "*"},
      {"{% set a = dict(a=i, b=i) %}", "dict"},
      {"{% set a = {'a': i} %}", "dict"},
      {"{% set a = namespace() %}", "namespace"},
      {"{% macro m() %}{% endmacro %}", "macro"},
      {"{% set a = ({'k': 1}).items() %}", "dict_items"},
      {"{% set a = [i, i, i, i] %}", "[]"},
  };
  for (const auto& [body, what] : cases) {
    const absl::Status status =
        StatusOf(loop + body + "{% endfor %}", JsonValue("ab"), small);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(status.message(),
              absl::StrCat("t: line 1: ", what,
                           ": the template makes more than 1048576 bytes of "
                           "text and lists"));
  }
}

}  // namespace
}  // namespace espalier
