#include "espalier/io/internal/chat_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

ChatLayout::ChatLayout(const Tokenizer& tokenizer, const ChatMessages& messages,
                       const ChatOptions& options)
    : tokenizer_(tokenizer), messages_(messages), options_(options) {
  encoded_.roles = messages.roles;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    control_.insert(token.id);
  }
}

void ChatLayout::Control(absl::string_view name) {
  const auto id = tokenizer_.IdOf(name);
  if (!id.has_value() && status_.ok()) {
    status_ = absl::FailedPreconditionError(
        absl::StrCat("the tokenizer has no token ", name));
  }
  Add(name, id.value_or(0));
}

absl::StatusOr<EncodedChat> ChatLayout::Take() {
  if (!status_.ok()) return status_;
  const absl::Status status = EncodePieces(
      tokenizer_, pieces_, owners_, messages_, options_, control_, &encoded_);
  if (!status.ok()) return status;
  return std::move(encoded_);
}

void ChatLayout::Add(absl::string_view text, int32_t control) {
  ChatPiece piece;
  piece.begin = encoded_.text.size();
  absl::StrAppend(&encoded_.text, text);
  piece.end = encoded_.text.size();
  piece.control = control;
  piece.trained = trained_ ? message_ : -1;
  pieces_.push_back(piece);
  owners_.push_back({piece.end, message_});
}

absl::Status BadMessage(size_t message, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("messages[", message, "]", why));
}

absl::StatusOr<std::string> ChatText(const JsonValue& message,
                                     absl::string_view key, size_t index) {
  const JsonValue* value = message.Find(key);
  if (value == nullptr || value->is_null()) return std::string();
  if (const std::string* string = value->AsString()) return *string;
  const JsonValue::Array* parts = value->AsArray();
  if (parts == nullptr) {
    return BadMessage(index, absl::StrCat(".", key, " is ", value->kind(),
                                          ", expected a string"));
  }
  std::string text;
  for (const JsonValue& part : *parts) {
    const std::string type = ChatString(part, "type");
    const JsonValue* piece = part.Find("text");
    if (type != "text" || piece == nullptr || piece->AsString() == nullptr) {
      return BadMessage(index, absl::StrCat(": ", key, " has a part of type ",
                                            Quote(type, 40),
                                            ": this layout is for text alone"));
    }
    text += *piece->AsString();
  }
  return text;
}

std::string ChatString(const JsonValue& message, absl::string_view key) {
  const JsonValue* value = message.Find(key);
  return value != nullptr && value->AsString() != nullptr ? *value->AsString()
                                                          : "";
}

absl::StatusOr<std::vector<ChatToolCall>> ChatToolCalls(
    const JsonValue& message, size_t index) {
  std::vector<ChatToolCall> calls;
  const JsonValue* list = message.Find("tool_calls");
  if (list == nullptr || list->is_null()) return calls;
  if (list->AsArray() == nullptr) {
    return BadMessage(index, absl::StrCat(".tool_calls is ", list->kind(),
                                          ", expected an array"));
  }
  for (const JsonValue& item : *list->AsArray()) {
    ChatToolCall call;
    call.id = ChatString(item, "id");
    const JsonValue* function = item.Find("function");
    if (function == nullptr) function = &item;
    call.name = ChatString(*function, "name");
    const JsonValue* arguments = function->Find("arguments");
    if (call.name.empty() || arguments == nullptr) {
      return BadMessage(
          index, absl::StrCat(".tool_calls[", calls.size(), "] lacks ",
                              call.name.empty() ? "a name" : "arguments"));
    }
    call.arguments = *arguments;
    calls.push_back(std::move(call));
  }
  return calls;
}

const ChatToolCall* FindToolCall(const std::vector<ChatToolCall>& calls,
                                 absl::string_view id) {
  const auto found =
      std::find_if(calls.begin(), calls.end(),
                   [&](const ChatToolCall& call) { return call.id == id; });
  return found == calls.end() ? nullptr : &*found;
}

absl::StatusOr<std::string> PythonJson(const JsonValue& value,
                                       const JinjaJsonStyle& style) {
  JinjaVariable variable;
  variable.value = &value;
  JinjaRuntime runtime{JinjaLimits(), JinjaRenderOptions()};
  const JinjaString json = ToJson(runtime, ToJinja(variable), style);
  if (runtime.failed()) return runtime.status();
  return json.bytes();
}

JinjaJsonStyle CompactJson() {
  JinjaJsonStyle style;
  style.item_separator.assign(1, ',');
  style.key_separator.assign(1, ':');
  return style;
}

}  // namespace espalier::internal
