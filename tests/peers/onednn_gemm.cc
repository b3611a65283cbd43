// Our matrix products beside oneDNN's, alternating in one run, each as a share
// of the peak measured between them. Built with -DESPALIER_PEERS=ON; nothing
// else of the project knows oneDNN.
//   onednn_gemm [num_threads [bf16|f32 [forms]]]   (OMP_NUM_THREADS the same)
// forms: letters of FDWP, see Product::form; without, all of both dtypes.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "espalier/ops/gemm/gemm.h"
#include "espalier/tests/bench/ceilings.h"

#include "dnnl.hpp"

namespace espalier {
namespace {

using Memory = dnnl::memory;

struct Product {
  int64_t m, k, n;
  char form;  // 'F' NT forward, 'D' NN input gradient, 'W' TN weight gradient,
              // 'P' NT with B packed once
};

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Ours {
 public:
  Ours(Context& context, const Product& p, const Tensor& a, const Tensor& b,
       const Tensor& c)
      : cpu_(context.cpu()) {
    const DType dtype = a.dtype();
    args_.m = p.m;
    args_.n = p.n;
    args_.k = p.k;
    args_.a = {a.view().pointer, dtype, p.form == 'W' ? 1 : p.k,
               p.form == 'W' ? p.m : 1};
    const bool transposed = p.form == 'F' || p.form == 'P';
    args_.b = {b.view().pointer, dtype, transposed ? p.k : 1,
               transposed ? 1 : p.n};
    args_.compute = gemm::ComputeFor(dtype, dtype);
    args_.c = c.view().pointer;
    args_.c_stride = p.n;
    if (p.form == 'P') {
      const gemm::Tile& tile = gemm::FindTile(context.isa(), args_.compute);
      packed_ = Tensor::Empty(cpu_, {gemm::PackedBBytes(p.n, p.k, tile)}, kU8);
      auto* at = static_cast<uint32_t*>(packed_.view().pointer);
      gemm::PackB(args_.b, p.n, p.k, tile, context.pool(), at);
      args_.packed_b = at;
    }
    workspace_ =
        Tensor::Empty(cpu_, {gemm::WorkspaceBytes(args_, context.isa())}, kU8);
  }
  void Run() {
    gemm::Gemm(args_, cpu_.exec(cpu_.compute_stream()),
               {workspace_.view().pointer, workspace_.num_bytes()});
  }

 private:
  Device& cpu_;
  gemm::GemmArgs args_;
  Tensor packed_, workspace_;
};

class Peer {
 public:
  Peer(const Product& p, const Tensor& a, const Tensor& b, const Tensor& c)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Tag = Memory::format_tag;
    const auto type =
        a.dtype() == kF32 ? Memory::data_type::f32 : Memory::data_type::bf16;
    const bool transposed = p.form == 'F' || p.form == 'P';
    const Memory::desc a_desc({p.m, p.k}, type,
                              p.form == 'W' ? Tag::ba : Tag::ab);
    const Memory::desc b_plain({p.k, p.n}, type,
                               transposed ? Tag::ba : Tag::ab);
    const Memory::desc b_any({p.k, p.n}, type, Tag::any);
    const Memory::desc c_desc({p.m, p.n}, Memory::data_type::f32, Tag::ab);
    const dnnl::matmul::desc desc(a_desc, p.form == 'P' ? b_any : b_plain,
                                  c_desc);
    const dnnl::matmul::primitive_desc primitive(desc, engine_);
    matmul_ = dnnl::matmul(primitive);
    Memory b_memory(b_plain, engine_, b.view().pointer);
    if (p.form == 'P') {
      Memory packed(primitive.weights_desc(), engine_);
      dnnl::reorder(b_memory, packed).execute(stream_, b_memory, packed);
      stream_.wait();
      b_memory = packed;
    }
    arguments_ = {{DNNL_ARG_SRC, Memory(a_desc, engine_, a.view().pointer)},
                  {DNNL_ARG_WEIGHTS, b_memory},
                  {DNNL_ARG_DST, Memory(c_desc, engine_, c.view().pointer)}};
  }
  void Run() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::unordered_map<int, Memory> arguments_;
};

template <typename Side>
double FlopsPerSecond(Side& side, double flops, int repeats) {
  const double start = Seconds();
  for (int i = 0; i < repeats; ++i) side.Run();
  return flops * repeats / (Seconds() - start);
}

void Compare(Context& context, int threads, const Product& p, DType dtype) {
  const bool turned_a = p.form == 'W';
  const bool turned_b = p.form == 'F' || p.form == 'P';
  const Tensor a = bench::RandomTensor(
      context.cpu(), {turned_a ? p.k : p.m, turned_a ? p.m : p.k}, dtype, 1);
  const Tensor b = bench::RandomTensor(
      context.cpu(), {turned_b ? p.n : p.k, turned_b ? p.k : p.n}, dtype, 2);
  const Tensor c = Tensor::Empty(context.cpu(), {p.m, p.n}, kF32);
  Ours ours(context, p, a, b, c);
  Peer peer(p, a, b, c);
  const bench::Peak peak =
      dtype == kF32 ? bench::Peak::kF32 : bench::Peak::kBf16;
  const double flops = 2.0 * static_cast<double>(p.m) *
                       static_cast<double>(p.n) * static_cast<double>(p.k);
  ours.Run();
  peer.Run();
  const int repeats = static_cast<int>(std::max(1.0, 1e9 / flops));
  std::vector<double> our_share, peer_share;
  const double start = Seconds();
  while (our_share.size() < 5 || Seconds() - start < 0.5) {
    const double limit = bench::MeasurePeak(peak, threads, 2);
    our_share.push_back(FlopsPerSecond(ours, flops, repeats) / limit);
    peer_share.push_back(FlopsPerSecond(peer, flops, repeats) / limit);
  }
  std::printf(
      "%4s %c %5lld x %5lld x %5lld   ours %5.1f %%   oneDNN %5.1f %%\n",
      dtype == kF32 ? "f32" : "bf16", p.form, static_cast<long long>(p.m),
      static_cast<long long>(p.k), static_cast<long long>(p.n),
      100 * Median(our_share), 100 * Median(peer_share));
  std::fflush(stdout);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using espalier::Product;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::string only = argc > 2 ? argv[2] : "";
  const std::string forms = argc > 3 ? argv[3] : "FDWP";
  const auto context = espalier::bench::MakeContext(threads);
  for (espalier::DType dtype : {espalier::kBF16, espalier::kF32}) {
    if (!only.empty() && only != (dtype == espalier::kF32 ? "f32" : "bf16")) {
      continue;
    }
    for (char form : forms) {
      for (const Product& p :
           {Product{512, 576, 1536, form}, Product{2048, 2048, 2048, form},
            Product{4096, 4096, 4096, form}, Product{256, 7168, 3072, form}}) {
        espalier::Compare(*context, threads, p, dtype);
      }
      if (form == 'P') {
        espalier::Compare(*context, threads, {16, 3584, 3072, 'P'}, dtype);
      }
    }
  }
  return 0;
}
