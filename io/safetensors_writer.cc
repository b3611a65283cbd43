#include "espalier/io/safetensors_writer.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/json_text.h"
#include "espalier/io/internal/text.h"
#include "espalier/runtime/guard.h"

namespace espalier {

namespace {

constexpr int64_t kLengthBytes = 8;
constexpr size_t kHeaderAlignment = 8;

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::Status Bad(const std::string& name, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", internal::Quote(name), ": ", what));
}

// Bytes of the tensor's data.
absl::StatusOr<int64_t> SizeOfSpec(const TensorSpec& spec) {
  int64_t bits = BitsOf(spec.dtype);
  for (const int64_t extent : spec.shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) {
      return Bad(spec.name,
                 absl::StrCat("shape [", absl::StrJoin(spec.shape, ", "),
                              "] is negative or too large"));
    }
  }
  return (bits + 7) / 8;
}

// The tensors in the order of their data, with their places.
absl::StatusOr<std::vector<SafetensorsEntry>> Plan(
    const std::vector<TensorSpec>& tensors) {
  std::vector<const TensorSpec*> order;
  order.reserve(tensors.size());
  for (const TensorSpec& spec : tensors) order.push_back(&spec);
  std::sort(
      order.begin(), order.end(), [](const TensorSpec* a, const TensorSpec* b) {
        return a->dtype != b->dtype ? a->dtype > b->dtype : a->name < b->name;
      });
  std::vector<SafetensorsEntry> entries;
  entries.reserve(order.size());
  int64_t position = 0;
  for (const TensorSpec* spec : order) {
    if (spec->name == "__metadata__") return Bad(spec->name, "reserved name");
    const absl::StatusOr<int64_t> bytes = SizeOfSpec(*spec);
    if (!bytes.ok()) return bytes.status();
    SafetensorsEntry entry;
    entry.name = spec->name;
    entry.dtype = spec->dtype;
    entry.shape.assign(spec->shape.begin(), spec->shape.end());
    entry.begin = position;
    if (__builtin_add_overflow(position, *bytes, &position)) {
      return Bad(spec->name, "the file grows too large");
    }
    entry.end = position;
    entries.push_back(std::move(entry));
  }
  return entries;
}

// The length field and the JSON, padded with spaces.
absl::StatusOr<std::string> HeaderBytes(
    const std::vector<SafetensorsEntry>& entries,
    const std::map<std::string, std::string>& metadata) {
  std::string text(static_cast<size_t>(kLengthBytes), '\0');
  const auto add = [&](absl::string_view string, absl::string_view after) {
    absl::Status status = internal::AppendJsonString(string, &text);
    absl::StrAppend(&text, after);
    return status;
  };
  absl::string_view separator = "{";
  if (!metadata.empty()) {
    text += "{\"__metadata__\":";
    for (const auto& [key, value] : metadata) {
      absl::StrAppend(&text, separator);
      if (absl::Status status = add(key, ":"); !status.ok()) return status;
      if (absl::Status status = add(value, ""); !status.ok()) return status;
      separator = ",";
    }
    text += "}";
  }
  for (const SafetensorsEntry& entry : entries) {
    absl::StrAppend(&text, separator);
    separator = ",";
    if (absl::Status status = add(entry.name, ":"); !status.ok()) {
      return status;
    }
    absl::StrAppend(&text, "{\"dtype\":\"", ToString(entry.dtype),
                    "\",\"shape\":[", absl::StrJoin(entry.shape, ","),
                    "],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  if (separator == "{") text += "{";
  text += "}";
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment *
                  kHeaderAlignment,
              ' ');
  const uint64_t length = text.size() - static_cast<size_t>(kLengthBytes);
  for (size_t i = 0; i < static_cast<size_t>(kLengthBytes); ++i) {
    text[i] = static_cast<char>(static_cast<uint8_t>(length >> (8 * i)));
  }
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(AtomicFile file, SafetensorsHeader header,
                                     int64_t data_start)
    : file_(std::move(file)),
      header_(std::move(header)),
      data_start_(data_start),
      written_(header_.entries.size(), 0) {}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata) {
  const absl::StatusOr<std::vector<SafetensorsEntry>> entries = Plan(tensors);
  if (!entries.ok()) return Named(path, entries.status());
  const absl::StatusOr<std::string> bytes = HeaderBytes(*entries, metadata);
  if (!bytes.ok()) return Named(path, bytes.status());
  const int64_t data_start = static_cast<int64_t>(bytes->size());
  const int64_t data_bytes = entries->empty() ? 0 : entries->back().end;
  if (data_start - kLengthBytes > kMaxSafetensorsHeaderBytes ||
      data_bytes > std::numeric_limits<int64_t>::max() - data_start) {
    return Named(path, absl::InvalidArgumentError(
                           "the header is above 100 MB, or the file is too "
                           "large"));
  }
  // What our own reader refuses is not written.
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(
      absl::string_view(*bytes).substr(static_cast<size_t>(kLengthBytes)),
      data_bytes);
  if (!header.ok()) return Named(path, header.status());
  absl::StatusOr<AtomicFile> file =
      AtomicFile::Create(path, data_start + data_bytes);
  if (!file.ok()) return file.status();
  absl::Status status = file->WriteAt(
      0, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes->data()),
                             bytes->size()));
  if (!status.ok()) return status;
  return SafetensorsWriter(*std::move(file), *std::move(header), data_start);
}

absl::Status SafetensorsWriter::Append(absl::string_view name,
                                       absl::Span<const uint8_t> bytes) {
  const SafetensorsEntry* entry = header_.Find(name);
  if (entry == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(file_.path(), ": no tensor ", internal::Quote(name)));
  }
  int64_t& written =
      written_[static_cast<size_t>(entry - header_.entries.data())];
  const int64_t count = static_cast<int64_t>(bytes.size());
  if (count > entry->num_bytes() - written) {
    return Named(
        file_.path(),
        Bad(entry->name,
            absl::StrCat(written + count, " bytes for ", Describe(*entry),
                         ", which takes ", entry->num_bytes())));
  }
  absl::Status status =
      file_.WriteAt(data_start_ + entry->begin + written, bytes);
  if (status.ok()) written += count;
  return status;
}

absl::Status SafetensorsWriter::Write(absl::string_view name,
                                      const Tensor& tensor) {
  const SafetensorsEntry* entry = header_.Find(name);
  if (entry != nullptr &&
      (entry->dtype != ToSafetensors(tensor.dtype()) ||
       absl::MakeConstSpan(entry->shape) != tensor.shape().dims())) {
    return Named(
        file_.path(),
        Bad(entry->name, absl::StrCat("is ", ToString(tensor), ", promised as ",
                                      Describe(*entry))));
  }
  absl::Status result;
  absl::Status status = internal::Guard([&] {
    const Tensor host =
        tensor.device().host_addressable() && tensor.is_contiguous()
            ? tensor
            : tensor.ToHost();
    result = Append(name, absl::MakeConstSpan(
                              static_cast<const uint8_t*>(host.view().pointer),
                              static_cast<size_t>(host.num_bytes())));
  });
  return status.ok() ? result : Named(file_.path(), status);
}

absl::Status SafetensorsWriter::Finish() {
  for (size_t i = 0; i < written_.size(); ++i) {
    const SafetensorsEntry& entry = header_.entries[i];
    if (written_[i] != entry.num_bytes()) {
      return absl::FailedPreconditionError(absl::StrCat(
          file_.path(), ": tensor ", internal::Quote(entry.name), ": ",
          written_[i], " of ", entry.num_bytes(), " bytes were written"));
    }
  }
  return file_.Commit();
}

absl::Status WriteSafetensors(
    const std::string& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    if (!named.tensor) return Named(path, Bad(named.name, "is absent"));
    const absl::Span<const int64_t> dims = named.tensor.shape().dims();
    specs.push_back({named.name, ToSafetensors(named.tensor.dtype()),
                     std::vector<int64_t>(dims.begin(), dims.end())});
  }
  absl::StatusOr<SafetensorsWriter> writer =
      SafetensorsWriter::Create(path, specs, metadata);
  if (!writer.ok()) return writer.status();
  for (const NamedTensor& named : tensors) {
    absl::Status status = writer->Write(named.name, named.tensor);
    if (!status.ok()) return status;
  }
  return writer->Finish();
}

}  // namespace espalier
