#ifndef ESPALIER_IO_INTERNAL_CHAT_PIECES_H_
#define ESPALIER_IO_INTERNAL_CHAT_PIECES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "espalier/io/chat.h"
#include "espalier/io/tokenizer.h"

namespace espalier::internal {

// A stretch of a rendered chat that becomes tokens on its own.
struct ChatPiece {
  size_t begin = 0;
  size_t end = 0;
  int32_t control = -1;         // the token it is; -1: text
  int32_t trained = -1;         // the message whose answer it is part of
  bool content_tokens = false;  // options.content_tokens count here
  // Text that goes on from the piece before: encoded with it where the
  // tokenizer cannot encode the two apart.
  bool joined = false;
};

// Message of the byte at each place, as runs.
struct ChatOwner {
  size_t end = 0;
  int32_t message = -1;
};

// The messages of a chat, checked.
struct ChatMessages {
  JsonValue messages;  // without weights
  std::vector<std::string> roles;
  std::vector<float> weights;
  int32_t last_assistant = -1;

  bool IsAssistant(int32_t i) const {
    return i >= 0 && roles[static_cast<size_t>(i)] == "assistant";
  }
};
absl::StatusOr<ChatMessages> CheckMessages(const Chat& chat);

// OUT_OF_RANGE where one is set, of layouts that show none.
absl::Status RefuseThinkingEffort(const ChatOptions& options);

// The weight that the options give to tokens of a message's answer.
float WeightOf(const ChatMessages& messages, int32_t message,
               const ChatOptions& options);

// Tokens of the pieces, which cover `text`; `control` are the ids that text
// never becomes. Appends to *encoded.
absl::Status EncodePieces(const Tokenizer& tokenizer,
                          absl::Span<const ChatPiece> pieces,
                          absl::Span<const ChatOwner> owners,
                          const ChatMessages& messages,
                          const ChatOptions& options,
                          const absl::flat_hash_set<int32_t>& control,
                          EncodedChat* encoded);

// Warns of two <s> in a row.
void CheckBos(const Tokenizer& tokenizer, EncodedChat* encoded);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CHAT_PIECES_H_
