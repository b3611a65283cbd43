#ifndef ESPALIER_IO_CHAT_SAMPLE_H_
#define ESPALIER_IO_CHAT_SAMPLE_H_

#include <memory>

#include "absl/status/statusor.h"

#include "espalier/io/chat.h"
#include "espalier/io/sample.h"

namespace espalier {

// Of an example that is a chat.
Chat ToChat(const Example& example);

// Chat examples as `chat` lays them out, all others as `plain` does. Where
// there is no layout, or the folder lacks what it needs (FAILED_PRECONDITION of
// ChatEncoder), chat examples fail NOT_FOUND with its message: no record is at
// fault, and no number either. Control tokens have the role kControl, other
// tokens that of their message. `tokenizer` outlives the encoder.
std::unique_ptr<SampleEncoder> MakeChatSampleEncoder(
    absl::StatusOr<std::unique_ptr<ChatEncoder>> chat,
    std::unique_ptr<SampleEncoder> plain, const Tokenizer& tokenizer,
    const ChatOptions& options);

}  // namespace espalier

#endif  // ESPALIER_IO_CHAT_SAMPLE_H_
