#include "espalier/dist/local/local.h"

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

#include "espalier/runtime/check.h"
#include "espalier/runtime/guard.h"
#include "espalier/runtime/mutex.h"

namespace espalier {

namespace {

// What a rank brings to a collective.
struct Contribution {
  const char* name = "";
  std::string agreement;  // must be the same on every rank
  Tensor tensor;
  std::vector<int64_t> rows;  // AllToAll: how many for each rank
};

// Where the ranks of a group meet. A collective is two meetings: after the
// first everyone may read the others' posts, after the second nobody does.
class Rendezvous {
 public:
  Rendezvous(int size, absl::Duration timeout)
      : size_(size),
        timeout_(timeout),
        posts_(static_cast<size_t>(size)),
        arrived_(static_cast<size_t>(size), false) {}

  int size() const { return size_; }

  void Arrive(int rank, Contribution post) {
    const MutexLock lock(mutex_);
    CheckAlive();
    posts_[static_cast<size_t>(rank)] = std::move(post);
    Meet(rank);
    CheckAgreement(rank);
    ++num_inside_;
  }

  void Leave(int rank) {
    const MutexLock lock(mutex_);
    GoOut();
    if (!dead_.ok()) AwaitReaders();
    CheckAlive();
    Meet(rank);
    posts_[static_cast<size_t>(rank)].tensor = Tensor();
  }

  // Between Arrive and Leave.
  const Contribution& Of(int rank) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return posts_[static_cast<size_t>(rank)];
  }

  // In place of Leave.
  void GiveUp(const absl::Status& reason) {
    const MutexLock lock(mutex_);
    GoOut();
    if (dead_.ok()) Kill(reason);
    AwaitReaders();
  }

  void Abort(const absl::Status& reason) {
    const MutexLock lock(mutex_);
    if (dead_.ok()) Kill(reason);
  }

 private:
  void CheckAlive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!dead_.ok()) internal::Fail(dead_);
  }

  void Kill(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    dead_ = status;
    DropPosts();
    changed_.NotifyAll();
  }

  void GoOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (--num_inside_ == 0) changed_.NotifyAll();
    DropPosts();
  }

  // A rank goes on, and its context perhaps away, when its peers have read what
  // they were reading of its tensor.
  void AwaitReaders() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto deadline = Deadline();
    while (num_inside_ > 0 && changed_.WaitUntil(mutex_, deadline)) {
    }
  }

  std::chrono::steady_clock::time_point Deadline() const {
    return std::chrono::steady_clock::now() +
           absl::ToChronoNanoseconds(timeout_);
  }

  // A dead group keeps no tensor that nobody reads: their contexts may go
  // before it does.
  void DropPosts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (dead_.ok() || num_inside_ > 0) return;
    for (Contribution& post : posts_) post.tensor = Tensor();
  }

  void Meet(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t meeting = meeting_;
    arrived_[static_cast<size_t>(rank)] = true;
    if (++num_arrived_ == size_) {
      num_arrived_ = 0;
      arrived_.assign(arrived_.size(), false);
      ++meeting_;
      changed_.NotifyAll();
      return;
    }
    const auto deadline = Deadline();
    bool in_time = true;
    while (in_time && meeting_ == meeting && dead_.ok()) {
      in_time = changed_.WaitUntil(mutex_, deadline);
    }
    if (meeting_ == meeting && dead_.ok()) {
      Kill(absl::DeadlineExceededError(absl::StrCat(
          posts_[static_cast<size_t>(rank)].name, " number ", meeting / 2,
          ": rank ", rank, " waited ", absl::FormatDuration(timeout_),
          " for rank ", absl::StrJoin(Missing(), ", "))));
    }
    if (meeting_ != meeting) return;
    AwaitReaders();
    CheckAlive();
  }

  std::vector<int> Missing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<int> missing;
    for (int rank = 0; rank < size_; ++rank) {
      if (!arrived_[static_cast<size_t>(rank)]) missing.push_back(rank);
    }
    return missing;
  }

  void CheckAgreement(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Contribution& first = posts_[0];
    for (int other = 1; other < size_ && dead_.ok(); ++other) {
      const Contribution& post = posts_[static_cast<size_t>(other)];
      if (post.agreement == first.agreement) continue;
      Kill(absl::InternalError(absl::StrCat(
          "ranks met in different collectives: rank 0 in ", first.agreement,
          ", rank ", other, " in ", post.agreement, " (number ", meeting_ / 2,
          ", seen by rank ", rank, ")")));
    }
    CheckAlive();
  }

  const int size_;
  const absl::Duration timeout_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Contribution> posts_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> arrived_ ABSL_GUARDED_BY(mutex_);
  int num_arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_inside_ ABSL_GUARDED_BY(mutex_) = 0;  // ranks that may read posts
  uint64_t meeting_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status dead_ ABSL_GUARDED_BY(mutex_);
};

std::string RowShape(const Tensor& x) {
  return x.ndim() == 0 ? "" : ToString(x.shape().WithDim(0, 0));
}

int64_t RowBytes(const Tensor& x) {
  int64_t bytes = SizeOf(x.dtype());
  for (int d = 1; d < x.ndim(); ++d) bytes *= x.dim(d);
  return bytes;
}

template <typename T, typename Wide>
void SumRanks(const std::vector<const void*>& sources, int64_t begin,
              int64_t count, void* sum) {
  T* out = static_cast<T*>(sum);
  for (int64_t i = 0; i < count; ++i) {
    Wide total = 0;
    for (const void* source : sources) {
      total += static_cast<Wide>(static_cast<const T*>(source)[begin + i]);
    }
    out[i] = static_cast<T>(total);
  }
}

void SumInto(const std::vector<const void*>& sources, DType dtype,
             int64_t begin, int64_t count, void* sum) {
  switch (dtype) {
    case kF64:
      return SumRanks<double, double>(sources, begin, count, sum);
    case kF32:
      return SumRanks<float, float>(sources, begin, count, sum);
    case kBF16:
      return SumRanks<BFloat16, float>(sources, begin, count, sum);
    default:
      ESPALIER_CHECK(false, "sum of ", ToString(dtype));
  }
}

void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(int rank, std::shared_ptr<Rendezvous> meeting)
      : rank_(rank), meeting_(std::move(meeting)) {}

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }

  void Barrier() override {
    meeting_->Arrive(rank_, {"barrier", "barrier", Tensor(), {}});
    Finish([] {});
  }

  void AllReduceSum(const Tensor& x) override {
    Check(x);
    Post("all_reduce", ToString(x), x);
    Tensor sum;
    Finish([&] {
      CheckWritable(x);
      sum = EmptyLike(x);
      SumInto(Sources(), x.dtype(), 0, x.num_elements(), sum.view().pointer);
    });
    x.CopyFrom(sum);
  }

  void Broadcast(const Tensor& x, int root) override {
    Check(x);
    ESPALIER_CHECK(root >= 0 && root < size(), "root is ", root);
    Post("broadcast", absl::StrCat(ToString(x), " from ", root), x);
    Finish([&] {
      if (rank_ != root) x.CopyFrom(meeting_->Of(root).tensor);
    });
  }

  Tensor AllGather(const Tensor& x) override {
    Check(x);
    ESPALIER_CHECK(x.ndim() >= 1, "x is ", ToString(x));
    Post("all_gather", absl::StrCat(ToString(x.dtype()), RowShape(x)), x);
    Tensor all;
    Finish([&] {
      int64_t rows = 0;
      for (int r = 0; r < size(); ++r) rows += meeting_->Of(r).tensor.dim(0);
      all = Tensor::Empty(x.device(), x.shape().WithDim(0, rows), x.dtype());
      auto* to = static_cast<char*>(all.view().pointer);
      for (int r = 0; r < size(); ++r) {
        const Tensor& part = meeting_->Of(r).tensor;
        Copy(to, part.view().pointer, part.num_bytes());
        to += part.num_bytes();
      }
    });
    return all;
  }

  Tensor ReduceScatterSum(const Tensor& x) override {
    Check(x);
    ESPALIER_CHECK(x.ndim() >= 1 && x.dim(0) % size() == 0, "x is ",
                   ToString(x), " for ", size(), " ranks");
    Post("reduce_scatter", ToString(x), x);
    Tensor part;
    Finish([&] {
      part = Tensor::Empty(x.device(), x.shape().WithDim(0, x.dim(0) / size()),
                           x.dtype());
      SumInto(Sources(), x.dtype(), rank_ * part.num_elements(),
              part.num_elements(), part.view().pointer);
    });
    return part;
  }

  Tensor AllToAll(const Tensor& x, absl::Span<const int64_t> send_rows,
                  std::vector<int64_t>& receive_rows) override {
    Check(x);
    ESPALIER_CHECK(
        x.ndim() >= 1 && static_cast<int>(send_rows.size()) == size(), "x is ",
        ToString(x), ", send_rows has ", send_rows.size(), " for ", size(),
        " ranks");
    int64_t sent = 0;
    for (const int64_t rows : send_rows) {
      ESPALIER_CHECK(rows >= 0, "send_rows has ", rows);
      sent = CheckedAdd(sent, rows, "rows sent");
    }
    ESPALIER_CHECK(sent == x.dim(0), "send_rows add up to ", sent, " of ",
                   x.dim(0));
    Post("all_to_all", absl::StrCat(ToString(x.dtype()), RowShape(x)), x,
         {send_rows.begin(), send_rows.end()});
    receive_rows.clear();
    Tensor result;
    Finish([&] {
      int64_t received = 0;
      for (int r = 0; r < size(); ++r) {
        receive_rows.push_back(
            meeting_->Of(r).rows[static_cast<size_t>(rank_)]);
        received += receive_rows.back();
      }
      result =
          Tensor::Empty(x.device(), x.shape().WithDim(0, received), x.dtype());
      auto* to = static_cast<char*>(result.view().pointer);
      for (int r = 0; r < size(); ++r) to = Receive(r, RowBytes(x), to);
    });
    return result;
  }

  void Abort(const absl::Status& reason) override {
    meeting_->Abort(GaveUp(reason));
  }

 private:
  static void Check(const Tensor& x) {
    ESPALIER_CHECK(x.is_contiguous() && x.device().host_addressable(),
                   "collective on ", ToString(x));
  }

  static void CheckWritable(const Tensor& x) {
    ESPALIER_CHECK(!x.read_only(), "sum into read-only ", ToString(x));
  }

  absl::Status GaveUp(const absl::Status& reason) const {
    return absl::AbortedError(
        absl::StrCat("rank ", rank_, " gave up: ", reason.message()));
  }

  // This rank's part of a collective that it has posted to, and the end of it.
  // Where the part fails the peers must not take this rank's next call for its
  // end of this one.
  void Finish(absl::FunctionRef<void()> part) {
    const absl::Status status = internal::Guard(part);
    if (status.ok()) return meeting_->Leave(rank_);
    meeting_->GiveUp(GaveUp(status));
    internal::Fail(status);
  }

  void Post(const char* name, const std::string& what, const Tensor& x,
            std::vector<int64_t> rows = {}) {
    meeting_->Arrive(
        rank_, {name, absl::StrCat(name, " of ", what), x, std::move(rows)});
  }

  std::vector<const void*> Sources() const {
    std::vector<const void*> sources;
    sources.reserve(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      sources.push_back(meeting_->Of(r).tensor.view().pointer);
    }
    return sources;
  }

  // Copies the rows that rank r has for this one; returns the end.
  char* Receive(int r, int64_t row_bytes, char* to) const {
    const Contribution& post = meeting_->Of(r);
    int64_t before = 0;
    for (int other = 0; other < rank_; ++other) {
      before += post.rows[static_cast<size_t>(other)];
    }
    const int64_t bytes = post.rows[static_cast<size_t>(rank_)] * row_bytes;
    Copy(to,
         static_cast<const char*>(post.tensor.view().pointer) +
             before * row_bytes,
         bytes);
    return to + bytes;
  }

  const int rank_;
  const std::shared_ptr<Rendezvous> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLocalGroup(
    int size, absl::Duration timeout) {
  ESPALIER_CHECK(size >= 1, "group of ", size);
  const auto meeting = std::make_shared<Rendezvous>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> group;
  group.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    group.push_back(std::make_unique<LocalCommunicator>(rank, meeting));
  }
  return group;
}

}  // namespace espalier
