#ifndef ESPALIER_IO_INTERNAL_RECORD_SCANNER_H_
#define ESPALIER_IO_INTERNAL_RECORD_SCANNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/record_file.h"

namespace espalier::internal {

// A file read front to back through one buffer.
class ByteStream {
 public:
  // `file` outlives the stream.
  ByteStream(const ReadableFile& file, int64_t offset, int64_t buffer_bytes);

  int64_t offset() const { return offset_ + static_cast<int64_t>(at_); }
  // What lies ahead, at least one byte unless the file is at its end.
  absl::StatusOr<absl::string_view> Peek();
  void Skip(size_t bytes) { at_ += bytes; }

 private:
  const ReadableFile& file_;
  int64_t offset_;  // of buffer_[0]
  std::vector<uint8_t> buffer_;
  size_t at_ = 0;
  size_t end_ = 0;
};

// Where a record lies.
struct RecordSpan {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t line = 0;
};

// Finds the records of a file one after another, in memory that does not
// depend on their length. May begin at the start of any record.
class RecordScanner {
 public:
  // `format` is not kAuto. At offset 0 the byte order mark and the "[" of an
  // array are passed over.
  RecordScanner(const ReadableFile& file, RecordFormat format,
                const RecordFileOptions& options, int64_t offset, int64_t line,
                int64_t buffer_bytes);

  // False behind the last record.
  absl::StatusOr<bool> Next(RecordSpan* span);

 private:
  struct Line {
    int64_t begin = 0;
    int64_t end = 0;    // without "\n" and the "\r" before it
    bool blank = true;  // white space only
    bool separator = false;
  };

  absl::StatusOr<bool> NextLine(Line* line);
  absl::StatusOr<bool> NextJsonLine(RecordSpan* span);
  absl::StatusOr<bool> NextDocument(RecordSpan* span);
  absl::StatusOr<bool> NextElement(RecordSpan* span);
  // Passes over white space; the byte behind it, or -1 at the end.
  absl::StatusOr<int> SkipSpace();
  absl::Status SkipValue();
  absl::Status Start();
  absl::Status Error(absl::string_view what) const;

  const ReadableFile& file_;
  const RecordFormat format_;
  const TextBoundary boundary_;
  const std::string separator_line_;  // with "\r"
  ByteStream stream_;
  int64_t line_;  // of the next byte
  bool at_start_;
  bool closed_ = false;  // the array's "]" was read
  // Whether the element that comes next stands behind another.
  bool first_ = true;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_RECORD_SCANNER_H_
