#include "espalier/io/internal/name_pattern.h"

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace espalier::internal {

namespace {

// A step may pass over the whole name, so both are bounded.
constexpr uint32_t kMaxSteps = 100'000;
constexpr size_t kMaxNameBytes = 4096;

std::string MessageOf(int error) {
  PCRE2_UCHAR message[160] = {};
  pcre2_get_error_message(error, message, sizeof(message));
  return reinterpret_cast<const char*>(message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const NamePattern>> NamePattern::Compile(
    absl::string_view expression) {
  int error = 0;
  PCRE2_SIZE position = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
      PCRE2_ANCHORED | PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C, &error,
      &position, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression ", Quote(expression), " at byte ",
                     position, ": ", MessageOf(error)));
  }
  return std::shared_ptr<const NamePattern>(new NamePattern(code));
}

NamePattern::~NamePattern() {
  pcre2_code_free(static_cast<pcre2_code*>(code_));
}

absl::StatusOr<bool> NamePattern::Matches(absl::string_view name) const {
  if (name.size() > kMaxNameBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("matching ", Quote(name), ": ", name.size(),
                     " bytes, expected at most ", kMaxNameBytes));
  }
  const pcre2_code* code = static_cast<const pcre2_code*>(code_);
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(code, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  int result = PCRE2_ERROR_NOMEMORY;
  if (data != nullptr && context != nullptr) {
    pcre2_set_match_limit(context, kMaxSteps);
    result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()),
                         name.size(), 0, 0, data, context);
  }
  pcre2_match_data_free(data);
  pcre2_match_context_free(context);
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  return absl::ResourceExhaustedError(
      absl::StrCat("matching ", Quote(name), ": ", MessageOf(result)));
}

}  // namespace espalier::internal
