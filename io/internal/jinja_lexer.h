#ifndef ESPALIER_IO_INTERNAL_JINJA_LEXER_H_
#define ESPALIER_IO_INTERNAL_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/jinja.h"

namespace espalier::internal {

enum class JinjaTokenType : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the template
};

struct JinjaToken {
  JinjaTokenType type = JinjaTokenType::kEnd;
  int line = 1;
  std::string text;  // of kString without quotes and escapes
  int64_t integer = 0;
  double number = 0;
};

// Cuts a template into tokens: lines end in "\n" after this, one at the very
// end is not text, white space goes as trim_blocks, lstrip_blocks and the
// signs in tags say; comments and raw tags are gone. Fails INVALID_ARGUMENT
// and UNIMPLEMENTED with "line N: " in front.
absl::StatusOr<std::vector<JinjaToken>> LexJinja(absl::string_view source,
                                                 const JinjaOptions& options);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_LEXER_H_
