#ifndef ESPALIER_IO_INTERNAL_NAME_PATTERN_H_
#define ESPALIER_IO_INTERNAL_NAME_PATTERN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

// A regular expression for module names, in the common subset of Python's re
// and PCRE2, with Python's re.match: it must match from the beginning, not to
// the end. Thread-safe.
class NamePattern {
 public:
  static absl::StatusOr<std::shared_ptr<const NamePattern>> Compile(
      absl::string_view expression);
  ~NamePattern();
  NamePattern(const NamePattern&) = delete;
  NamePattern& operator=(const NamePattern&) = delete;

  // RESOURCE_EXHAUSTED for names of more than 4,096 bytes, and where matching
  // takes more than 100,000 steps.
  absl::StatusOr<bool> Matches(absl::string_view name) const;

 private:
  explicit NamePattern(void* code) : code_(code) {}
  void* const code_;  // pcre2_code
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_NAME_PATTERN_H_
