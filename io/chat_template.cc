// Chats laid out by a Jinja template.
#include "espalier/io/internal/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/chat_pieces.h"
#include "espalier/io/internal/chat_spans.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/jinja.h"

namespace espalier {

namespace {

using internal::ChatMessages;
using internal::ChatOwner;
using internal::ChatPiece;
using internal::ChatSpan;
using internal::Stretch;

class TemplateEncoder final : public ChatEncoder {
 public:
  TemplateEncoder(JinjaTemplate parsed, const Tokenizer& tokenizer)
      : template_(std::move(parsed)), tokenizer_(tokenizer) {
    if (tokenizer.eos_id().has_value()) stops_.insert(*tokenizer.eos_id());
  }

  void AddSpecial(const std::string& name, const std::string& token) {
    special_.emplace_back(name, JsonValue(token));
  }
  void AddStop(int32_t id) { stops_.insert(id); }
  // After all special tokens are there.
  void FindControlTokens() {
    for (const AddedToken& token : tokenizer_.added_tokens()) {
      const bool named = std::any_of(
          special_.begin(), special_.end(), [&](const auto& special) {
            return *special.second.AsString() == token.content;
          });
      // A template that spells a token that is not special means it, too.
      const bool spelled =
          !internal::IsBlank(token.content) &&
          template_.literal_text().find(token.content) != std::string::npos;
      if (!token.special && !named && !spelled) continue;
      control_.insert(token.id);
      matcher_.Add(token, token.content);
    }
  }

  absl::StatusOr<EncodedChat> Encode(
      const Chat& chat, const ChatOptions& options) const override {
    absl::Status known = internal::RefuseThinkingEffort(options);
    if (!known.ok()) return known;
    const auto messages = internal::CheckMessages(chat);
    if (!messages.ok()) return messages.status();
    auto output = Render(messages->messages, chat, options,
                         options.add_generation_prompt);
    if (!output.ok()) return output.status();
    const std::vector<Stretch> controls =
        internal::FindControls(*output, matcher_);
    std::vector<ChatSpan> spans;
    if (options.loss != ChatLoss::kAll) {
      auto found = internal::FindSpans(
          *output, controls, *messages, matcher_, stops_, [&](int32_t count) {
            return PromptTail(*messages, chat, options, count);
          });
      if (!found.ok()) return found.status();
      spans = *std::move(found);
    }
    EncodedChat encoded;
    encoded.roles = messages->roles;
    encoded.text = output->text;
    absl::Status status = internal::EncodePieces(
        tokenizer_, Cut(*output, controls, spans, *messages), Owners(*output),
        *messages, options, control_, &encoded);
    if (status.ok()) status = AppendStop(spans, *messages, options, &encoded);
    if (!status.ok()) return status;
    internal::CheckBos(tokenizer_, &encoded);
    WarnOfSpellings(*output, options, &encoded);
    return encoded;
  }

 private:
  absl::StatusOr<JinjaOutput> Render(const JsonValue& messages,
                                     const Chat& chat,
                                     const ChatOptions& options,
                                     bool prompt) const {
    const JsonValue none, generation(prompt);
    std::vector<JinjaVariable> variables;
    for (const auto& [name, token] : special_) {
      variables.push_back({name, &token, JinjaVariable::Origin::kTemplate, {}});
    }
    variables.push_back(
        {"tools", &chat.tools, JinjaVariable::Origin::kData, {}});
    variables.push_back({"documents", &none, JinjaVariable::Origin::kData, {}});
    variables.push_back({"add_generation_prompt",
                         &generation,
                         JinjaVariable::Origin::kTemplate,
                         {}});
    variables.push_back(
        {"messages", &messages, JinjaVariable::Origin::kItems, {"role"}});
    JinjaRenderOptions render;
    render.now_seconds = options.now_seconds;
    return template_.Render(variables, render);
  }

  // See internal::PromptTail. A chat that begins with the answer has no
  // messages to prompt with: a question stands in for them.
  absl::StatusOr<std::string> PromptTail(const ChatMessages& messages,
                                         const Chat& chat,
                                         const ChatOptions& options,
                                         int32_t count) const {
    const JsonValue::Array& all = *messages.messages.AsArray();
    absl::StatusOr<JinjaOutput> output = absl::NotFoundError("");
    if (count > 0) {
      const JsonValue before(
          JsonValue::Array(all.begin(), all.begin() + count));
      output = Render(before, chat, options, /*prompt=*/true);
    }
    if (!output.ok()) {
      JsonValue question;
      question.Set("role", "user");
      question.Set("content", "x");
      output = Render(JsonValue(JsonValue::Array{question}), chat, options,
                      /*prompt=*/true);
    }
    if (!output.ok()) return output.status();
    size_t begin = 0;
    for (const JinjaRun& run : output->runs) {
      if (run.mark.item >= 0) begin = run.end;
    }
    return output->text.substr(begin);
  }

  static std::vector<ChatOwner> Owners(const JinjaOutput& output) {
    std::vector<ChatOwner> owners;
    for (const JinjaRun& run : output.runs) {
      const int32_t message =
          run.mark.item >= 0 ? run.mark.item : std::max(run.mark.source, -1);
      if (!owners.empty() && owners.back().message == message) {
        owners.back().end = run.end;
      } else {
        owners.push_back({run.end, message});
      }
    }
    return owners;
  }

  // The text in pieces: control tokens, and what lies between them and the ends
  // of answers.
  static std::vector<ChatPiece> Cut(const JinjaOutput& output,
                                    const std::vector<Stretch>& controls,
                                    const std::vector<ChatSpan>& spans,
                                    const ChatMessages& messages) {
    std::vector<size_t> cuts = {0, output.text.size()};
    for (const Stretch& control : controls) {
      cuts.push_back(control.begin);
      cuts.push_back(control.end);
    }
    for (const ChatSpan& span : spans) {
      cuts.push_back(span.begin);
      cuts.push_back(span.end);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<ChatPiece> pieces;
    auto control = controls.begin();
    auto span = spans.begin();
    auto run = output.runs.begin();
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      ChatPiece piece;
      piece.begin = cuts[i];
      piece.end = cuts[i + 1];
      while (span != spans.end() && span->end <= piece.begin) ++span;
      if (span != spans.end() && span->begin <= piece.begin) {
        piece.trained = span->message;
        piece.joined = span->begin == piece.begin && !pieces.empty() &&
                       pieces.back().control < 0;
      }
      if (control != controls.end() && control->begin == piece.begin) {
        piece.control = control->id;
        ++control;
      }
      piece.content_tokens = true;
      while (run != output.runs.end() && run->end <= piece.begin) ++run;
      for (auto part = run; part != output.runs.end(); ++part) {
        const int32_t source = part->mark.source;
        if (source != JinjaMark::kTemplate && !messages.IsAssistant(source)) {
          piece.content_tokens = false;
        }
        if (part->end >= piece.end) break;
      }
      pieces.push_back(piece);
    }
    return pieces;
  }

  absl::Status AppendStop(const std::vector<ChatSpan>& spans,
                          const ChatMessages& messages,
                          const ChatOptions& options,
                          EncodedChat* encoded) const {
    if (spans.empty() || !spans.back().append_stop) return absl::OkStatus();
    if (options.add_generation_prompt) return absl::OkStatus();
    if (!tokenizer_.eos_id().has_value()) {
      return absl::FailedPreconditionError(
          "nothing ends the last answer, and the tokenizer names no end token");
    }
    const int32_t message = spans.back().message;
    encoded->ids.push_back(*tokenizer_.eos_id());
    encoded->messages.push_back(message);
    encoded->weights.push_back(internal::WeightOf(messages, message, options));
    return absl::OkStatus();
  }

  void WarnOfSpellings(const JinjaOutput& output, const ChatOptions& options,
                       EncodedChat* encoded) const {
    EncodeOptions match;
    match.match_special_tokens = true;
    int64_t count = 0;
    std::string first;
    size_t begin = 0;
    for (size_t i = 0; i < output.runs.size(); ++i) {
      const size_t end = output.runs[i].end;
      if (output.runs[i].mark.source != JinjaMark::kTemplate) {
        const absl::string_view part =
            absl::string_view(output.text).substr(begin, end - begin);
        for (const Stretch& stretch : matcher_.Split(part, match)) {
          if (stretch.id < 0) continue;
          const std::string name = tokenizer_.TokenOf(stretch.id);
          if (std::find(options.content_tokens.begin(),
                        options.content_tokens.end(),
                        name) != options.content_tokens.end()) {
            continue;
          }
          if (count++ == 0) first = name;
        }
      }
      begin = end;
    }
    if (count > 0) {
      encoded->warnings.push_back(
          absl::StrCat("content spells control tokens ", count, " times, ",
                       internal::Quote(first, 60), " first: they are text"));
    }
  }

  JinjaTemplate template_;
  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::string, JsonValue>> special_;
  absl::flat_hash_set<int32_t> stops_;
  absl::flat_hash_set<int32_t> control_;
  internal::AddedTokenMatcher matcher_;  // of the control tokens
};

}  // namespace

namespace internal {

absl::StatusOr<std::unique_ptr<ChatEncoder>> NewTemplateEncoder(
    absl::string_view chat_template, const JsonValue& config,
    const std::string& where, const Tokenizer& tokenizer,
    absl::Span<const int32_t> stops) {
  auto parsed = JinjaTemplate::Parse(chat_template, where);
  if (!parsed.ok()) return parsed.status();
  auto encoder =
      std::make_unique<TemplateEncoder>(*std::move(parsed), tokenizer);
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token",
                          "pad_token", "cls_token", "mask_token"}) {
    const JsonValue* token = config.Find(key);
    if (token != nullptr && token->AsObject() != nullptr) {
      token = token->Find("content");
    }
    if (token != nullptr && token->AsString() != nullptr &&
        !token->AsString()->empty()) {
      encoder->AddSpecial(key, *token->AsString());
    }
  }
  for (const int32_t stop : stops) encoder->AddStop(stop);
  encoder->FindControlTokens();
  return encoder;
}

}  // namespace internal

absl::StatusOr<std::unique_ptr<ChatEncoder>> MakeTemplateEncoder(
    absl::string_view chat_template, absl::string_view config,
    const std::string& where, const Tokenizer& tokenizer) {
  JsonValue parsed;
  if (!config.empty()) {
    auto read = ParseJsonText(config);
    if (!read.ok()) return read.status();
    parsed = *std::move(read);
  }
  return internal::NewTemplateEncoder(chat_template, parsed, where, tokenizer,
                                      {});
}

}  // namespace espalier
