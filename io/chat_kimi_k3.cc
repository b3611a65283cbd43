// The chat layout of Kimi-K3 (XTML), token by token.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "espalier/io/chat.h"
#include "espalier/io/internal/chat_layout.h"
#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

using internal::BadMessage;
using internal::ChatLayout;
using internal::ChatMessages;
using internal::ChatString;
using internal::ChatText;
using internal::ChatToolCall;

using Attributes = std::vector<std::pair<absl::string_view, std::string>>;

absl::string_view TypeOf(const JsonValue& value) {
  if (value.AsString() != nullptr) return "string";
  if (value.AsBool() != nullptr) return "boolean";
  if (value.AsArray() != nullptr) return "array";
  if (value.AsObject() != nullptr) return "object";
  return value.is_null() ? "null" : "number";
}

// The arguments of a call as an object.
absl::StatusOr<JsonValue> ArgumentsOf(const ChatToolCall& call, size_t index) {
  JsonValue arguments = call.arguments;
  const std::string* text = call.arguments.AsString();
  if (arguments.is_null() || (text != nullptr && internal::IsBlank(*text))) {
    return JsonValue(JsonValue::Object());
  }
  if (text != nullptr) {
    auto parsed = ParseJsonText(*text);
    if (!parsed.ok()) {
      return BadMessage(index, absl::StrCat(".tool_calls: arguments of ",
                                            internal::Quote(call.name, 40),
                                            ": ", parsed.status().message()));
    }
    arguments = *std::move(parsed);
  }
  if (arguments.AsObject() == nullptr) {
    return BadMessage(
        index, absl::StrCat(".tool_calls: arguments are ", arguments.kind(),
                            ", expected an object"));
  }
  return arguments;
}

constexpr absl::string_view kEfforts[] = {"low", "medium", "high", "max",
                                          "none"};

// Compact JSON, keys sorted through all levels.
absl::StatusOr<std::string> SortedJson(const JsonValue& value) {
  internal::JinjaJsonStyle style = internal::CompactJson();
  style.sort_keys = true;
  return internal::PythonJson(value, style);
}

// A member of a request; empty where it is absent or null.
absl::StatusOr<std::string> StringOf(const JsonValue& request,
                                     absl::string_view key) {
  const JsonValue* value = request.Find(key);
  if (value == nullptr || value->is_null()) return std::string();
  if (const std::string* text = value->AsString()) return *text;
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", value->kind(), ", expected a string"));
}

// Lays out one chat.
class KimiK3Writer {
 public:
  KimiK3Writer(const KimiK3Options& options, ChatLayout* layout)
      : options_(options), layout_(*layout) {}

  absl::Status Tools(const JsonValue& tools, const KimiK3Text& text) {
    if (tools.AsArray() == nullptr || tools.AsArray()->empty()) {
      return absl::OkStatus();
    }
    const auto json = SortedJson(tools);
    if (!json.ok()) return json.status();
    return System("tool-declare", "tools", text, *json);
  }

  // How much is to be thought.
  absl::Status ThinkingEffort(const JsonValue& request,
                              const std::string& usual) {
    auto effort = StringOf(request, "thinking_effort");
    if (!effort.ok()) return effort.status();
    if (effort->empty()) *effort = usual.empty() ? "max" : usual;
    if (std::find(std::begin(kEfforts), std::end(kEfforts), *effort) ==
        std::end(kEfforts)) {
      return absl::InvalidArgumentError(
          absl::StrCat("thinking_effort is ", internal::Quote(*effort, 40),
                       ", expected one of ", absl::StrJoin(kEfforts, ", ")));
    }
    if (!options_.thinking || *effort == "none") return absl::OkStatus();
    return System("thinking-effort", "a thinking effort other than \"none\"",
                  options_.thinking_effort, *effort);
  }

  // What else was asked of the answer that follows.
  absl::Status Request(const JsonValue& request) {
    layout_.Begin(-1);
    const auto choice = StringOf(request, "tool_choice");
    if (!choice.ok()) return choice.status();
    if (*choice == "required" || *choice == "none") {
      absl::Status status = System("tool-choice", "tool_choice",
                                   {*choice == "none" ? options_.tools_forbidden
                                                      : options_.tools_required,
                                    ""},
                                   "");
      if (!status.ok()) return status;
    } else if (!choice->empty() && *choice != "auto") {
      return absl::InvalidArgumentError(
          absl::StrCat("tool_choice is ", internal::Quote(*choice, 40),
                       ", expected required, none or auto"));
    }
    const JsonValue* format = request.Find("response_format");
    return format == nullptr ? absl::OkStatus() : Format(*format);
  }

  void Prompt() {
    layout_.Begin(-1);
    Open("message", {{"role", "assistant"}});
    Open(options_.thinking ? "think" : "response", {});
  }

  // Lays out messages[begin], with the results that follow where it is one;
  // the first message behind.
  absl::StatusOr<size_t> Message(const ChatMessages& messages, size_t begin) {
    const JsonValue::Array& all = *messages.messages.AsArray();
    if (messages.roles[begin] == "tool") {
      size_t end = begin;
      while (end < all.size() && messages.roles[end] == "tool") ++end;
      const absl::Status status = Results(all, begin, end);
      if (!status.ok()) return status;
      return end;
    }
    const absl::Status status =
        messages.roles[begin] == "assistant"
            ? Assistant(all[begin], begin)
            : Plain(all[begin], messages.roles[begin], begin);
    if (!status.ok()) return status;
    return begin + 1;
  }

 private:
  void Open(absl::string_view tag, const Attributes& attributes) {
    layout_.Control("<|open|>");
    layout_.Text(tag);
    for (const auto& [key, value] : attributes) {
      layout_.Text(absl::StrCat(" ", key));
      layout_.Text("=\"");
      layout_.Text(
          absl::StrReplaceAll(value, {{"&", "&amp;"}, {"\"", "&quot;"}}));
      layout_.Text("\"");
    }
    layout_.Control("<|sep|>");
  }
  void Close(absl::string_view tag) {
    layout_.Control("<|close|>");
    layout_.Text(tag);
    layout_.Control("<|sep|>");
  }
  void Element(absl::string_view tag, const Attributes& attributes,
               absl::string_view text) {
    Open(tag, attributes);
    layout_.Text(text);
    Close(tag);
  }
  void EndMessage() {
    Close("message");
    layout_.Control("<|end_of_msg|>");
  }
  // A message of the system's own, around a value. `what` needs its text.
  absl::Status System(absl::string_view type, absl::string_view what,
                      const KimiK3Text& text, absl::string_view value) {
    if (text.before.empty() && text.behind.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          what,
          ": K3 shows this with texts of the checkpoint's own encoding_k3.py, "
          "which its folder lacks: put it there"));
    }
    Open("message", {{"role", "system"}, {"type", std::string(type)}});
    layout_.Text(absl::StrCat(text.before, value, text.behind));
    EndMessage();
    return absl::OkStatus();
  }

  absl::Status Format(const JsonValue& format) {
    const std::string* name = format.AsString();
    const std::string type =
        name != nullptr ? *name : ChatString(format, "type");
    if (type == "text") return absl::OkStatus();
    if (type == "json_object") {
      return System("response-format", "response_format",
                    {options_.json_answer, ""}, "");
    }
    const JsonValue* schema = format.Find("json_schema");
    if (type != "json_schema" || schema == nullptr || schema->is_null()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "response_format has the type ", internal::Quote(type, 40),
          schema == nullptr ? " and no json_schema" : "",
          ", expected text, json_object or json_schema"));
    }
    for (const char* key : {"schema", "json_schema"}) {
      if (const JsonValue* inner = schema->Find(key)) {
        schema = inner;
        break;
      }
    }
    const auto json = SortedJson(*schema);
    if (!json.ok()) return json.status();
    return System("response-format", "response_format", options_.schema_answer,
                  *json);
  }

  void OpenMessage(const JsonValue& message, const std::string& role,
                   size_t index) {
    layout_.Begin(static_cast<int32_t>(index));
    Attributes attributes = {{"role", role}};
    const std::string name = ChatString(message, "name");
    if (!name.empty()) attributes.emplace_back("name", name);
    Open("message", attributes);
  }

  absl::Status Plain(const JsonValue& message, const std::string& role,
                     size_t index) {
    if (role != "user" && role != "system") {
      return BadMessage(index, absl::StrCat(": K3 has no role ", role));
    }
    const JsonValue* tools = message.Find("tools");
    if (role == "system" && tools != nullptr && tools->AsArray() != nullptr &&
        !tools->AsArray()->empty()) {
      layout_.Begin(static_cast<int32_t>(index));
      return Tools(*tools, options_.declare_more_tools);
    }
    const auto text = ChatText(message, "content", index);
    if (!text.ok()) return text.status();
    OpenMessage(message, role, index);
    layout_.Text(*text);
    EndMessage();
    return absl::OkStatus();
  }

  absl::Status Assistant(const JsonValue& message, size_t index) {
    auto calls = internal::ChatToolCalls(message, index);
    if (!calls.ok()) return calls.status();
    calls_ = *std::move(calls);
    const auto text = ChatText(message, "content", index);
    if (!text.ok()) return text.status();
    auto reasoning = ChatText(message, "reasoning_content", index);
    if (reasoning.ok() && reasoning->empty()) {
      reasoning = ChatText(message, "reasoning", index);
    }
    if (!reasoning.ok()) return reasoning.status();
    if (internal::IsBlank(*reasoning)) reasoning->clear();
    if (!options_.thinking && !reasoning->empty()) {
      return BadMessage(index,
                        ": reasoning_content in a chat without thinking");
    }
    OpenMessage(message, "assistant", index);
    layout_.SetTrained(true);
    if (options_.thinking) Element("think", {}, *reasoning);
    Element("response", {}, *text);
    if (!calls_.empty()) {
      Open("tools", {});
      for (size_t i = 0; i < calls_.size(); ++i) {
        absl::Status status = Call(calls_[i], i, index);
        if (!status.ok()) return status;
      }
      Close("tools");
    }
    EndMessage();
    return absl::OkStatus();
  }

  absl::Status Call(const ChatToolCall& call, size_t number, size_t index) {
    const auto arguments = ArgumentsOf(call, index);
    if (!arguments.ok()) return arguments.status();
    Open("call", {{"tool", call.name}, {"index", absl::StrCat(number + 1)}});
    for (const JsonMember& member : *arguments->AsObject()) {
      std::string text;
      if (const std::string* string = member.value.AsString()) {
        text = *string;
      } else {
        auto json = internal::PythonJson(member.value, {});
        if (!json.ok()) return json.status();
        text = *std::move(json);
      }
      Element(
          "argument",
          {{"key", member.key}, {"type", std::string(TypeOf(member.value))}},
          text);
    }
    Close("call");
    return absl::OkStatus();
  }

  // The results of one round of calls, in the order of the calls.
  absl::Status Results(const JsonValue::Array& all, size_t begin, size_t end) {
    std::vector<std::pair<size_t, size_t>> order;  // call, message
    for (size_t i = begin; i < end; ++i) {
      std::string id = ChatString(all[i], "tool_call_id");
      if (id.empty()) id = ChatString(all[i], "id");
      size_t call = i - begin;
      if (!id.empty()) {
        const ChatToolCall* found = internal::FindToolCall(calls_, id);
        if (found == nullptr) {
          return BadMessage(
              i, absl::StrCat(" answers the call ", internal::Quote(id, 40),
                              ", which was not made"));
        }
        call = static_cast<size_t>(found - calls_.data());
      }
      order.emplace_back(call, i);
    }
    std::stable_sort(order.begin(), order.end());
    for (const auto& [call, i] : order) {
      // The call's own name counts, where there is a call.
      std::string name = call < calls_.size() ? calls_[call].name : "";
      if (name.empty()) name = ChatString(all[i], "tool");
      if (name.empty()) name = ChatString(all[i], "name");
      if (name.empty()) {
        return BadMessage(i, " is a tool result without a tool's name");
      }
      const auto text = ChatText(all[i], "content", i);
      if (!text.ok()) return text.status();
      layout_.Begin(static_cast<int32_t>(i));
      Open("message", {{"role", "tool"},
                       {"tool", name},
                       {"index", absl::StrCat(call + 1)}});
      layout_.Text(*text);
      EndMessage();
    }
    return absl::OkStatus();
  }

  const KimiK3Options& options_;
  ChatLayout& layout_;
  std::vector<ChatToolCall> calls_;  // of the last assistant message
};

class KimiK3Encoder final : public ChatEncoder {
 public:
  KimiK3Encoder(const Tokenizer& tokenizer, const KimiK3Options& options)
      : tokenizer_(tokenizer), options_(options) {}

  absl::StatusOr<EncodedChat> Encode(
      const Chat& chat, const ChatOptions& options) const override {
    const auto messages = internal::CheckMessages(chat);
    if (!messages.ok()) return messages.status();
    ChatLayout layout(tokenizer_, *messages, options);
    KimiK3Writer writer(options_, &layout);
    absl::Status status = writer.Tools(chat.tools, options_.declare_tools);
    if (status.ok()) {
      status = writer.ThinkingEffort(chat.request, options.thinking_effort);
    }
    if (!status.ok()) return status;
    // The request comes last before the answer to it.
    const size_t count = messages->roles.size();
    const bool answered =
        messages->roles.back() == "assistant" && !options.add_generation_prompt;
    const size_t request = answered ? count - 1 : count;
    for (size_t i = 0; i < count;) {
      if (i == request) status = writer.Request(chat.request);
      if (!status.ok()) return status;
      const auto next = writer.Message(*messages, i);
      if (!next.ok()) return next.status();
      i = *next;
    }
    if (!answered) status = writer.Request(chat.request);
    if (!status.ok()) return status;
    if (options.add_generation_prompt) writer.Prompt();
    return layout.Take();
  }

 private:
  const Tokenizer& tokenizer_;
  const KimiK3Options options_;
};

}  // namespace

std::unique_ptr<ChatEncoder> MakeKimiK3Encoder(const Tokenizer& tokenizer,
                                               const KimiK3Options& options) {
  return std::make_unique<KimiK3Encoder>(tokenizer, options);
}

}  // namespace espalier
