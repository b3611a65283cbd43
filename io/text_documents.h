#ifndef ESPALIER_IO_TEXT_DOCUMENTS_H_
#define ESPALIER_IO_TEXT_DOCUMENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier {

// The documents of a file. Names ending in ".jsonl" or ".json" hold one JSON
// object a line with a string "text"; other files are plain text whose
// documents are separated by blank lines. Lines end at "\n" alone (a "\r"
// before it goes too); a byte-order mark at the start is skipped; blank lines
// of a JSON file too. Fails: NOT_FOUND; INVALID_ARGUMENT with file and line for
// malformed JSON, a missing "text" and bytes that are not UTF-8; and when
// there is no document at all.
absl::StatusOr<std::vector<std::string>> ReadTextDocuments(
    const std::string& path);

}  // namespace espalier

#endif  // ESPALIER_IO_TEXT_DOCUMENTS_H_
