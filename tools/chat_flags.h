#ifndef ESPALIER_TOOLS_CHAT_FLAGS_H_
#define ESPALIER_TOOLS_CHAT_FLAGS_H_

#include <string>
#include <vector>

#include "espalier/io/chat.h"

namespace CLI {
class App;
}

namespace espalier::tools {

// How a command line wants chats encoded.
class ChatFlags {
 public:
  // --loss, --layout, --content-token
  void AddFlags(CLI::App* cmd);

  ChatFormat format() const;
  // Templates that print the time see that of this call.
  ChatOptions Options() const;

 private:
  std::string loss_ = "assistant";
  std::string layout_ = "auto";
  std::vector<std::string> content_tokens_;
};

}  // namespace espalier::tools

#endif  // ESPALIER_TOOLS_CHAT_FLAGS_H_
