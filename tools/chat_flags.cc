#include "espalier/tools/chat_flags.h"

#include <chrono>

#include "CLI/CLI.hpp"

namespace espalier::tools {

void AddChatFlags(CLI::App* cmd, DataConfig* config) {
  config->now_seconds = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  cmd->add_option("--loss", config->loss,
                  "What is trained: answers, each chat's last one, or every "
                  "token, prompts too")
      ->check(CLI::IsMember({"assistant", "last", "all"}))
      ->capture_default_str();
  cmd->add_option("--layout", config->chat_layout, "Of the chats")
      ->check(CLI::IsMember({"auto", "template", "kimi-linear", "kimi-k3"}))
      ->capture_default_str();
  cmd->add_option("--thinking-effort", config->thinking_effort,
                  "Of K3's chats that name none")
      ->check(CLI::IsMember({"auto", "low", "medium", "high", "max", "none"}))
      ->capture_default_str();
  cmd->add_option("--content-token", config->content_tokens,
                  "An added token that assistant content may spell, such as "
                  "<think>; may stand several times");
}

}  // namespace espalier::tools
