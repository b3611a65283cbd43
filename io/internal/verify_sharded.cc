#include "espalier/io/internal/verify_sharded.h"

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/family_table.h"
#include "espalier/io/internal/piece_finder.h"
#include "espalier/io/internal/sharded_folder.h"

namespace espalier::internal {

namespace {

class Check {
 public:
  Check(const ShardedFolder& folder, const VerifyOptions& options,
        VerifyReport* report)
      : folder_(folder),
        layout_(folder.layout()),
        options_(options),
        report_(report) {}

  absl::Status Run() {
    for (const ShardLayout::File& file : layout_.files) {
      total_bytes_ += file.data_bytes;
    }
    report_->num_files = static_cast<int64_t>(layout_.files.size());
    report_->read_all = options_.full;
    absl::Status status = CheckOthers();
    if (!status.ok()) return status;
    const absl::StatusOr<FamilyTable> table =
        FamilyTable::Load(folder_.folder());
    status = Take("bad_config", table.status());
    if (status.ok() && table.ok()) {
      report_->family = table->facts().model_type;
      status = CheckPieces(*table);
    }
    if (status.ok() && options_.full) status = CheckContent();
    if (status.ok()) status = NoteOtherFiles();
    return status;
  }

 private:
  // Puts down what is wrong; returns what keeps the check from being made.
  absl::Status Take(absl::string_view kind, const absl::Status& status) {
    if (status.ok()) return status;
    if (IsTransportError(status)) return status;
    report_->problems.Add(kind, std::string(status.message()));
    return absl::OkStatus();
  }

  absl::Status CheckOthers() {
    absl::Status status = Take("bad_original", folder_.CheckIndex());
    for (const ShardLayout::Copied& copied : layout_.copied) {
      if (!status.ok()) return status;
      status = Take("bad_copy", folder_.CheckCopied(copied, options_.full));
    }
    return status;
  }

  absl::Status CheckPieces(const FamilyTable& table) {
    PieceFinder finder(folder_, table);
    for (uint32_t f = 0; f < layout_.files.size(); ++f) {
      const absl::StatusOr<SafetensorsFile> file =
          folder_.OpenPieces(layout_.files[f]);
      absl::Status status = Take("bad_file", file.status());
      if (!status.ok()) return status;
      if (file.ok()) finder.Add(f, *file);
    }
    // What a broken file lacks would be told again for each of its tensors.
    const bool find = report_->problems.empty();
    for (const ShardLayout::Source& source : layout_.sources) {
      const auto header = folder_.ReadHeader(source);
      absl::Status status = Take("bad_original", header.status());
      if (!status.ok()) return status;
      if (!header.ok()) continue;
      report_->total_bytes += source.num_bytes - source.header_bytes;
      for (const SafetensorsEntry& entry : header->parsed.entries) {
        ++report_->num_tensors;
        FamilyTable::Match match;
        if (table.Find(entry.name, entry.dtype, &match)) {
          ++report_->num_matched;
        }
        if (!find) continue;
        status = Take("missing_piece", finder.Find(entry).status());
        if (!status.ok()) return status;
      }
    }
    return report_->problems.empty()
               ? Take("unknown_piece", finder.CheckAll(/*content=*/false))
               : absl::OkStatus();
  }

  absl::Status CheckContent() {
    int64_t done = 0;
    for (const ShardLayout::File& file : layout_.files) {
      // A file that cannot be read at all has been told of.
      if (folder_.OpenPieces(file).ok()) {
        absl::Status status = Take("wrong_data", folder_.CheckContent(file));
        if (!status.ok()) return status;
      }
      done += file.data_bytes;
      if (options_.progress) options_.progress(done, total_bytes_);
    }
    return absl::OkStatus();
  }

  absl::Status NoteOtherFiles() {
    const auto names = folder_.folder().List(/*deep=*/false);
    if (!names.ok()) return names.status();
    absl::flat_hash_set<absl::string_view> known;
    for (const ShardLayout::File& file : layout_.files) known.insert(file.name);
    for (const std::string& name : *names) {
      if (!absl::EndsWith(name, ".safetensors") || known.contains(name)) {
        continue;
      }
      report_->notes.Add(
          "ignored_file",
          absl::StrCat(folder_.folder().PathOf(name), ": ", kShardsName,
                       " does not name it; it is ignored"));
    }
    return absl::OkStatus();
  }

  const ShardedFolder& folder_;
  const ShardLayout& layout_;
  const VerifyOptions& options_;
  VerifyReport* report_;
  int64_t total_bytes_ = 0;
};

}  // namespace

bool IsSharded(const Folder& folder) { return folder.Exists(kShardsName); }

absl::Status VerifySharded(const std::shared_ptr<const Folder>& folder,
                           const VerifyOptions& options, VerifyReport* report) {
  report->sharded = folder->PathOf(kShardsName);
  if (!options.manifest.empty() || !options.write_manifest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder->path(),
                     ": a manifest is of a whole checkpoint; this folder is "
                     "sharded and has its hashes in ",
                     kShardsName, ", expected no manifest"));
  }
  const absl::StatusOr<ShardedFolder> opened = ShardedFolder::Open(folder);
  if (!opened.ok()) {
    if (IsTransportError(opened.status())) return opened.status();
    report->problems.Add("bad_layout", std::string(opened.status().message()));
    return absl::OkStatus();
  }
  return Check(*opened, options, report).Run();
}

}  // namespace espalier::internal
