// The chat layout of Kimi-Linear, token by token.
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_layout.h"
#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

using internal::BadMessage;
using internal::ChatLayout;
using internal::ChatString;
using internal::ChatText;
using internal::ChatToolCall;

// Whether the id has the form that the model was trained with,
// functions.NAME:N.
bool IsModelsOwn(const ChatToolCall& call) {
  const std::string begin = absl::StrCat("functions.", call.name, ":");
  if (!absl::StartsWith(call.id, begin)) return false;
  const std::string number = call.id.substr(begin.size());
  for (const char c : number) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return !number.empty();
}

// Lays out one chat.
class KimiLinearWriter {
 public:
  explicit KimiLinearWriter(ChatLayout* layout) : layout_(*layout) {}

  void Head(absl::string_view kind, absl::string_view name) {
    layout_.Control(absl::StrCat("<|im_", kind, "|>"));
    layout_.Text(name);
    layout_.Control("<|im_middle|>");
  }

  absl::Status Tools(const JsonValue& tools) {
    if (tools.AsArray() == nullptr || tools.AsArray()->empty()) {
      return absl::OkStatus();
    }
    const auto json = internal::PythonJson(tools, internal::CompactJson());
    if (!json.ok()) return json.status();
    Head("system", "tool_declare");
    layout_.Text(*json);
    layout_.Control("<|im_end|>");
    return absl::OkStatus();
  }

  absl::Status Message(const JsonValue& message, const std::string& role,
                       size_t index) {
    const bool assistant = role == "assistant", tool = role == "tool";
    if (!assistant && !tool && role != "user" && role != "system") {
      return BadMessage(index, absl::StrCat(": how Kimi-Linear shows the role ",
                                            role, " is not known"));
    }
    auto text = ChatText(message, "content", index);
    if (!text.ok()) return text.status();
    const auto reasoning = ChatText(message, "reasoning_content", index);
    if (!reasoning.ok()) return reasoning.status();
    if (!reasoning->empty()) {
      return BadMessage(index,
                        ": Kimi-Linear has no place for reasoning_content");
    }
    if (tool) {
      const auto id = CallOf(message, index);
      if (!id.ok()) return id.status();
      text = absl::StrCat("## Return of ", *id, "\n", *text);
    }
    layout_.Begin(static_cast<int32_t>(index));
    const std::string name = ChatString(message, "name");
    Head(tool ? "system" : role, name.empty() ? role : name);
    layout_.SetTrained(assistant);
    layout_.Text(*text);
    if (assistant) {
      absl::Status status = Calls(message, index);
      if (!status.ok()) return status;
    }
    layout_.Control("<|im_end|>");
    return absl::OkStatus();
  }

 private:
  // The id of the call that a result answers, as the call shows it.
  absl::StatusOr<std::string> CallOf(const JsonValue& message, size_t index) {
    const std::string id = ChatString(message, "tool_call_id");
    if (id.empty()) {
      if (next_result_ == last_calls_.size()) {
        return BadMessage(
            index, " is a result without tool_call_id or a call before it");
      }
      return last_calls_[next_result_++];
    }
    const auto found = shown_.find(id);
    if (found == shown_.end()) {
      return BadMessage(
          index, absl::StrCat(" answers the call ", internal::Quote(id, 40),
                              ", which was not made"));
    }
    return found->second;
  }

  absl::Status Calls(const JsonValue& message, size_t index) {
    const auto calls = internal::ChatToolCalls(message, index);
    if (!calls.ok()) return calls.status();
    last_calls_.clear();
    next_result_ = 0;
    if (calls->empty()) return absl::OkStatus();
    layout_.Control("<|tool_calls_section_begin|>");
    for (const ChatToolCall& call : *calls) {
      const std::string shown =
          IsModelsOwn(call)
              ? call.id
              : absl::StrCat("functions.", call.name, ":", num_calls_);
      ++num_calls_;
      last_calls_.push_back(shown);
      shown_[call.id] = shown;
      layout_.Control("<|tool_call_begin|>");
      layout_.Text(shown);
      layout_.Control("<|tool_call_argument_begin|>");
      if (const std::string* text = call.arguments.AsString()) {
        layout_.Text(*text);
      } else {
        const auto json = internal::PythonJson(call.arguments, {});
        if (!json.ok()) return json.status();
        layout_.Text(*json);
      }
      layout_.Control("<|tool_call_end|>");
    }
    layout_.Control("<|tool_calls_section_end|>");
    return absl::OkStatus();
  }

  ChatLayout& layout_;
  int num_calls_ = 0;                    // of the chat
  std::vector<std::string> last_calls_;  // of the last assistant message
  size_t next_result_ = 0;
  absl::flat_hash_map<std::string, std::string> shown_;  // by the call's id
};

class KimiLinearEncoder final : public ChatEncoder {
 public:
  explicit KimiLinearEncoder(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer) {}

  absl::StatusOr<EncodedChat> Encode(
      const Chat& chat, const ChatOptions& options) const override {
    absl::Status known = internal::RefuseThinkingEffort(options);
    if (!known.ok()) return known;
    const auto messages = internal::CheckMessages(chat);
    if (!messages.ok()) return messages.status();
    ChatLayout layout(tokenizer_, *messages, options);
    KimiLinearWriter writer(&layout);
    absl::Status status = writer.Tools(chat.tools);
    const JsonValue::Array& all = *messages->messages.AsArray();
    for (size_t i = 0; i < all.size() && status.ok(); ++i) {
      status = writer.Message(all[i], messages->roles[i], i);
    }
    if (!status.ok()) return status;
    layout.Begin(-1);
    if (options.add_generation_prompt) writer.Head("assistant", "assistant");
    return layout.Take();
  }

 private:
  const Tokenizer& tokenizer_;
};

}  // namespace

std::unique_ptr<ChatEncoder> MakeKimiLinearEncoder(const Tokenizer& tokenizer) {
  return std::make_unique<KimiLinearEncoder>(tokenizer);
}

}  // namespace espalier
