#ifndef ESPALIER_IO_INTERNAL_CHAT_TEMPLATE_H_
#define ESPALIER_IO_INTERNAL_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/chat.h"

namespace espalier::internal {

// The encoder of one template. Special tokens are those that `config`, a
// tokenizer_config.json, names; `stops` end a turn beside the tokenizer's end
// token.
absl::StatusOr<std::unique_ptr<ChatEncoder>> NewTemplateEncoder(
    absl::string_view chat_template, const JsonValue& config,
    const std::string& where, const Tokenizer& tokenizer,
    absl::Span<const int32_t> stops);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CHAT_TEMPLATE_H_
