#include "espalier/tools/chat_flags.h"

#include <chrono>

#include "CLI/CLI.hpp"

namespace espalier::tools {

void ChatFlags::AddFlags(CLI::App* cmd) {
  cmd->add_option("--loss", loss_,
                  "What is trained: answers, each chat's last one, or every "
                  "token, prompts too")
      ->check(CLI::IsMember({"assistant", "last", "all"}))
      ->capture_default_str();
  cmd->add_option("--layout", layout_, "Of the chats")
      ->check(CLI::IsMember({"auto", "template", "kimi-linear", "kimi-k3"}))
      ->capture_default_str();
  cmd->add_option("--content-token", content_tokens_,
                  "An added token that assistant content may spell, such as "
                  "<think>; may stand several times");
}

ChatFormat ChatFlags::format() const {
  return layout_ == "template"      ? ChatFormat::kTemplate
         : layout_ == "kimi-linear" ? ChatFormat::kKimiLinear
         : layout_ == "kimi-k3"     ? ChatFormat::kKimiK3
                                    : ChatFormat::kAuto;
}

ChatOptions ChatFlags::Options() const {
  ChatOptions options;
  options.loss = loss_ == "all"    ? ChatLoss::kAll
                 : loss_ == "last" ? ChatLoss::kLastAssistant
                                   : ChatLoss::kAssistant;
  options.content_tokens = content_tokens_;
  options.now_seconds = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  return options;
}

}  // namespace espalier::tools
