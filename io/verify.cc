#include "espalier/io/verify.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/family_table.h"
#include "espalier/io/internal/table_check.h"
#include "espalier/io/internal/verify_sharded.h"
#include "espalier/io/tensor_catalog.h"
#include "espalier/io/units.h"

namespace espalier {

namespace {

absl::Status CheckFamily(const TensorCatalog& catalog, VerifyReport* report) {
  const absl::StatusOr<FamilyTable> table =
      FamilyTable::Load(*catalog.folder());
  if (table.ok()) {
    report->family = table->facts().model_type;
    report->num_matched = internal::CheckAgainstTable(
        catalog, *table, &report->problems, &report->notes);
  } else if (absl::IsUnimplemented(table.status())) {
    report->notes.Add("family", std::string(table.status().message()));
  } else {
    if (IsTransportError(table.status())) return table.status();
    report->problems.Add("bad_config", std::string(table.status().message()));
  }
  return absl::OkStatus();
}

// Of a folder in which nothing is missing.
void CheckTotalSize(const TensorCatalog& catalog, VerifyReport* report) {
  const std::string& got = catalog.index_total_size();
  const std::string expected = absl::StrCat(catalog.mapped_bytes());
  if (!report->problems.empty() || got.empty() || got == expected) return;
  report->problems.Add(
      "wrong_total_size",
      absl::StrCat(catalog.folder()->PathOf("model.safetensors.index.json"),
                   ": metadata.total_size is ", got, ", expected ", expected,
                   ", the bytes of the tensors in weight_map"));
}

// Manifest in hand, or made to be written; reads all data when `full`.
absl::Status CheckContent(const TensorCatalog& catalog,
                          const VerifyOptions& options, VerifyReport* report) {
  const Folder& folder = *catalog.folder();
  const bool own = options.manifest.empty() && options.write_manifest.empty() &&
                   folder.Exists(kManifestName);
  if (own || !options.manifest.empty()) {
    const absl::StatusOr<Manifest> manifest =
        own ? ReadManifest(folder) : ReadManifest(options.manifest);
    if (!manifest.ok()) return manifest.status();
    report->manifest = own ? folder.PathOf(kManifestName) : options.manifest;
    report->read_all = options.full;
    return CheckManifest(*manifest, catalog, options.full, &report->problems,
                         options.progress);
  }
  // Without a manifest to compare with, reading finds what the medium lost.
  if (!options.full && options.write_manifest.empty()) return absl::OkStatus();
  if (!report->problems.empty()) return absl::OkStatus();
  const absl::StatusOr<Manifest> manifest =
      MakeManifest(catalog, options.progress);
  if (!manifest.ok()) return manifest.status();
  report->read_all = true;
  if (options.write_manifest.empty()) return absl::OkStatus();
  report->written_manifest = options.write_manifest;
  return WriteManifest(*manifest, options.write_manifest);
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyCheckpoint(const std::string& dir,
                                              const VerifyOptions& options) {
  return VerifyCheckpoint(Folder::Local(dir), options);
}

absl::StatusOr<VerifyReport> VerifyCheckpoint(
    std::shared_ptr<const Folder> folder, const VerifyOptions& options) {
  VerifyReport report;
  report.dir = folder->path();
  if (internal::IsSharded(*folder)) {
    absl::Status status = internal::VerifySharded(folder, options, &report);
    if (!status.ok()) return status;
    return report;
  }
  const absl::StatusOr<TensorCatalog> catalog =
      TensorCatalog::Scan(std::move(folder), &report.problems, &report.notes);
  if (!catalog.ok()) return catalog.status();
  report.num_files = static_cast<int64_t>(catalog->files().size());
  report.num_tensors = static_cast<int64_t>(catalog->tensors().size());
  report.total_bytes = catalog->total_bytes();
  CheckTotalSize(*catalog, &report);
  absl::Status status = CheckFamily(*catalog, &report);
  if (status.ok()) status = CheckContent(*catalog, options, &report);
  if (!status.ok()) return status;
  return report;
}

JsonValue ToJson(const VerifyReport& report) {
  JsonValue json = JsonValue::Object{};
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? JsonValue() : JsonValue(text);
  };
  json.Set("dir", report.dir);
  json.Set("ok", report.ok());
  json.Set("family", text_or_null(report.family));
  json.Set("files", report.num_files);
  json.Set("tensors", report.num_tensors);
  json.Set("matched_tensors", report.num_matched);
  json.Set("bytes", report.total_bytes);
  json.Set("manifest", text_or_null(report.manifest));
  json.Set("written_manifest", text_or_null(report.written_manifest));
  json.Set("read_all", report.read_all);
  json.Set("sharded", text_or_null(report.sharded));
  json.Set("problems", report.problems.ToJson());
  json.Set("notes", report.notes.ToJson());
  return json;
}

std::string ToText(const VerifyReport& report) {
  std::string text =
      absl::StrCat(report.dir, ": ", report.num_tensors, " tensors, ",
                   BytesText(report.total_bytes), ", ", report.num_files,
                   report.num_files == 1 ? " file" : " files", "\n");
  if (!report.family.empty()) {
    absl::StrAppend(&text, "family ", report.family, ": ", report.num_matched,
                    " tensors are in its table\n");
  }
  if (!report.sharded.empty()) {
    absl::StrAppend(&text, "sharded, as ", report.sharded, " says: ",
                    report.read_all ? "every byte was compared\n"
                                    : "sizes, headers and pieces were "
                                      "compared; --full compares every byte\n");
  } else if (!report.manifest.empty()) {
    absl::StrAppend(&text, "manifest ", report.manifest, ": ",
                    report.read_all ? "every byte was compared\n"
                                    : "sizes and headers were compared; "
                                      "--full compares every byte\n");
  } else if (report.read_all && report.written_manifest.empty()) {
    text += "every byte was read; there is no manifest to compare with\n";
  }
  if (!report.written_manifest.empty()) {
    absl::StrAppend(&text, "manifest written: ", report.written_manifest, "\n");
  }
  for (const auto* list : {&report.notes, &report.problems}) {
    for (const ProblemList::Kind& kind : list->kinds()) {
      absl::StrAppend(&text, list == &report.notes ? "note " : "PROBLEM ",
                      kind.name, ": ", kind.count, "\n");
      for (const std::string& message : kind.first) {
        absl::StrAppend(&text, "  ", message, "\n");
      }
      const int64_t more = kind.count - static_cast<int64_t>(kind.first.size());
      if (more > 0) absl::StrAppend(&text, "  and ", more, " more\n");
    }
  }
  text += report.ok() ? "ok\n"
                      : absl::StrCat("not ok: ", report.problems.total(),
                                     " problems\n");
  return text;
}

}  // namespace espalier
