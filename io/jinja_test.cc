#include "espalier/io/jinja.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/test_util.h"
#include "espalier/io/json_object.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNow = 1772895845;  // 2026-03-07 15:04:05

struct Named {
  std::string name;
  JsonValue value;
};

absl::StatusOr<JinjaOutput> RenderOf(
    absl::string_view source, const std::vector<Named>& values = {},
    const JinjaOptions& options = JinjaOptions()) {
  const auto parsed = JinjaTemplate::Parse(source, "t", options);
  if (!parsed.ok()) return parsed.status();
  std::vector<JinjaVariable> variables;
  variables.reserve(values.size());
  for (const Named& named : values) {
    variables.push_back({named.name,
                         &named.value,
                         named.name == "messages"
                             ? JinjaVariable::Origin::kItems
                             : JinjaVariable::Origin::kData,
                         {"role"}});
  }
  JinjaRenderOptions render;
  render.now_seconds = kNow;
  return parsed->Render(variables, render);
}

std::string Text(absl::string_view source,
                 const std::vector<Named>& values = {},
                 const JinjaOptions& options = JinjaOptions()) {
  const auto output = RenderOf(source, values, options);
  return output.ok() ? output->text : std::string(output.status().message());
}

// Holds lines of tests/oracle/jinja_cases.py against the interpreter; number
// of differences. `num_refused` counts texts of the reference that are
// UNIMPLEMENTED here.
int CountDifferences(const std::string& path, int* num_cases,
                     int* num_refused) {
  const std::string lines = test::ReadFile(path);
  JsonValue variables;
  int differences = 0;
  for (const absl::string_view line :
       absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const auto parsed = ParseJsonText(line);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (!parsed.ok()) return -1;
    if (const JsonValue* found = parsed->Find("variables")) variables = *found;
    std::vector<Named> values;
    for (const JsonMember& member : *variables.AsObject()) {
      values.push_back({member.key, member.value});
    }
    const std::string source = *parsed->Find("template")->AsString();
    const auto output = RenderOf(source, values);
    ++*num_cases;
    const JsonValue* text = parsed->Find("text");
    if (!output.ok() && absl::IsUnimplemented(output.status())) {
      if (text != nullptr) {
        ++*num_refused;
        // NOLINTNEXTLINE(concurrency-mt-unsafe): no thread changes it
        if (std::getenv("ESPALIER_JINJA_SHOW") != nullptr) {
          ADD_FAILURE() << source << "\n" << output.status();
        }
      }
      continue;
    }
    const bool same = text == nullptr
                          ? !output.ok()
                          : output.ok() && output->text == *text->AsString();
    if (same) continue;
    if (++differences <= 10) {
      ADD_FAILURE() << source
                    << "\nvariables: " << WriteJson(variables, 0).value_or("")
                    << "\nwant: "
                    << (text != nullptr ? *text->AsString()
                                        : *parsed->Find("error")->AsString())
                    << "\ngot:  "
                    << (output.ok() ? output->text
                                    : std::string(output.status().message()));
    }
  }
  return differences;
}

TEST(JinjaTest, EqualsTheReferenceOnEveryConstruct) {
  int cases = 0, refused = 0;
  EXPECT_EQ(CountDifferences(absl::StrCat(ESPALIER_SOURCE_DIR,
                                          "/tests/fixtures/jinja/cases.jsonl"),
                             &cases, &refused),
            0);
  EXPECT_GT(cases, 100);
  EXPECT_EQ(refused, 0);
}

TEST(JinjaTest, EqualsTheReferenceOnGeneratedCases) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no thread changes the environment
  const char* path = std::getenv("ESPALIER_JINJA_CASES");
  if (path == nullptr) {
    GTEST_SKIP() << "ESPALIER_JINJA_CASES names no file of "
                    "tests/oracle/jinja_cases.py";
  }
  int cases = 0, refused = 0;
  const int differences = CountDifferences(path, &cases, &refused);
  EXPECT_EQ(differences, 0);
  RecordProperty("cases", cases);
  std::printf("%d cases, %d differences, %d refused as unsupported\n", cases,
              differences, refused);
}

// Case D5: the tags of chat templates swallow the line they stand on.
TEST(JinjaTest, TagsOfABlockLeaveNoLines) {
  EXPECT_EQ(Text("{% for i in [0] %}\n   i = {{ i }}\n{% endfor %}\n"),
            "   i = 0\n");
  JinjaOptions plain;
  plain.trim_blocks = false;
  plain.lstrip_blocks = false;
  EXPECT_EQ(Text("  {% if 1 %}\na\n  {% endif %}\n", {}, plain), "  \na\n  ");
}

TEST(JinjaTest, NamesWhatItDoesNotKnowWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\n{% include 'x' %}", "the tag include"},
      {"\n{% import 'x' as y %}", "the tag import"},
      {"\n{% extends 'x' %}", "the tag extends"},
      {"\n{% block x %}{% endblock %}", "the tag block"},
      {"\n{% autoescape true %}{% endautoescape %}", "the tag autoescape"},
      {"\n{% do x %}", "the tag do"},
      {"\n{% for x in y recursive %}{% endfor %}", "a recursive for block"},
      {"\n{{ x | wordwrap }}", "the filter wordwrap"},
      {"\n{{ x is escaped }}", "the test escaped"},
      {"\n{{ (x | safe) + 'a' }}", "the filter safe or escape inside"},
      {"\n{% set x = y | safe %}", "the filter safe or escape outside"},
      {"\n{{ lipsum() }}", "the function lipsum"},
      {"\n{{ 'a'.encode() }}", "the method encode of a str"},
      {"\n{{ 9223372036854775807 + 1 }}", "an integer beyond 64 bits"},
      {"\n{{ 2 ** 64 }}", "an integer beyond 64 bits"},
      {"\n{{ 0x1F }}", "an integer in another base"},
      {"\n{{ varargs }}", "varargs"},
      {"\n{{ namespace(a=1) }}", "the text of a Namespace"},
      {"\n{{ range(9)[2:] }}", "a slice of a range"},
      {"\n{{ 1.5.real if 0 else 1.5.hex }}", "the attribute hex"},
      {"\n{{ strftime_now('%Q') }}", "the directive %Q"},
  };
  for (const auto& [source, what] : cases) {
    const auto output = RenderOf(source);
    EXPECT_EQ(output.status().code(), absl::StatusCode::kUnimplemented)
        << source << output.status();
    EXPECT_THAT(
        std::string(output.status().message()),
        ::testing::AllOf(::testing::StartsWith("t: line 2: "), HasSubstr(what),
                         HasSubstr("is not supported")));
  }
}

TEST(JinjaTest, FailuresNameTheLineAndTheReason) {
  EXPECT_EQ(Text("a\n\n{{ raise_exception('bad ' ~ 1) }}"),
            "t: line 3: the template refuses: \"bad 1\"");
  EXPECT_EQ(Text("\n{{ x.y }}"), "t: line 2: x is undefined");
  EXPECT_EQ(Text("{% set l = [] %}\n{{ l.append(1) }}"),
            "t: line 2: the method append would change a list, which the "
            "sandbox of chat templates refuses: make a new one");
  EXPECT_EQ(Text("{% if 1 %}\n"), "t: line 1: the template ends before endif");
  EXPECT_EQ(Text("\xff"), "t: line 1: the template is not UTF-8");
  const auto parsed = JinjaTemplate::Parse("{{ strftime_now('%Y') }}", "t");
  EXPECT_THAT(std::string(parsed->Render({}).status().message()),
              HasSubstr("needs a clock"));
}

TEST(JinjaTest, LimitsEndEveryTemplate) {
  JinjaOptions small;
  small.limits.max_steps = 100000;
  small.limits.max_text_bytes = 1 << 20;
  small.limits.max_output_bytes = 1 << 16;
  const auto is_bounded = [&](const std::string& source,
                              const std::string& what) {
    const auto output = RenderOf(source, {}, small);
    EXPECT_EQ(output.status().code(), absl::StatusCode::kResourceExhausted)
        << source.substr(0, 80) << output.status();
    EXPECT_THAT(std::string(output.status().message()), HasSubstr(what));
  };
  const std::string loop = "{% for a in range(99999) %}";
  is_bounded(loop + loop + "{% endfor %}{% endfor %}", "steps");
  is_bounded("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deeper than");
  is_bounded("{{ 'a' * 9999999999 }}", "makes a value of");
  is_bounded("{{ [0] * 200000 }}", "bytes of text and lists");
  is_bounded("{{ 'ab' * 40000 }}", "longer than");
  is_bounded(
      "{% set n = namespace(x='aa') %}{% for a in range(99) %}"
      "{% set n.x = n.x ~ n.x %}{% endfor %}",
      "bytes of text");
  is_bounded(
      "{% set n = namespace(x=[1]) %}{% for a in range(60) %}"
      "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
      "steps");
  is_bounded(
      "{% set n = namespace(x=[1]) %}{% for a in range(60) %}"
      "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x == [n.x[0], n.x[1]]"
      " and n.x[0] == [n.x[1][0], n.x[1][1]] }}",
      "steps");
  is_bounded(
      "{{ '%9999s' % '' }}{{ '%9999s' % '' }}{{ '%9999s' % '' }}"
      "{{ '%9999s' % '' }}{{ '%9999s' % '' }}{{ '%9999s' % '' }}"
      "{{ '%9999s' % '' }}",
      "longer than");
  const size_t deep = 100000;
  is_bounded(
      "{{ " + std::string(deep, '(') + "1" + std::string(deep, ')') + " }}",
      "nests deeper than");
  is_bounded("{{ " + std::string(deep, '[') + std::string(deep, ']') + " }}",
             "nests deeper than");
  std::string minus, plus = "1", nots, ifs;
  for (int i = 0; i < 5000; ++i) {
    minus += "- ";
    plus += "+1";
    nots += "not ";
    ifs += "{% if 1 %}";
  }
  is_bounded("{{ " + minus + "1 }}", "nests deeper than");
  is_bounded("{{ " + plus + " }}", "nests deeper than");
  is_bounded("{{ " + nots + "1 }}", "nests deeper than");
  is_bounded(ifs, "nests deeper than");
  EXPECT_THAT(Text("{% set n = namespace(x=1) %}{% for a in range(9999) %}"
                   "{% set n.x = [n.x] %}{% endfor %}"),
              HasSubstr("nests deeper than 300"));
  small.limits.max_template_bytes = 10;
  is_bounded("aaaaaaaaaaaaaaa", "15 bytes, expected at most 10");
}

TEST(JinjaTest, NamespacesThatReferToEachOtherEnd) {
  EXPECT_EQ(Text("{% set a = namespace() %}{% set b = namespace(a=a) %}"
                 "{% set a.b = b %}{% set a.l = [a, b] %}{{ a.b.a.l | length "
                 "}}{% macro m() %}{{ a.l | length }}{% endmacro %}{% set a.m ="
                 " m %}{{ a.m() }}"),
            "22");
  EXPECT_EQ(Text("{% set n = namespace(c=none) %}{% for i in range(20000) %}"
                 "{% set n.c = namespace(before=n.c) %}{% endfor %}x"),
            "x");
}

// Long content costs what it is long: each of these is one pass or a few.
TEST(JinjaTest, LongTextTakesNoSquareTime) {
  const std::string text(4 << 20, 'a');
  const std::vector<Named> values = {{"x", JsonValue(text)}};
  EXPECT_EQ(Text("{{ x | trim | length }} {{ x[::-1][0] }} {{ 'b' in x }} "
                 "{{ (x | replace('a', 'b'))[0] }} {{ x.split('b') | length }} "
                 "{{ x | tojson | length }} {{ x.upper()[-1] }}",
                 values),
            "4194304 a False b 1 4194306 A");
}

std::string Marks(const JinjaOutput& output) {
  std::string marks;
  size_t begin = 0;
  for (const JinjaRun& run : output.runs) {
    absl::StrAppend(&marks, "[", output.text.substr(begin, run.end - begin),
                    "|", run.mark.source, ",", run.mark.item, ",",
                    run.mark.generation, "]");
    begin = run.end;
  }
  return marks;
}

TEST(JinjaTest, EveryByteKnowsItsOrigin) {
  const auto messages = ParseJsonText(
      R"([{"role":"user","content":"ab c"},{"role":"x|y","content":"é"}])");
  const std::vector<Named> values = {{"messages", *messages},
                                     {"d", JsonValue("D")}};
  const auto marks = [&](absl::string_view source) {
    const auto output = RenderOf(source, values);
    return output.ok() ? Marks(*output)
                       : std::string(output.status().message());
  };
  // A role of letters is the template's own, another is data.
  EXPECT_EQ(marks("{% for m in messages %}<{{ m.role }}>{% endfor %}{{ d }}"),
            "[<user>|-1,0,-1][<|-1,1,-1][x|y|1,1,-1][>|-1,1,-1][D|-2,-1,-1]");
  EXPECT_EQ(marks("{{ 'x' + messages[0].content[1:].upper() ~ 'y' }}"),
            "[x|-1,-1,-1][B C|0,-1,-1][y|-1,-1,-1]");
  EXPECT_EQ(marks("{{ messages[0].content | replace(' ', '-') | trim('a') }}"),
            "[b|0,-1,-1][-|-1,-1,-1][c|0,-1,-1]");
  EXPECT_EQ(marks("{{ [1, messages[1].content] | tojson }}"),
            "[[1, |-1,-1,-1][\"é\"|1,-1,-1][]|-1,-1,-1]");
  EXPECT_EQ(marks("{% set x %}{% for m in messages[1:] %}{% generation %}"
                  "{{ m.content }}{% endgeneration %}.{% endfor %}{% endset %}"
                  "{{ x }}{{ x | upper }}"),
            "[é|1,1,0][.|-1,1,-1][É|1,1,0][.|-1,1,-1]");
  EXPECT_EQ(marks("{% macro f(s) %}<{{ s }}>{% endmacro %}"
                  "{{ f(messages[0].content.split()[1]) }}"
                  "{{ '%s/%s' % (d, 'e') }}{{ '{}'.format(d) }}"),
            "[<|-1,-1,-1][c|0,-1,-1][>|-1,-1,-1][D|-2,-1,-1][/e|-1,-1,-1]"
            "[D|-2,-1,-1]");
}

TEST(JinjaTest, RandomTemplatesNeverCrash) {
  const std::string pieces[] = {"{{",         "}}",
                                "{%",         "%}",
                                "{#",         "#}",
                                "-",          "+",
                                " if ",       " else ",
                                " for ",      " in ",
                                "endfor",     "endif",
                                "set ",       " x",
                                "=",          "(",
                                ")",          "[",
                                "]",          "{",
                                "}",          "'",
                                "\"",         "\\",
                                "|",          "upper",
                                " is ",       "not ",
                                "1",          ".",
                                ",",          ":",
                                "\n",         "macro ",
                                "endmacro",   "raw",
                                "endraw",     "é",
                                "~",          "**",
                                "%",          "e",
                                "generation", "endgeneration",
                                "loop",       "namespace()",
                                "\x80"};
  uint32_t state = 7;
  const auto next = [&](uint32_t count) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % count;
  };
  JinjaOptions small;
  small.limits.max_steps = 10000;
  for (int round = 0; round < 20000; ++round) {
    std::string source;
    for (uint32_t i = next(24); i > 0; --i) {
      source += pieces[next(static_cast<uint32_t>(std::size(pieces)))];
    }
    const auto output = RenderOf(source, {{"x", JsonValue("ab")}}, small);
    if (!output.ok()) {
      EXPECT_THAT(std::string(output.status().message()),
                  ::testing::StartsWith("t: line "));
    }
  }
}

}  // namespace
}  // namespace espalier
