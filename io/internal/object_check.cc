#include "espalier/io/internal/object_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/content_hash.h"

namespace espalier::internal {

namespace {

using Kind = ObjectChecksum::Kind;

constexpr int64_t kMaxParts = 10'000;  // of an S3 upload

struct Header {
  const char* name;
  Kind kind;
};
// Those that come in any order first.
constexpr Header kHeaders[] = {
    {"x-amz-checksum-crc64nvme", Kind::kCrc64Nvme},
    {"x-amz-checksum-sha256", Kind::kSha256},
    {"x-amz-checksum-sha1", Kind::kSha1},
    {"x-amz-checksum-crc32c", Kind::kCrc32c},
    {"x-amz-checksum-crc32", Kind::kCrc32},
};

// "VALUE" or "VALUE-PARTS".
bool SplitParts(absl::string_view text, absl::string_view* value,
                int64_t* num_parts) {
  const size_t dash = text.find('-');
  *value = text.substr(0, dash);
  *num_parts = 0;
  return dash == absl::string_view::npos ||
         (absl::SimpleAtoi(text.substr(dash + 1), num_parts) &&
          *num_parts > 0 && *num_parts <= kMaxParts);
}

// Whether an ETag is an MD5 at all: under other keys than the store's own it is
// not, nor in directory buckets.
bool IsMd5(absl::string_view bucket,
           const std::map<std::string, std::string>& headers) {
  if (absl::EndsWith(bucket, "--x-s3")) return false;
  for (const auto& [name, value] : headers) {
    if (!absl::StartsWith(name, "x-amz-server-side-encryption") &&
        !absl::StartsWith(name, "x-obs-server-side-encryption")) {
      continue;
    }
    if (!absl::EndsWith(name, "encryption") || value != "AES256") return false;
  }
  return true;
}

}  // namespace

ToldChecksum ChecksumFromHeaders(
    absl::string_view bucket,
    const std::map<std::string, std::string>& headers) {
  ToldChecksum told;
  absl::string_view text;
  for (const Header& header : kHeaders) {
    const auto found = headers.find(header.name);
    if (found == headers.end() ||
        !SplitParts(found->second, &text, &told.num_parts) ||
        !absl::Base64Unescape(text, &told.checksum.value) ||
        told.checksum.value.size() != DigestSize(header.kind)) {
      continue;
    }
    told.checksum.kind = header.kind;
    return told;
  }
  told = {};
  const auto etag = headers.find("etag");
  if (etag == headers.end() || !IsMd5(bucket, headers)) return told;
  const std::string quoted = etag->second;
  if (quoted.size() < 2 || quoted.front() != '"' || quoted.back() != '"' ||
      !SplitParts(absl::string_view(quoted).substr(1, quoted.size() - 2), &text,
                  &told.num_parts) ||
      text.size() != 2 * DigestSize(Kind::kMd5) ||
      !std::all_of(text.begin(), text.end(),
                   [](unsigned char c) { return absl::ascii_isxdigit(c); })) {
    return {};
  }
  told.checksum.kind = Kind::kMd5;
  told.checksum.value = absl::HexStringToBytes(text);
  return told;
}

ObjectCheck::ObjectCheck(const ObjectChecksum& checksum, int64_t object_bytes,
                         int64_t block_bytes)
    : checksum_(checksum),
      object_bytes_(object_bytes),
      block_bytes_(block_bytes) {
  if (checksum.kind == Kind::kNone) return;
  const int64_t part_bytes =
      checksum.part_bytes > 0 ? checksum.part_bytes : object_bytes;
  for (int64_t at = 0; at < object_bytes; at += part_bytes) {
    Part& part = parts_.emplace_back();
    part.begin = part.next = at;
    part.end = std::min(at + part_bytes, object_bytes);
  }
}

void ObjectCheck::TakePart(Part& part, int64_t begin,
                           absl::Span<const uint8_t> bytes, bool is_first) {
  if (!part.digest.empty()) return;
  const int64_t end =
      std::min(begin + static_cast<int64_t>(bytes.size()), part.end);
  const int64_t from = std::max(begin, part.begin);
  const auto span = [&](int64_t first) {
    return bytes.subspan(static_cast<size_t>(first - begin),
                         static_cast<size_t>(end - first));
  };
  if (IsCrc(checksum_.kind)) {
    if (!is_first) return;
    part.crc ^= ShiftCrc(checksum_.kind, CrcOf(checksum_.kind, span(from)),
                         part.end - end);
    part.next += end - from;
    if (part.next == part.end) {
      part.digest = CrcBytes(checksum_.kind, part.crc);
    }
  } else {
    if (part.next < from || part.next >= end) return;
    part.hash.Update(checksum_.kind, span(part.next));
    part.next = end;
    if (part.next == part.end) part.digest = part.hash.Finish();
  }
  if (!part.digest.empty()) ++num_parts_done_;
}

absl::Status ObjectCheck::Compare() {
  std::string got = parts_[0].digest;
  if (checksum_.part_bytes > 0) {
    std::string all;
    for (const Part& part : parts_) all += part.digest;
    got = DigestOf(checksum_.kind, all);
  }
  if (got == checksum_.value) {
    compared_ = true;
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "the bytes that came have checksum ", absl::BytesToHexString(got),
      ", the store has ", absl::BytesToHexString(checksum_.value)));
}

absl::Status ObjectCheck::Take(int64_t block, absl::Span<const uint8_t> bytes) {
  if (!status_.ok()) return status_;
  const uint64_t hash = ContentHash(absl::string_view(
      reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const auto [seen, is_first] = seen_.try_emplace(block, hash);
  if (seen->second != hash) {
    status_ = absl::DataLossError(
        absl::StrCat("two reads of the ", bytes.size(), " bytes at ",
                     block * block_bytes_, " gave different bytes"));
    return status_;
  }
  last_block_ = block;
  if (num_parts_done_ == parts_.size()) return absl::OkStatus();
  const int64_t begin = block * block_bytes_;
  const int64_t part_bytes = parts_[0].end;
  for (size_t i = static_cast<size_t>(begin / part_bytes);
       i < parts_.size() &&
       parts_[i].begin < begin + static_cast<int64_t>(bytes.size());
       ++i) {
    TakePart(parts_[i], begin, bytes, is_first);
  }
  if (num_parts_done_ == parts_.size()) status_ = Compare();
  return status_;
}

int64_t ObjectCheck::Wanted() const {
  if (last_block_ < 0 || parts_.empty() || IsCrc(checksum_.kind)) return -1;
  const int64_t begin = last_block_ * block_bytes_;
  const int64_t end = std::min(begin + block_bytes_, object_bytes_);
  for (size_t i = static_cast<size_t>(begin / parts_[0].end);
       i < parts_.size() && parts_[i].begin < end; ++i) {
    if (!parts_[i].digest.empty()) continue;
    const int64_t next = parts_[i].next / block_bytes_;
    if (next != last_block_ && seen_.contains(next)) {
      return next;
    }
  }
  return -1;
}

}  // namespace espalier::internal
