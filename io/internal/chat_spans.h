#ifndef ESPALIER_IO_INTERNAL_CHAT_SPANS_H_
#define ESPALIER_IO_INTERNAL_CHAT_SPANS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/added_tokens.h"
#include "espalier/io/internal/chat_pieces.h"
#include "espalier/io/jinja.h"

namespace espalier::internal {

// The control tokens that a template printed, in order.
std::vector<Stretch> FindControls(const JinjaOutput& output,
                                  const AddedTokenMatcher& matcher);

// The part of a rendered text that an assistant message's answer is.
struct ChatSpan {
  int32_t message = -1;
  size_t begin = 0;
  size_t end = 0;
  bool append_stop = false;  // nothing ends the turn: the end token has to
};

// What a template prints when it is given the first `count` messages and asked
// to prompt for an answer: the text behind the last message.
using PromptTail = std::function<absl::StatusOr<std::string>(int32_t count)>;

// Spans of all assistant messages (see ChatEncoder), ascending. Fails
// FAILED_PRECONDITION, naming the message, where they cannot be verified.
absl::StatusOr<std::vector<ChatSpan>> FindSpans(
    const JinjaOutput& output, const std::vector<Stretch>& controls,
    const ChatMessages& messages, const AddedTokenMatcher& matcher,
    const absl::flat_hash_set<int32_t>& stops, const PromptTail& prompt_tail);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CHAT_SPANS_H_
