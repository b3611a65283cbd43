#ifndef ESPALIER_IO_INTERNAL_PATTERN_H_
#define ESPALIER_IO_INTERNAL_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

// A regular expression of a tokenizer.json, which is written for Oniguruma
// with Ruby syntax, run by PCRE2. Classes whose meaning differs between the
// two (\s \S \d \D \w \W) are spelled out; what PCRE2 reads differently or
// not at all is UNIMPLEMENTED, by name. Thread-safe.
class Pattern {
 public:
  static absl::StatusOr<std::shared_ptr<const Pattern>> Compile(
      absl::string_view expression);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

 private:
  friend class PatternMatcher;
  explicit Pattern(void* code) : code_(code) {}
  void* const code_;  // pcre2_code
};

// The expression in PCRE2's syntax.
absl::StatusOr<std::string> TranslatePattern(absl::string_view expression);

struct Match {
  size_t begin = 0;
  size_t end = 0;
};

// Working memory for matching one Pattern, which must outlive it, all along a
// text of so many bytes. All matches together take a number of steps that is
// linear in the text, and no more: an expression may ask for the square of its
// length at every place. Thread-compatible.
class PatternMatcher {
 public:
  PatternMatcher(const Pattern& pattern, size_t text_bytes);
  ~PatternMatcher();
  PatternMatcher(const PatternMatcher&) = delete;
  PatternMatcher& operator=(const PatternMatcher&) = delete;

  // The first match in `text`, valid UTF-8, at or after `start`; it may be
  // empty. False when there is none. Fails RESOURCE_EXHAUSTED where matching
  // takes too many steps or more memory than PCRE2's limits.
  absl::StatusOr<bool> Find(absl::string_view text, size_t start, Match* match);

 private:
  struct Steps;

  const Pattern& pattern_;
  const std::unique_ptr<Steps> steps_;
  void* const data_;     // pcre2_match_data
  void* const context_;  // pcre2_match_context
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_PATTERN_H_
