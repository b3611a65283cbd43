#ifndef ESPALIER_IO_CHAT_H_
#define ESPALIER_IO_CHAT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/json.h"
#include "espalier/io/tokenizer.h"

namespace espalier {

// A conversation as a data file holds it.
struct Chat {
  // [{"role": "user", "content": "..."}, ...]; what else a message may have is
  // the template's business (tool_calls, reasoning_content). A "weight" (a
  // number, 0 or more) of an assistant message scales the weights of its
  // tokens and is not shown to the template.
  JsonValue messages;
  JsonValue tools;  // an array, or null
  // What was asked of the answer, for layouts that show it (K3): an object of
  // thinking_effort, tool_choice and response_format, or null.
  JsonValue request;
};

enum class ChatLoss : uint8_t {
  kAssistant,      // every assistant message, with what ends it
  kLastAssistant,  // the last one alone: prompt and completion
  kAll,            // every token
};

struct ChatOptions {
  ChatLoss loss = ChatLoss::kAssistant;
  // Ends with what the model is prompted with to answer.
  bool add_generation_prompt = false;
  // Added tokens that are not special, such as <think>, which assistant
  // messages may spell; elsewhere, and all others, stay text in content.
  std::vector<std::string> content_tokens;
  // Of chats that name none: "low", "medium", "high", "max", or "none" for no
  // word of it; empty: the layout's own. K3 alone has one ("max"), all other
  // layouts fail OUT_OF_RANGE where it is set.
  std::string thinking_effort;
  // What strftime_now shows, in UTC; without it such templates fail.
  std::optional<int64_t> now_seconds;
};

// OUT_OF_RANGE, naming it, for one of content_tokens that is no added token of
// the tokenizer, or is special.
absl::Status CheckContentTokens(const ChatOptions& options,
                                const Tokenizer& tokenizer);

struct EncodedChat {
  std::string text;          // as rendered; an appended stop token is not in it
  std::vector<int32_t> ids;  // [T]
  std::vector<float> weights;      // [T], of each token as a target
  std::vector<int32_t> messages;   // [T], the message a token belongs to; -1
  std::vector<std::string> roles;  // of the messages
  std::vector<std::string> warnings;
};

// Which layout a folder's chats have.
enum class ChatFormat : uint8_t {
  kAuto,        // by config.json's model_type, else kTemplate
  kTemplate,    // its Jinja chat template
  kKimiLinear,  // docs/formats/chat.md
  kKimiK3,
};

// Turns conversations into tokens. Control tokens come from the template
// alone: content that spells one is text. Nothing is added that the layout does
// not show, no second <s> either. Thread-safe.
//
// Weights: a token is trained when it belongs to the answer of an assistant
// message, from behind the generation prompt up to and with the token that ends
// the turn. Where the template has {% generation %} blocks, they tell; else the
// text that each message's loop printed does, if it begins with what the
// template prompts with. Neither is guessed: a template that shows neither is
// refused, and so is a span that would train on another role's text.
class ChatEncoder {
 public:
  virtual ~ChatEncoder() = default;

  // Fails INVALID_ARGUMENT, naming the message, on what is no conversation and
  // on what the layout has no place for; like JinjaTemplate where the template
  // fails; FAILED_PRECONDITION where spans cannot be verified and where the
  // folder lacks a text or a token that the layout needs.
  virtual absl::StatusOr<EncodedChat> Encode(
      const Chat& chat, const ChatOptions& options) const = 0;
};

// Reads what the chats of a folder need: its templates (chat_template.jinja and
// additional_chat_templates/NAME.jinja, else chat_template of
// tokenizer_config.json, one or a list of named ones) and special tokens; for
// K3 the texts of encoding_k3.py where it is there. Chats with tools get the
// template named tool_use where there is one, all others the default.
// `tokenizer` must outlive the encoder. Fails NOT_FOUND where the folder has no
// template, or none that is named so.
absl::StatusOr<std::unique_ptr<ChatEncoder>> LoadChatEncoder(
    const std::string& dir, const Tokenizer& tokenizer,
    ChatFormat format = ChatFormat::kAuto);

// The same from texts: a template and a tokenizer_config.json, which may be
// empty. `where` goes in front of messages.
absl::StatusOr<std::unique_ptr<ChatEncoder>> MakeTemplateEncoder(
    absl::string_view chat_template, absl::string_view config,
    const std::string& where, const Tokenizer& tokenizer);

// Kimi-Linear's layout, and K3's (XTML).
std::unique_ptr<ChatEncoder> MakeKimiLinearEncoder(const Tokenizer& tokenizer);
// A text around a value.
struct KimiK3Text {
  std::string before, behind;
};
struct KimiK3Options {
  // An assistant message without reasoning still has an empty think element.
  bool thinking = true;
  // All that follows belongs to the checkpoint: what needs a text that is empty
  // fails FAILED_PRECONDITION.
  // What declares the tools of a chat, and those that a system message adds,
  // around their JSON.
  KimiK3Text declare_tools, declare_more_tools;
  KimiK3Text thinking_effort;  // around its name
  std::string tools_required, tools_forbidden;
  std::string json_answer;
  KimiK3Text schema_answer;  // around the schema
};
// Takes the texts from the source of the checkpoint's encoding_k3.py. Fails
// UNIMPLEMENTED, naming `where`, where they do not stand as in the released
// one.
absl::Status ReadKimiK3Texts(absl::string_view source, const std::string& where,
                             KimiK3Options* options);
std::unique_ptr<ChatEncoder> MakeKimiK3Encoder(const Tokenizer& tokenizer,
                                               const KimiK3Options& options);

}  // namespace espalier

#endif  // ESPALIER_IO_CHAT_H_
