#include "espalier/io/example.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

struct RoleName {
  absl::string_view name;
  absl::string_view role;
};

constexpr RoleName kShareGptRoles[] = {
    {"human", "user"},       {"user", "user"},
    {"gpt", "assistant"},    {"assistant", "assistant"},
    {"system", "system"},    {"function_call", "assistant"},
    {"observation", "tool"}, {"tool", "tool"},
    {"function", "tool"},
};

// Reads the members of one record.
class ExampleParser {
 public:
  ExampleParser(const JsonValue& record, const std::string& where)
      : record_(record), where_(where) {}

  absl::StatusOr<Example> Parse(const ExampleFields& fields);

 private:
  bool Has(absl::string_view key) const {
    const JsonValue* value = record_.Find(key);
    return value != nullptr && !value->is_null();
  }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", what));
  }
  absl::Status Wrong(absl::string_view path, const JsonValue* value,
                     absl::string_view expected) const {
    return Error(value == nullptr
                     ? absl::StrCat(path, " is missing, expected ", expected)
                     : absl::StrCat(path, " is ", value->kind(), ", expected ",
                                    expected));
  }
  absl::Status GetString(const JsonValue& object, absl::string_view path,
                         absl::string_view key, std::string* out) const;
  absl::StatusOr<Example> PromptCompletion(absl::string_view prompt,
                                           absl::string_view completion) const;
  absl::StatusOr<Example> Messages() const;
  absl::StatusOr<Example> Conversations() const;
  absl::StatusOr<Example> Instruction() const;
  absl::StatusOr<JsonValue> ConvertTurn(const JsonValue& turn,
                                        const std::string& path) const;
  absl::Status CheckMessages(const JsonValue& messages,
                             absl::string_view path) const;
  // Tools and the request.
  absl::Status ReadAround(Example* example) const;

  const JsonValue& record_;
  const std::string& where_;
};

JsonValue Message(absl::string_view role, absl::string_view content) {
  JsonValue message;
  message.Set("role", role);
  message.Set("content", content);
  return message;
}

absl::Status ExampleParser::GetString(const JsonValue& object,
                                      absl::string_view path,
                                      absl::string_view key,
                                      std::string* out) const {
  const JsonValue* value = object.Find(key);
  if (value == nullptr || value->AsString() == nullptr) {
    return Wrong(absl::StrCat(path, key), value, "a string");
  }
  *out = *value->AsString();
  return absl::OkStatus();
}

absl::Status ExampleParser::CheckMessages(const JsonValue& messages,
                                          absl::string_view path) const {
  const JsonValue::Array* array = messages.AsArray();
  if (array == nullptr) return Wrong(path, &messages, "an array of messages");
  if (array->empty()) return Error(absl::StrCat(path, " has no message"));
  for (size_t i = 0; i < array->size(); ++i) {
    const std::string at = absl::StrCat(path, "[", i, "]");
    if ((*array)[i].AsObject() == nullptr) {
      return Wrong(at, &(*array)[i], "an object");
    }
    std::string role;
    absl::Status status =
        GetString((*array)[i], absl::StrCat(at, "."), "role", &role);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ExampleParser::ReadAround(Example* example) const {
  for (const char* key :
       {"thinking_effort", "tool_choice", "response_format"}) {
    if (Has(key)) example->request.Set(key, *record_.Find(key));
  }
  if (!Has("tools")) return absl::OkStatus();
  JsonValue tools = *record_.Find("tools");
  if (const std::string* text = tools.AsString()) {
    if (internal::IsBlank(*text)) return absl::OkStatus();
    auto parsed = ParseJsonText(*text);
    if (!parsed.ok()) {
      return Error(absl::StrCat("tools: ", parsed.status().message()));
    }
    tools = *std::move(parsed);
  }
  if (tools.is_null()) return absl::OkStatus();
  if (tools.AsArray() == nullptr) {
    return Wrong("tools", &tools, "an array, or its JSON text");
  }
  if (!tools.AsArray()->empty()) example->tools = std::move(tools);
  return absl::OkStatus();
}

absl::StatusOr<Example> ExampleParser::PromptCompletion(
    absl::string_view prompt, absl::string_view completion) const {
  Example example;
  const JsonValue* first = record_.Find(prompt);
  const JsonValue* second = record_.Find(completion);
  if (first != nullptr && second != nullptr && first->AsArray() != nullptr &&
      second->AsArray() != nullptr) {
    JsonValue::Array messages = *first->AsArray();
    const JsonValue::Array& rest = *second->AsArray();
    messages.insert(messages.end(), rest.begin(), rest.end());
    example.kind = Example::Kind::kChat;
    example.messages = JsonValue(std::move(messages));
    if (absl::Status status = CheckMessages(
            example.messages, absl::StrCat(prompt, " + ", completion));
        !status.ok()) {
      return status;
    }
    if (absl::Status status = ReadAround(&example); !status.ok()) {
      return status;
    }
    return example;
  }
  example.kind = Example::Kind::kPromptCompletion;
  absl::Status status = GetString(record_, "", prompt, &example.prompt);
  if (status.ok()) {
    status = GetString(record_, "", completion, &example.completion);
  }
  if (!status.ok()) return status;
  return example;
}

absl::StatusOr<Example> ExampleParser::Messages() const {
  Example example;
  example.kind = Example::Kind::kChat;
  example.messages = *record_.Find("messages");
  absl::Status status = CheckMessages(example.messages, "messages");
  if (status.ok()) status = ReadAround(&example);
  if (!status.ok()) return status;
  return example;
}

absl::StatusOr<JsonValue> ExampleParser::ConvertTurn(
    const JsonValue& turn, const std::string& path) const {
  if (turn.AsObject() == nullptr) return Wrong(path, &turn, "an object");
  const bool own_names = turn.Find("from") == nullptr;
  std::string from, value;
  absl::Status status =
      GetString(turn, path + ".", own_names ? "role" : "from", &from);
  if (status.ok()) {
    status =
        GetString(turn, path + ".", own_names ? "content" : "value", &value);
  }
  if (!status.ok()) return status;
  for (const RoleName& known : kShareGptRoles) {
    if (from != known.name) continue;
    if (from != "function_call") return Message(known.role, value);
    auto call = ParseJsonText(value);
    if (!call.ok() || call->Find("name") == nullptr) {
      return Error(absl::StrCat(path,
                                ".value of a function_call, expected "
                                "JSON with name and arguments"));
    }
    JsonValue message = Message(known.role, "");
    JsonValue wrapped;
    wrapped.Set("type", "function");
    wrapped.Set("function", *std::move(call));
    message.Set("tool_calls", JsonValue(JsonValue::Array{std::move(wrapped)}));
    return message;
  }
  std::vector<absl::string_view> names;
  for (const RoleName& known : kShareGptRoles) names.push_back(known.name);
  return Error(absl::StrCat(path, own_names ? ".role" : ".from", " is \"", from,
                            "\", expected one of ",
                            absl::StrJoin(names, ", ")));
}

absl::StatusOr<Example> ExampleParser::Conversations() const {
  const JsonValue* turns = record_.Find("conversations");
  if (turns->AsArray() == nullptr) {
    return Wrong("conversations", turns, "an array of turns");
  }
  if (turns->AsArray()->empty()) return Error("conversations has no turn");
  JsonValue::Array messages;
  if (Has("system")) {
    std::string system;
    absl::Status status = GetString(record_, "", "system", &system);
    if (!status.ok()) return status;
    if (!system.empty()) messages.push_back(Message("system", system));
  }
  for (size_t i = 0; i < turns->AsArray()->size(); ++i) {
    auto message = ConvertTurn((*turns->AsArray())[i],
                               absl::StrCat("conversations[", i, "]"));
    if (!message.ok()) return message.status();
    messages.push_back(*std::move(message));
  }
  Example example;
  example.kind = Example::Kind::kChat;
  example.messages = JsonValue(std::move(messages));
  if (absl::Status status = ReadAround(&example); !status.ok()) {
    return status;
  }
  return example;
}

absl::StatusOr<Example> ExampleParser::Instruction() const {
  std::string instruction, input, output, system;
  absl::Status status = GetString(record_, "", "instruction", &instruction);
  if (status.ok()) status = GetString(record_, "", "output", &output);
  if (status.ok() && Has("input")) {
    status = GetString(record_, "", "input", &input);
  }
  if (status.ok() && Has("system")) {
    status = GetString(record_, "", "system", &system);
  }
  if (!status.ok()) return status;
  JsonValue::Array messages;
  if (!system.empty()) messages.push_back(Message("system", system));
  if (Has("history")) {
    const JsonValue* history = record_.Find("history");
    if (history->AsArray() == nullptr) {
      return Wrong("history", history, "an array of [user, assistant] pairs");
    }
    for (const JsonValue& pair : *history->AsArray()) {
      const JsonValue::Array* texts = pair.AsArray();
      if (texts == nullptr || texts->size() != 2 ||
          (*texts)[0].AsString() == nullptr ||
          (*texts)[1].AsString() == nullptr) {
        return Error("history is no array of [user, assistant] pairs");
      }
      messages.push_back(Message("user", *(*texts)[0].AsString()));
      messages.push_back(Message("assistant", *(*texts)[1].AsString()));
    }
  }
  if (!input.empty()) absl::StrAppend(&instruction, "\n\n", input);
  messages.push_back(Message("user", instruction));
  messages.push_back(Message("assistant", output));
  Example example;
  example.kind = Example::Kind::kChat;
  example.messages = JsonValue(std::move(messages));
  return example;
}

absl::StatusOr<Example> ExampleParser::Parse(const ExampleFields& fields) {
  if (record_.AsObject() == nullptr) {
    return Error(absl::StrCat("is ", record_.kind(), ", expected an object"));
  }
  if (!fields.prompt.empty()) {
    return PromptCompletion(fields.prompt, fields.completion);
  }
  if (Has("messages")) return Messages();
  if (Has("conversations")) return Conversations();
  if (Has("prompt") && Has("completion")) {
    return PromptCompletion("prompt", "completion");
  }
  if (Has("instruction") && Has("output")) return Instruction();
  if (Has("text")) {
    Example example;
    absl::Status status = GetString(record_, "", "text", &example.text);
    if (!status.ok()) return status;
    return example;
  }
  std::vector<absl::string_view> names;
  for (const JsonMember& member : *record_.AsObject()) {
    names.push_back(member.key);
    if (names.size() == 12) break;
  }
  return Error(absl::StrCat(
      "no known shape; it has ",
      names.empty() ? "no member" : absl::StrJoin(names, ", "),
      ", expected messages, conversations, prompt and completion, instruction "
      "and output, or text; name the members with prompt and completion "
      "fields"));
}

}  // namespace

absl::StatusOr<Example> ParseExample(absl::string_view record,
                                     const ExampleFields& fields,
                                     const std::string& where) {
  if (fields.prompt.empty() != fields.completion.empty()) {
    return absl::InvalidArgumentError(
        "the prompt and the completion field go together");
  }
  const auto value = ParseJsonText(record);
  if (!value.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", value.status().message()));
  }
  return ExampleParser(*value, where).Parse(fields);
}

}  // namespace espalier
