#ifndef ESPALIER_IO_RECORD_FILE_H_
#define ESPALIER_IO_RECORD_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/folder.h"

namespace espalier {

enum class RecordFormat : uint8_t {
  kAuto,       // by the name: .jsonl and .ndjson are kJsonl; .json is
               // kJsonArray when its first byte is "[", else kJsonl; the rest
               // is kPlain
  kPlain,      // UTF-8 text; a record is a document
  kJsonl,      // a record is a line that is not blank
  kJsonArray,  // one array; a record is an element
};

// What separates the documents of plain text.
enum class TextBoundary : uint8_t {
  kBlankLine,  // lines that are empty or white space
  kSeparator,  // lines equal to the separator
  kNone,       // the file is one document
};

struct RecordFileOptions {
  RecordFormat format = RecordFormat::kAuto;
  TextBoundary boundary = TextBoundary::kBlankLine;
  std::string separator;  // kSeparator; not empty
  // A longer record fails when it is read; the others are not touched by it.
  int64_t max_record_bytes = int64_t{64} << 20;
};

struct Record {
  std::string bytes;  // as in the file, "\r\n" of plain text as "\n"
  int64_t line = 0;   // where it begins, from 1
};

// The records of a data file by number, without the file in memory: one pass
// notes where every sixteenth begins. Lines end at "\n" alone, a "\r" before it
// and a byte order mark at the start are not data. Reading is thread-safe.
class RecordFile {
 public:
  // Fails NOT_FOUND and INVALID_ARGUMENT with "PATH:LINE: " in front: an array
  // that does not close, text behind it, an empty separator.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Open(
      const std::string& path, const RecordFileOptions& options);
  // A file of a folder that need not be local: the pass at the start reads all
  // of it, front to back.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Open(
      const Folder& folder, const std::string& name,
      const RecordFileOptions& options);
  ~RecordFile();

  const std::string& path() const;
  RecordFormat format() const;  // never kAuto
  bool is_json() const { return format() != RecordFormat::kPlain; }
  int64_t size() const;
  int64_t num_bytes() const;

  // 0 <= index < size(). Fails DATA_LOSS when the file changed since Open,
  // INVALID_ARGUMENT for a record above max_record_bytes.
  absl::StatusOr<Record> Read(int64_t index) const;

 private:
  class Impl;
  explicit RecordFile(std::unique_ptr<Impl> impl);
  static absl::StatusOr<std::unique_ptr<RecordFile>> OpenFile(
      absl::StatusOr<internal::ReadableFile> file, const std::string& path,
      const RecordFileOptions& options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_RECORD_FILE_H_
