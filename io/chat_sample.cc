#include "espalier/io/chat_sample.h"

#include <string>
#include <utility>
#include <vector>

namespace espalier {

namespace {

TokenRole RoleOf(const std::string& role) {
  if (role == "assistant") return TokenRole::kAssistant;
  if (role == "user") return TokenRole::kUser;
  if (role == "system" || role == "developer") return TokenRole::kSystem;
  return TokenRole::kTool;
}

// What the model's folder lacks; no record is at fault.
absl::Status OfFolder(const absl::Status& status) {
  return absl::NotFoundError(status.message());
}

class ChatSampleEncoder final : public SampleEncoder {
 public:
  ChatSampleEncoder(absl::StatusOr<std::unique_ptr<ChatEncoder>> chat,
                    std::unique_ptr<SampleEncoder> plain,
                    const Tokenizer& tokenizer, const ChatOptions& options)
      : chat_(std::move(chat)),
        plain_(std::move(plain)),
        tokenizer_(tokenizer),
        options_(options) {}

  absl::StatusOr<EncodedSample> Encode(const Example& example) const override {
    if (example.kind != Example::Kind::kChat) return plain_->Encode(example);
    if (!chat_.ok()) return OfFolder(chat_.status());
    auto encoded = (*chat_)->Encode(ToChat(example), options_);
    if (absl::IsFailedPrecondition(encoded.status())) {
      return OfFolder(encoded.status());
    }
    if (!encoded.ok()) return encoded.status();
    EncodedSample sample;
    sample.ids = std::move(encoded->ids);
    sample.weights = std::move(encoded->weights);
    sample.roles.reserve(sample.ids.size());
    for (size_t i = 0; i < sample.ids.size(); ++i) {
      const int32_t message = encoded->messages[i];
      sample.roles.push_back(
          message < 0 || tokenizer_.IsSpecial(sample.ids[i])
              ? TokenRole::kControl
              : RoleOf(encoded->roles[static_cast<size_t>(message)]));
    }
    return sample;
  }

 private:
  const absl::StatusOr<std::unique_ptr<ChatEncoder>> chat_;
  const std::unique_ptr<SampleEncoder> plain_;
  const Tokenizer& tokenizer_;
  const ChatOptions options_;
};

}  // namespace

Chat ToChat(const Example& example) {
  return {example.messages, example.tools, example.request};
}

std::unique_ptr<SampleEncoder> MakeChatSampleEncoder(
    absl::StatusOr<std::unique_ptr<ChatEncoder>> chat,
    std::unique_ptr<SampleEncoder> plain, const Tokenizer& tokenizer,
    const ChatOptions& options) {
  return std::make_unique<ChatSampleEncoder>(std::move(chat), std::move(plain),
                                             tokenizer, options);
}

}  // namespace espalier
