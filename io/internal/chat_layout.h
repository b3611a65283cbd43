#ifndef ESPALIER_IO_INTERNAL_CHAT_LAYOUT_H_
#define ESPALIER_IO_INTERNAL_CHAT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_pieces.h"
#include "espalier/io/internal/jinja_runtime.h"

namespace espalier::internal {

// Writes a layout that is no template piece by piece; every text is encoded on
// its own. What it borrows outlives it.
class ChatLayout {
 public:
  ChatLayout(const Tokenizer& tokenizer, const ChatMessages& messages,
             const ChatOptions& options);

  // What follows belongs to this message; -1: to none. `trained`: it is part of
  // the message's answer.
  void Begin(int32_t message) {
    message_ = message;
    trained_ = false;
  }
  void SetTrained(bool trained) { trained_ = trained; }

  void Control(absl::string_view name);
  void Text(absl::string_view text) {
    if (!text.empty()) Add(text, -1);
  }

  // Fails INVALID_ARGUMENT where the tokenizer lacks a control token.
  absl::StatusOr<EncodedChat> Take();

 private:
  void Add(absl::string_view text, int32_t control);

  const Tokenizer& tokenizer_;
  const ChatMessages& messages_;
  const ChatOptions& options_;
  int32_t message_ = -1;
  bool trained_ = false;
  absl::Status status_;
  EncodedChat encoded_;
  std::vector<ChatPiece> pieces_;
  std::vector<ChatOwner> owners_;
  absl::flat_hash_set<int32_t> control_;
};

// INVALID_ARGUMENT about a message; `why` begins with what stands behind its
// number.
absl::Status BadMessage(size_t message, absl::string_view why);

// The text of a member of a message: a string, absent or null, or parts that
// are all text. Fails on images and the like.
absl::StatusOr<std::string> ChatText(const JsonValue& message,
                                     absl::string_view key, size_t index);
// The member where it is a string, else empty.
std::string ChatString(const JsonValue& message, absl::string_view key);

// What a tool call asks for.
struct ChatToolCall {
  std::string id;
  std::string name;
  JsonValue arguments;  // an object, or its JSON text
};
absl::StatusOr<std::vector<ChatToolCall>> ChatToolCalls(
    const JsonValue& message, size_t index);
// The call that `id` names; null: none does.
const ChatToolCall* FindToolCall(const std::vector<ChatToolCall>& calls,
                                 absl::string_view id);

// json.dumps of Python, which templates write arguments and tools with.
absl::StatusOr<std::string> PythonJson(const JsonValue& value,
                                       const JinjaJsonStyle& style);
// With separators "," and ":".
JinjaJsonStyle CompactJson();

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_CHAT_LAYOUT_H_
