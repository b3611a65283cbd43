#include "espalier/io/internal/record_scanner.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace espalier::internal {

namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' ||
         c == '\v';
}

}  // namespace

ByteStream::ByteStream(const ReadableFile& file, int64_t offset,
                       int64_t buffer_bytes)
    : file_(file),
      offset_(offset),
      buffer_(static_cast<size_t>(std::clamp<int64_t>(
          file.size() - offset, 1, std::max<int64_t>(buffer_bytes, 1)))) {}

absl::StatusOr<absl::string_view> ByteStream::Peek() {
  if (at_ == end_) {
    offset_ += static_cast<int64_t>(end_);
    at_ = 0;
    end_ = static_cast<size_t>(std::min<int64_t>(
        file_.size() - offset_, static_cast<int64_t>(buffer_.size())));
    absl::Status read =
        file_.ReadAt(offset_, absl::MakeSpan(buffer_).subspan(0, end_));
    if (!read.ok()) return read;
  }
  return absl::string_view(reinterpret_cast<const char*>(buffer_.data()) + at_,
                           end_ - at_);
}

RecordScanner::RecordScanner(const ReadableFile& file, RecordFormat format,
                             const RecordFileOptions& options, int64_t offset,
                             int64_t line, int64_t buffer_bytes)
    : file_(file),
      format_(format),
      boundary_(options.boundary),
      separator_line_(options.separator + "\r"),
      stream_(file, offset, buffer_bytes),
      line_(line),
      at_start_(offset == 0) {}

absl::Status RecordScanner::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_.path(), ":", line_, ": ", what));
}

absl::Status RecordScanner::Start() {
  at_start_ = false;
  const auto head = stream_.Peek();
  if (!head.ok()) return head.status();
  if (absl::StartsWith(*head, kByteOrderMark)) {
    stream_.Skip(kByteOrderMark.size());
  }
  if (format_ != RecordFormat::kJsonArray) return absl::OkStatus();
  const auto open = SkipSpace();
  if (!open.ok()) return open.status();
  if (*open != '[') return Error("expected \"[\", the start of a JSON array");
  stream_.Skip(1);
  return absl::OkStatus();
}

absl::StatusOr<bool> RecordScanner::Next(RecordSpan* span) {
  if (at_start_) {
    if (absl::Status status = Start(); !status.ok()) return status;
  }
  switch (format_) {
    case RecordFormat::kJsonl:
      return NextJsonLine(span);
    case RecordFormat::kJsonArray:
      return NextElement(span);
    default:
      return NextDocument(span);
  }
}

absl::StatusOr<bool> RecordScanner::NextLine(Line* line) {
  *line = Line();
  line->begin = stream_.offset();
  size_t matched = 0;  // characters equal to separator_ and its "\r"
  bool equal = true, ended = false;
  char last = 0;
  while (!ended) {
    const auto ahead = stream_.Peek();
    if (!ahead.ok()) return ahead.status();
    if (ahead->empty() && stream_.offset() == line->begin) return false;
    const size_t newline = ahead->find('\n');
    ended = ahead->empty() || newline != absl::string_view::npos;
    const absl::string_view part = ahead->substr(0, newline);
    if (!part.empty()) last = part.back();
    line->blank = line->blank && std::all_of(part.begin(), part.end(), IsSpace);
    equal =
        equal && absl::StartsWith(
                     absl::string_view(separator_line_).substr(matched), part);
    matched += equal ? part.size() : 0;
    stream_.Skip(part.size());
    line->end = stream_.offset();
    if (newline != absl::string_view::npos) stream_.Skip(1);
  }
  if (last == '\r') --line->end;
  line->separator = boundary_ == TextBoundary::kSeparator && equal &&
                    matched + 1 >= separator_line_.size();
  ++line_;
  return true;
}

absl::StatusOr<bool> RecordScanner::NextJsonLine(RecordSpan* span) {
  Line line;
  while (true) {
    auto more = NextLine(&line);
    if (!more.ok() || !*more) return more;
    if (line.blank) continue;
    *span = {line.begin, line.end, line_ - 1};
    return true;
  }
}

absl::StatusOr<bool> RecordScanner::NextDocument(RecordSpan* span) {
  bool any = false;
  Line line;
  while (true) {
    const auto more = NextLine(&line);
    if (!more.ok()) return more.status();
    if (!*more) return any;
    const bool boundary =
        (boundary_ == TextBoundary::kBlankLine && line.blank) || line.separator;
    if (boundary && any) return true;
    if (boundary) continue;
    if (!any) {
      span->begin = line.begin;
      span->line = line_ - 1;
    }
    span->end = line.end;
    any = true;
  }
}

absl::StatusOr<int> RecordScanner::SkipSpace() {
  while (true) {
    const auto ahead = stream_.Peek();
    if (!ahead.ok()) return ahead.status();
    if (ahead->empty()) return -1;
    size_t i = 0;
    while (i < ahead->size() && IsSpace((*ahead)[i])) {
      if ((*ahead)[i] == '\n') ++line_;
      ++i;
    }
    const bool found = i < ahead->size();
    const int c = found ? static_cast<unsigned char>((*ahead)[i]) : 0;
    stream_.Skip(i);
    if (found) return c;
  }
}

// Brackets, braces and strings are enough to know where a value ends.
absl::Status RecordScanner::SkipValue() {
  int64_t depth = 0;
  bool in_string = false, escaped = false;
  while (true) {
    const auto ahead = stream_.Peek();
    if (!ahead.ok()) return ahead.status();
    if (ahead->empty()) return Error("the JSON array does not close");
    for (size_t i = 0; i < ahead->size(); ++i) {
      const char c = (*ahead)[i];
      if (c == '\n') ++line_;
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
        }
        continue;
      }
      const bool closes = c == ']' || c == '}';
      if (depth == 0 && (c == ',' || closes)) {
        stream_.Skip(i);
        return absl::OkStatus();
      }
      if (c == '"') in_string = true;
      if (c == '[' || c == '{') ++depth;
      if (closes) --depth;
    }
    stream_.Skip(ahead->size());
  }
}

absl::StatusOr<bool> RecordScanner::NextElement(RecordSpan* span) {
  if (closed_) return false;
  auto next = SkipSpace();
  if (!next.ok()) return next.status();
  if (*next == ',' && !first_) {
    stream_.Skip(1);
    next = SkipSpace();
    if (!next.ok()) return next.status();
  } else if (*next == ']') {
    stream_.Skip(1);
    closed_ = true;
    const auto behind = SkipSpace();
    if (!behind.ok()) return behind.status();
    if (*behind != -1) return Error("text behind the JSON array");
    return false;
  }
  if (*next == -1) return Error("the JSON array does not close");
  first_ = false;
  span->begin = stream_.offset();
  span->line = line_;
  if (absl::Status status = SkipValue(); !status.ok()) return status;
  span->end = stream_.offset();
  if (span->begin == span->end)
    return Error("an element of the array is missing");
  return true;
}

}  // namespace espalier::internal
