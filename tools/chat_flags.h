#ifndef ESPALIER_TOOLS_CHAT_FLAGS_H_
#define ESPALIER_TOOLS_CHAT_FLAGS_H_

#include "espalier/train/data_config.h"

namespace CLI {
class App;
}

namespace espalier::tools {

// How a command line wants chats encoded: --loss, --layout, --thinking-effort,
// --content-token. Templates that print the time see that of this call.
// `config` outlives `cmd`.
void AddChatFlags(CLI::App* cmd, DataConfig* config);

}  // namespace espalier::tools

#endif  // ESPALIER_TOOLS_CHAT_FLAGS_H_
