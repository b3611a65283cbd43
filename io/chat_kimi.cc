// The chat layouts of Kimi-Linear and K3, token by token.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_pieces.h"
#include "espalier/io/internal/jinja_runtime.h"
#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

using internal::ChatMessages;
using internal::ChatOwner;
using internal::ChatPiece;

absl::Status Refuse(size_t message, absl::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("messages[", message, "]: ", why));
}

// What a tool call asks for.
struct ToolCall {
  std::string id;
  std::string name;
  JsonValue arguments;  // an object, or its JSON text
};

// Writes a layout piece by piece; every text is encoded on its own.
class Layout {
 public:
  Layout(const Tokenizer& tokenizer, const ChatMessages& messages,
         const ChatOptions& options)
      : tokenizer_(tokenizer), messages_(messages), options_(options) {
    encoded_.roles = messages.roles;
    for (const AddedToken& token : tokenizer.added_tokens()) {
      control_.insert(token.id);
    }
  }

  // What follows belongs to this message; -1: to none.
  void SetMessage(int32_t message) { message_ = message; }
  void SetTrained(bool trained) { trained_ = trained; }

  void Control(absl::string_view name) {
    const auto id = tokenizer_.IdOf(name);
    if (!id.has_value() && status_.ok()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("the tokenizer has no token ", name));
    }
    Add(name, id.value_or(0));
  }
  void Text(absl::string_view text) {
    if (!text.empty()) Add(text, -1);
  }

  absl::StatusOr<EncodedChat> Take() {
    if (!status_.ok()) return status_;
    const absl::Status status = internal::EncodePieces(
        tokenizer_, pieces_, owners_, messages_, options_, control_, &encoded_);
    if (!status.ok()) return status;
    return std::move(encoded_);
  }

 private:
  void Add(absl::string_view text, int32_t control) {
    ChatPiece piece;
    piece.begin = encoded_.text.size();
    absl::StrAppend(&encoded_.text, text);
    piece.end = encoded_.text.size();
    piece.control = control;
    piece.trained = trained_ ? message_ : -1;
    pieces_.push_back(piece);
    owners_.push_back({piece.end, message_});
  }

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

// The text of a message: a string, null, or parts that are all text.
absl::Status TextOf(const JsonValue& message, absl::string_view key,
                    size_t index, std::string* text) {
  text->clear();
  const JsonValue* value = message.Find(key);
  if (value == nullptr || value->is_null()) return absl::OkStatus();
  if (const std::string* string = value->AsString()) {
    *text = *string;
    return absl::OkStatus();
  }
  const JsonValue::Array* parts = value->AsArray();
  if (parts == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("messages[", index, "].",
                                                   key, " is ", value->kind(),
                                                   ", expected a string"));
  }
  for (const JsonValue& part : *parts) {
    const JsonValue* type = part.Find("type");
    const JsonValue* piece = part.Find("text");
    if (type == nullptr || type->AsString() == nullptr ||
        *type->AsString() != "text" || piece == nullptr ||
        piece->AsString() == nullptr) {
      return Refuse(index, "content that is not text is not supported");
    }
    *text += *piece->AsString();
  }
  return absl::OkStatus();
}

std::string StringOf(const JsonValue* value) {
  return value != nullptr && value->AsString() != nullptr ? *value->AsString()
                                                          : "";
}

absl::StatusOr<std::vector<ToolCall>> ToolCallsOf(const JsonValue& message,
                                                  size_t index) {
  std::vector<ToolCall> calls;
  const JsonValue* list = message.Find("tool_calls");
  if (list == nullptr || list->is_null()) return calls;
  if (list->AsArray() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("messages[", index, "].tool_calls is no array"));
  }
  for (const JsonValue& item : *list->AsArray()) {
    ToolCall call;
    call.id = StringOf(item.Find("id"));
    const JsonValue* function = item.Find("function");
    if (function == nullptr) function = &item;
    call.name = StringOf(function->Find("name"));
    const JsonValue* arguments = function->Find("arguments");
    if (call.name.empty() || arguments == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "messages[", index, "].tool_calls: a call lacks name or arguments"));
    }
    call.arguments = *arguments;
    calls.push_back(std::move(call));
  }
  return calls;
}

// json.dumps of Python, as templates write arguments.
std::string PythonJson(const JsonValue& value) {
  JinjaVariable variable;
  variable.value = &value;
  internal::JinjaRuntime runtime{JinjaLimits(), JinjaRenderOptions()};
  return internal::ToJson(runtime, internal::ToJinja(variable),
                          internal::JinjaJsonStyle())
      .bytes();
}

class KimiLinearEncoder final : public ChatEncoder {
 public:
  explicit KimiLinearEncoder(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer) {}

  absl::StatusOr<EncodedChat> Encode(
      const Chat& chat, const ChatOptions& options) const override {
    const auto messages = internal::CheckMessages(chat);
    if (!messages.ok()) return messages.status();
    if (chat.tools.AsArray() != nullptr && !chat.tools.AsArray()->empty()) {
      return absl::UnimplementedError(
          "tools: how Kimi-Linear declares them is not known");
    }
    Layout layout(tokenizer_, *messages, options);
    int num_calls = 0;
    for (size_t i = 0; i < messages->roles.size(); ++i) {
      const absl::Status status =
          Message((*messages->messages.AsArray())[i], messages->roles[i], i,
                  &num_calls, &layout);
      if (!status.ok()) return status;
    }
    layout.SetMessage(-1);
    layout.SetTrained(false);
    if (options.add_generation_prompt) Head("assistant", &layout);
    return layout.Take();
  }

 private:
  static void Head(absl::string_view role, Layout* layout) {
    layout->Control(absl::StrCat("<|im_", role, "|>"));
    layout->Text(role);
    layout->Control("<|im_middle|>");
  }

  static absl::Status Message(const JsonValue& message, const std::string& role,
                              size_t index, int* num_calls, Layout* layout) {
    const bool assistant = role == "assistant";
    if (!assistant && role != "user" && role != "system") {
      return Refuse(index, absl::StrCat("how Kimi-Linear shows the role ", role,
                                        " is not known"));
    }
    std::string text, reasoning;
    absl::Status status = TextOf(message, "content", index, &text);
    if (status.ok()) {
      status = TextOf(message, "reasoning_content", index, &reasoning);
    }
    if (!status.ok()) return status;
    if (!reasoning.empty()) {
      return Refuse(index, "Kimi-Linear has no place for reasoning_content");
    }
    layout->SetMessage(static_cast<int32_t>(index));
    layout->SetTrained(false);
    Head(role, layout);
    layout->SetTrained(assistant);
    layout->Text(text);
    if (assistant) {
      status = Calls(message, index, num_calls, layout);
      if (!status.ok()) return status;
    }
    layout->Control("<|im_end|>");
    return absl::OkStatus();
  }

  static absl::Status Calls(const JsonValue& message, size_t index,
                            int* num_calls, Layout* layout) {
    const auto calls = ToolCallsOf(message, index);
    if (!calls.ok()) return calls.status();
    if (calls->empty()) return absl::OkStatus();
    layout->Control("<|tool_calls_section_begin|>");
    for (const ToolCall& call : *calls) {
      layout->Control("<|tool_call_begin|>");
      layout->Text(absl::StrCat("functions.", call.name, ":", (*num_calls)++));
      layout->Control("<|tool_call_argument_begin|>");
      const std::string* text = call.arguments.AsString();
      layout->Text(text != nullptr ? *text : PythonJson(call.arguments));
      layout->Control("<|tool_call_end|>");
    }
    layout->Control("<|tool_calls_section_end|>");
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
};

using Attributes = std::vector<std::pair<absl::string_view, std::string>>;

class KimiK3Encoder final : public ChatEncoder {
 public:
  KimiK3Encoder(const Tokenizer& tokenizer, const KimiK3Options& options)
      : tokenizer_(tokenizer), options_(options) {}

  absl::StatusOr<EncodedChat> Encode(
      const Chat& chat, const ChatOptions& options) const override {
    const auto messages = internal::CheckMessages(chat);
    if (!messages.ok()) return messages.status();
    if (chat.tools.AsArray() != nullptr && !chat.tools.AsArray()->empty()) {
      return absl::UnimplementedError(
          "tools: K3 declares them with texts of the checkpoint's own encoding "
          "file, which is not read; give the declaration as a system message");
    }
    Layout layout(tokenizer_, *messages, options);
    const JsonValue::Array& all = *messages->messages.AsArray();
    std::vector<ToolCall> calls;  // of the last assistant message
    for (size_t i = 0; i < all.size();) {
      absl::Status status;
      if (messages->roles[i] == "tool") {
        size_t end = i;
        while (end < all.size() && messages->roles[end] == "tool") ++end;
        status = Results(all, i, end, calls, &layout);
        i = end;
      } else if (messages->roles[i] == "assistant") {
        auto found = ToolCallsOf(all[i], i);
        if (!found.ok()) return found.status();
        calls = *std::move(found);
        status = Assistant(all[i], i, calls, &layout);
        ++i;
      } else {
        status = Plain(all[i], messages->roles[i], i, &layout);
        ++i;
      }
      if (!status.ok()) return status;
    }
    layout.SetMessage(-1);
    layout.SetTrained(false);
    if (options.add_generation_prompt) {
      Open("message", {{"role", "assistant"}}, &layout);
      Open(options_.thinking ? "think" : "response", {}, &layout);
    }
    return layout.Take();
  }

 private:
  static void Open(absl::string_view tag, const Attributes& attributes,
                   Layout* layout) {
    layout->Control("<|open|>");
    layout->Text(tag);
    for (const auto& [key, value] : attributes) {
      layout->Text(absl::StrCat(" ", key));
      layout->Text("=\"");
      layout->Text(
          absl::StrReplaceAll(value, {{"&", "&amp;"}, {"\"", "&quot;"}}));
      layout->Text("\"");
    }
    layout->Control("<|sep|>");
  }
  static void Close(absl::string_view tag, Layout* layout) {
    layout->Control("<|close|>");
    layout->Text(tag);
    layout->Control("<|sep|>");
  }
  static void Element(absl::string_view tag, const Attributes& attributes,
                      absl::string_view text, Layout* layout) {
    Open(tag, attributes, layout);
    layout->Text(text);
    Close(tag, layout);
  }
  static void EndMessage(Layout* layout) {
    Close("message", layout);
    layout->Control("<|end_of_msg|>");
  }

  static absl::Status Plain(const JsonValue& message, const std::string& role,
                            size_t index, Layout* layout) {
    if (role != "user" && role != "system") {
      return Refuse(index, absl::StrCat("K3 has no role ", role));
    }
    std::string text;
    absl::Status status = TextOf(message, "content", index, &text);
    if (!status.ok()) return status;
    layout->SetMessage(static_cast<int32_t>(index));
    layout->SetTrained(false);
    Attributes attributes = {{"role", role}};
    const std::string name = StringOf(message.Find("name"));
    if (!name.empty()) attributes.emplace_back("name", name);
    Open("message", attributes, layout);
    layout->Text(text);
    EndMessage(layout);
    return absl::OkStatus();
  }

  absl::Status Assistant(const JsonValue& message, size_t index,
                         const std::vector<ToolCall>& calls,
                         Layout* layout) const {
    std::string text, reasoning;
    absl::Status status = TextOf(message, "content", index, &text);
    if (status.ok()) {
      status = TextOf(message, "reasoning_content", index, &reasoning);
    }
    if (!status.ok()) return status;
    if (!options_.thinking && !reasoning.empty()) {
      return Refuse(index, "reasoning_content in a chat without thinking");
    }
    layout->SetMessage(static_cast<int32_t>(index));
    layout->SetTrained(false);
    Open("message", {{"role", "assistant"}}, layout);
    layout->SetTrained(true);
    if (options_.thinking) Element("think", {}, reasoning, layout);
    Element("response", {}, text, layout);
    if (!calls.empty()) {
      Open("tools", {}, layout);
      for (size_t i = 0; i < calls.size(); ++i) {
        status = Call(calls[i], i, index, layout);
        if (!status.ok()) return status;
      }
      Close("tools", layout);
    }
    EndMessage(layout);
    layout->SetTrained(false);
    return absl::OkStatus();
  }

  static absl::Status Call(const ToolCall& call, size_t number, size_t index,
                           Layout* layout) {
    JsonValue arguments = call.arguments;
    if (const std::string* text = call.arguments.AsString()) {
      auto parsed = ParseJsonText(*text);
      if (!parsed.ok()) return parsed.status();
      arguments = *std::move(parsed);
    }
    if (arguments.AsObject() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", index, "].tool_calls: arguments are ",
                       arguments.kind(), ", expected an object"));
    }
    Open("call", {{"tool", call.name}, {"index", absl::StrCat(number + 1)}},
         layout);
    for (const JsonMember& member : *arguments.AsObject()) {
      const std::string* text = member.value.AsString();
      const auto json = WriteJson(member.value, 0);
      if (!json.ok()) return json.status();
      Element(
          "argument",
          {{"key", member.key}, {"type", std::string(TypeOf(member.value))}},
          text != nullptr ? *text : *json, layout);
    }
    Close("call", layout);
    return absl::OkStatus();
  }

  static absl::string_view TypeOf(const JsonValue& value) {
    if (value.AsString() != nullptr) return "string";
    if (value.AsBool() != nullptr) return "boolean";
    if (value.AsArray() != nullptr) return "array";
    if (value.AsObject() != nullptr) return "object";
    return value.is_null() ? "null" : "number";
  }

  // The results of one round of calls, in the order of the calls.
  static absl::Status Results(const JsonValue::Array& all, size_t begin,
                              size_t end, const std::vector<ToolCall>& calls,
                              Layout* layout) {
    std::vector<std::pair<size_t, size_t>> order;  // call, message
    for (size_t i = begin; i < end; ++i) {
      const std::string id = StringOf(all[i].Find("tool_call_id"));
      size_t call = i - begin;
      if (!id.empty()) {
        const auto found =
            std::find_if(calls.begin(), calls.end(),
                         [&](const ToolCall& c) { return c.id == id; });
        if (found == calls.end()) {
          return absl::InvalidArgumentError(
              absl::StrCat("messages[", i, "] answers the call ",
                           internal::Quote(id, 40), ", which was not made"));
        }
        call = static_cast<size_t>(found - calls.begin());
      }
      order.emplace_back(call, i);
    }
    std::stable_sort(order.begin(), order.end());
    for (const auto& [call, i] : order) {
      std::string name = StringOf(all[i].Find("name"));
      if (name.empty() && call < calls.size()) name = calls[call].name;
      if (name.empty()) return Refuse(i, "a tool result without a tool's name");
      std::string text;
      absl::Status status = TextOf(all[i], "content", i, &text);
      if (!status.ok()) return status;
      layout->SetMessage(static_cast<int32_t>(i));
      layout->SetTrained(false);
      Open(
          "message",
          {{"role", "tool"}, {"tool", name}, {"index", absl::StrCat(call + 1)}},
          layout);
      layout->Text(text);
      EndMessage(layout);
    }
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const KimiK3Options options_;
};

}  // namespace

std::unique_ptr<ChatEncoder> MakeKimiLinearEncoder(const Tokenizer& tokenizer) {
  return std::make_unique<KimiLinearEncoder>(tokenizer);
}

std::unique_ptr<ChatEncoder> MakeKimiK3Encoder(const Tokenizer& tokenizer,
                                               const KimiK3Options& options) {
  return std::make_unique<KimiK3Encoder>(tokenizer, options);
}

}  // namespace espalier
