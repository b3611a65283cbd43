#include "espalier/io/internal/word_scanner.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "espalier/io/internal/char_class.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {
namespace {

const KnownExpression* const kAll[] = {
    &kGpt2Expression,        &kLlama3Expression,
    &kQwenExpression,        &kO200kExpression,
    &kKimiExpression,        &kDeepSeekNumbersExpression,
    &kDeepSeekCjkExpression, &kDeepSeekWordsExpression};

// Every match of `find` in `text`, as "begin-end" each.
template <typename Find>
std::string Matches(absl::string_view text, Find find) {
  std::string all;
  Match match;
  for (size_t at = 0; find(at, &match); at = match.end) {
    if (match.end <= match.begin || match.begin < at ||
        match.end > text.size()) {
      return absl::StrCat("bad match ", match.begin, "-", match.end);
    }
    absl::StrAppend(&all, match.begin, "-", match.end, " ");
  }
  return all;
}

// Characters that PCRE2, whose Unicode is older, puts into the same classes.
class CharPool {
 public:
  CharPool() {
    for (const char* set :
         {"\\p{Lu}", "\\p{Ll}", "\\p{Lt}", "\\p{Lm}", "\\p{Lo}", "\\p{M}",
          "\\p{N}", "\\p{P}", "\\p{S}", "\\s", "\\p{Han}"}) {
      patterns_.push_back(Pattern::Compile(set).value());
    }
  }

  bool Agrees(uint32_t code) const {
    std::string text;
    AppendUtf8(code, &text);
    const CharClass c = ClassOf(code);
    const bool ours[] = {c.In(CategoryBits({kLu})),
                         c.In(CategoryBits({kLl})),
                         c.In(CategoryBits({kLt})),
                         c.In(CategoryBits({kLm})),
                         c.In(CategoryBits({kLo})),
                         c.In(kMarks),
                         c.In(kNumbers),
                         c.In(kPunctuation),
                         c.In(kSymbols),
                         c.In(kSpaces),
                         c.is_han()};
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Match match;
      if (PatternMatcher(*patterns_[i], text.size())
              .Find(text, 0, &match)
              .value() != ours[i]) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

// Characters by the roles they play in the expressions, and any others.
std::vector<std::string> MakeAlphabet(std::mt19937* random) {
  std::vector<std::string> alphabet;
  for (const char c :
       absl::string_view("aAsSbzZ09'''   \n\n\r\t/!.-_\x01\x7F")) {
    alphabet.emplace_back(1, c);
  }
  for (const char* text : {"'s",
                           "'S",
                           "'ll",
                           "'RE",
                           "'vE",
                           "'m",
                           "'T",
                           "'D",
                           "'\xC5\xBF",
                           "\xC5\xBF",
                           "\xC3\xA9",
                           "\xC3\x89",
                           "e\xCC\x81",
                           "\xCC\x81",
                           "\xC7\x85",
                           "\xCA\xB0",
                           "\xD7\x90",
                           "\xD9\xA3",
                           "\xC2\xBD",
                           "\xE2\x85\xA3",
                           "\xE4\xB8\xAD",
                           "\xE3\x80\x85",
                           "\xE3\x80\x87",
                           "\xE2\xBA\x80",
                           "\xE3\x81\x82",
                           "\xE3\x83\xBB",
                           "\xE3\x82\x99",
                           "\xE3\x81\x80",
                           "\xE3\x83\xBC",
                           "\xED\x95\x9C",
                           "\xC2\xA0",
                           "\xE3\x80\x80",
                           "\xE2\x80\xA8",
                           "\xC2\x85",
                           "\xE2\x80\x8D",
                           "\xEF\xBB\xBF",
                           "\xF0\x9F\x91\x8D",
                           "\xE1\xA0\x8E",
                           "\xF0\xA0\x80\x80",
                           "\xEE\x80\x80",
                           "\xF3\xA0\x80\xA0"}) {
    alphabet.emplace_back(text);
  }
  const CharPool pool;
  for (int i = 0; i < 300;) {
    const uint32_t code = (*random)() % (i % 3 == 0 ? 0x110000 : 0x3100);
    if ((code >= 0xD800 && code <= 0xDFFF) || !pool.Agrees(code)) continue;
    AppendUtf8(code, &alphabet.emplace_back());
    ++i;
  }
  return alphabet;
}

TEST(WordScannerTest, FindsWhatPcreFinds) {
  std::mt19937 random(11);
  const std::vector<std::string> alphabet = MakeAlphabet(&random);
  for (const KnownExpression* known : kAll) {
    SCOPED_TRACE(known->name);
    const auto pattern = Pattern::Compile(known->expression);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    int differences = 0;
    for (int round = 0; round < 20000 && differences < 5; ++round) {
      std::string text;
      // Mostly the roles, so that they meet each other.
      const size_t range = round % 4 == 0 ? alphabet.size() : 60;
      for (uint32_t n = random() % 14; n > 0; --n) {
        text += alphabet[random() % range];
      }
      const std::string ours = Matches(text, [&](size_t at, Match* match) {
        return known->scan(text, at, match);
      });
      PatternMatcher matcher(**pattern, text.size());
      const std::string theirs = Matches(text, [&](size_t at, Match* match) {
        return matcher.Find(text, at, match).value();
      });
      if (ours == theirs) continue;
      ++differences;
      ADD_FAILURE() << Quote(text) << ": " << ours << ", expected " << theirs;
    }
  }
}

TEST(WordScannerTest, KnowsItsExpressionsAlone) {
  for (const KnownExpression* known : kAll) {
    EXPECT_EQ(FindScanner(known->expression), known->scan) << known->name;
  }
  EXPECT_EQ(FindScanner("\\p{L}+"), nullptr);
}

// A scanner that read a run again from each of its characters would not end.
TEST(WordScannerTest, LongRunsTakeLinearWork) {
  constexpr size_t kBytes = size_t{1} << 18;
  for (const KnownExpression* known : kAll) {
    for (const char* unit : {"a", "A", " ", "\n", "\n ", "1", "'", "\xCC\x81",
                             "\xE4\xB8\xAD", "A\xCC\x81", "!\n", "\x01"}) {
      std::string text;
      while (text.size() < kBytes) text += unit;
      Match match;
      for (size_t at = 0; known->scan(text, at, &match); at = match.end) {
        ASSERT_GT(match.end, at);
      }
    }
  }
}

}  // namespace
}  // namespace espalier::internal
