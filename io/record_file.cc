#include "espalier/io/record_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/record_scanner.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace {

constexpr int64_t kIndexStride = 16;
constexpr int64_t kScanBufferBytes = int64_t{1} << 20;
constexpr int64_t kReadBufferBytes = int64_t{64} << 10;

struct Mark {
  int64_t offset = 0;
  int64_t line = 0;
};

absl::StatusOr<RecordFormat> DetectFormat(const internal::ReadableFile& file) {
  const std::string& path = file.path();
  if (absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".ndjson")) {
    return RecordFormat::kJsonl;
  }
  if (!absl::EndsWith(path, ".json")) return RecordFormat::kPlain;
  internal::ByteStream stream(file, 0, kReadBufferBytes);
  const auto head = stream.Peek();
  if (!head.ok()) return head.status();
  const size_t at = head->find_first_not_of("\xEF\xBB\xBF \t\r\n");
  return at != absl::string_view::npos && (*head)[at] == '['
             ? RecordFormat::kJsonArray
             : RecordFormat::kJsonl;
}

// "\r\n" as "\n", in place.
void DropReturns(std::string& text) {
  size_t kept = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[kept++] = text[i];
  }
  text.resize(kept);
}

}  // namespace

class RecordFile::Impl {
 public:
  Impl(internal::ReadableFile file, RecordFormat format,
       const RecordFileOptions& options)
      : file(std::move(file)), format(format), options(options) {}

  absl::Status Index() {
    internal::RecordScanner scanner(file, format, options, 0, 1,
                                    kScanBufferBytes);
    internal::RecordSpan span;
    while (true) {
      const auto more = scanner.Next(&span);
      if (!more.ok()) return more.status();
      if (!*more) return absl::OkStatus();
      if (size++ % kIndexStride == 0) marks.push_back({span.begin, span.line});
    }
  }

  absl::StatusOr<internal::RecordSpan> Find(int64_t index) const {
    const Mark& mark = marks[static_cast<size_t>(index / kIndexStride)];
    internal::RecordScanner scanner(file, format, options, mark.offset,
                                    mark.line, kReadBufferBytes);
    internal::RecordSpan span;
    for (int64_t i = index % kIndexStride; i >= 0; --i) {
      const auto more = scanner.Next(&span);
      if (!more.ok()) return more.status();
      if (!*more) return Changed();
    }
    return span;
  }

  absl::Status Changed() const {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": has changed since it was opened"));
  }

  internal::ReadableFile file;
  const RecordFormat format;
  const RecordFileOptions options;
  std::vector<Mark> marks;
  int64_t size = 0;
};

RecordFile::RecordFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecordFile::~RecordFile() = default;
const std::string& RecordFile::path() const { return impl_->file.path(); }
RecordFormat RecordFile::format() const { return impl_->format; }
int64_t RecordFile::size() const { return impl_->size; }
int64_t RecordFile::num_bytes() const { return impl_->file.size(); }

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(
    const std::string& path, const RecordFileOptions& options) {
  return OpenFile(internal::ReadableFile::Open(path), path, options);
}

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(
    const Folder& folder, const std::string& name,
    const RecordFileOptions& options) {
  return OpenFile(folder.Open(name), folder.PathOf(name), options);
}

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::OpenFile(
    absl::StatusOr<internal::ReadableFile> file, const std::string& path,
    const RecordFileOptions& options) {
  if (options.boundary == TextBoundary::kSeparator &&
      options.separator.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the document separator is empty"));
  }
  if (!file.ok()) return file.status();
  RecordFormat format = options.format;
  if (format == RecordFormat::kAuto) {
    const auto detected = DetectFormat(*file);
    if (!detected.ok()) return detected.status();
    format = *detected;
  }
  auto impl = std::make_unique<Impl>(*std::move(file), format, options);
  if (absl::Status status = impl->Index(); !status.ok()) return status;
  return std::unique_ptr<RecordFile>(new RecordFile(std::move(impl)));
}

absl::StatusOr<Record> RecordFile::Read(int64_t index) const {
  ESPALIER_CHECK(index >= 0 && index < size(), "record ", index, " of ",
                 size());
  const auto identity = impl_->file.IdentityNow();
  if (!identity.ok()) return identity.status();
  if (!(*identity == impl_->file.identity())) return impl_->Changed();
  const auto span = impl_->Find(index);
  if (!span.ok()) return span.status();
  const int64_t bytes = span->end - span->begin;
  if (bytes > impl_->options.max_record_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path(), ":", span->line, ": a record of ", bytes,
        " bytes, expected at most ", impl_->options.max_record_bytes));
  }
  Record record;
  record.line = span->line;
  record.bytes.resize(static_cast<size_t>(bytes));
  absl::Status status = impl_->file.ReadAt(
      span->begin,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(record.bytes.data()),
                     record.bytes.size()));
  if (!status.ok()) return status;
  if (!is_json()) DropReturns(record.bytes);
  return record;
}

}  // namespace espalier
