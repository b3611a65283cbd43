#include "espalier/io/internal/digest.h"

#include <openssl/evp.h>

#include "espalier/io/internal/crc.h"

namespace espalier::internal {

namespace {

using Kind = ObjectChecksum::Kind;

const EVP_MD* AlgorithmOf(Kind kind) {
  switch (kind) {
    case Kind::kMd5:
      return EVP_md5();
    case Kind::kSha1:
      return EVP_sha1();
    default:
      return EVP_sha256();
  }
}

CrcKind CrcKindOf(Kind kind) {
  switch (kind) {
    case Kind::kCrc32:
      return CrcKind::kCrc32;
    case Kind::kCrc32c:
      return CrcKind::kCrc32c;
    default:
      return CrcKind::kCrc64Nvme;
  }
}

}  // namespace

void DigestContext::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

void DigestContext::Update(Kind kind, absl::Span<const uint8_t> bytes) {
  if (context_ == nullptr) {
    context_.reset(EVP_MD_CTX_new());
    EVP_DigestInit_ex(context_.get(), AlgorithmOf(kind), nullptr);
  }
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string DigestContext::Finish() {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  if (context_ != nullptr) {
    EVP_DigestFinal_ex(context_.get(),
                       reinterpret_cast<uint8_t*>(digest.data()), &size);
    context_.reset();
  }
  digest.resize(size);
  return digest;
}

std::string DigestOf(Kind kind, absl::string_view bytes) {
  const auto span = absl::MakeConstSpan(
      reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (IsCrc(kind)) return CrcBytes(kind, CrcOf(kind, span));
  DigestContext context;
  context.Update(kind, span);
  return context.Finish();
}

bool IsCrc(Kind kind) {
  return kind == Kind::kCrc32 || kind == Kind::kCrc32c ||
         kind == Kind::kCrc64Nvme;
}

uint64_t CrcOf(Kind kind, absl::Span<const uint8_t> bytes) {
  return CrcOf(CrcKindOf(kind), bytes);
}

uint64_t ShiftCrc(Kind kind, uint64_t crc, int64_t num_bytes) {
  return ShiftCrc(CrcKindOf(kind), crc, num_bytes);
}

std::string CrcBytes(Kind kind, uint64_t crc) {
  std::string bytes(DigestSize(kind), '\0');
  for (size_t i = bytes.size(); i > 0; --i, crc >>= 8) {
    bytes[i - 1] = static_cast<char>(crc & 0xff);
  }
  return bytes;
}

size_t DigestSize(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return 0;
    case Kind::kMd5:
      return 16;
    case Kind::kSha1:
      return 20;
    case Kind::kSha256:
      return 32;
    case Kind::kCrc32:
    case Kind::kCrc32c:
      return 4;
    case Kind::kCrc64Nvme:
      return 8;
  }
  return 0;
}

}  // namespace espalier::internal
