#ifndef ESPALIER_IO_EXAMPLE_H_
#define ESPALIER_IO_EXAMPLE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/json.h"

namespace espalier {

// What a record of a data file asks the model to learn, whatever the file's
// own spelling.
struct Example {
  enum class Kind : uint8_t {
    kText,              // `text`
    kPromptCompletion,  // `prompt`, `completion`
    kChat,              // `messages`, `tools`
  };

  Kind kind = Kind::kText;
  std::string text;
  std::string prompt;
  std::string completion;
  // An array of {"role", "content", ...} as chat templates take them.
  JsonValue messages;
  JsonValue tools;  // an array, or null
  // Of thinking_effort, tool_choice and response_format those that a chat has;
  // an object, or null.
  JsonValue request;
};

// Names of the members that records of an own shape keep prompt and completion
// in, such as "question" and "answer"; both or none.
struct ExampleFields {
  std::string prompt;
  std::string completion;
};

// Reads one JSON record. Its shape is told by its members, in this order:
//   the ExampleFields                    prompt and completion
//   messages (, tools ...)               chat
//   conversations (, system, tools)      chat: from human/user, gpt/assistant,
//                                        system, function_call, observation,
//                                        tool; each with a value
//   prompt, completion                   strings, or arrays of messages
//   instruction (, input), output (, system, history)
//                                        chat: user (instruction, a blank line,
//                                        input), assistant
//   text                                 text
// Other members are passed over, but for those of Example::request. A tools
// member may be JSON text. Fails
// INVALID_ARGUMENT with `where` in front: no known shape (naming the members it
// has), a member of a wrong kind, an unknown role, an empty conversation.
absl::StatusOr<Example> ParseExample(absl::string_view record,
                                     const ExampleFields& fields,
                                     const std::string& where);

}  // namespace espalier

#endif  // ESPALIER_IO_EXAMPLE_H_
