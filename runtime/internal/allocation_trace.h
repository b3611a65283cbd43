#ifndef ESPALIER_RUNTIME_INTERNAL_ALLOCATION_TRACE_H_
#define ESPALIER_RUNTIME_INTERNAL_ALLOCATION_TRACE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "espalier/runtime/allocator.h"

namespace espalier::internal {

// What a LoRA training run asks of an allocator, for the test and the bench
// of the allocators: a decoder of L layers in bf16 with adapters on its seven
// linears, micro-batches of varying T.
//
// Forward keeps, per layer, what backward reads (norm inputs and outputs,
// rotated q and k, v, attention output and lse [T, N], gate, up and their
// product, each adapter's x A^T [T, R]) and frees the rest at once. The head
// works in chunks of 256 rows of V logits. Backward goes through the layers in
// reverse, makes the gradients it needs and frees each saved tensor after its
// use. Adapter gradients appear in the first backward pass and optimizer
// moments in the first step, so both lie between activations, and stay.
// T is drawn log-uniformly for each micro-batch.
struct TraceOptions {
  int num_steps = 64;
  int grad_accum_steps = 2;
  int64_t min_tokens = 128;
  int64_t max_tokens = 1024;
  int64_t num_hidden_layers = 8;
  int64_t hidden_size = 1024;
  int64_t intermediate_size = 2816;
  int64_t num_attention_heads = 16;
  int64_t key_value_size = 256;
  int64_t vocab_size = 32000;
  int64_t lora_rank = 16;
  uint64_t seed = 1;
};

struct TraceOp {
  int32_t block = 0;   // number of the block
  int64_t bytes = -1;  // allocation; negative: free
  MemoryTag tag = MemoryTag::kActivations;
};

struct AllocationTrace {
  std::vector<TraceOp> ops;
  std::vector<size_t> step_ends;  // indices into ops
  int32_t num_blocks = 0;
  int64_t peak_bytes = 0;  // of the bytes asked for and not yet freed
};

class TraceWriter {
 public:
  explicit TraceWriter(const TraceOptions& options)
      : options_(options), random_(options.seed) {
    const int64_t H = options.hidden_size, I = options.intermediate_size;
    const int64_t kv = options.key_value_size;
    linears_ = {{H, H}, {H, kv}, {H, kv}, {H, H}, {H, I}, {H, I}, {I, H}};
  }

  AllocationTrace Write() {
    for (int64_t i = 0; i < options_.num_hidden_layers; ++i) {
      for (const auto& [in, out] : linears_) Adapter(in, out, kWeights);
    }
    for (int step = 0; step < options_.num_steps; ++step) {
      for (int i = 0; i < options_.grad_accum_steps; ++i) {
        MicroBatch(DrawTokens(), step == 0 && i == 0);
      }
      for (int64_t i = 0; step == 0 && i < options_.num_hidden_layers; ++i) {
        for (const auto& [in, out] : linears_) {
          Adapter(in, out, kOptimizer);
          Adapter(in, out, kOptimizer);
        }
      }
      trace_.step_ends.push_back(trace_.ops.size());
    }
    return std::move(trace_);
  }

 private:
  static constexpr MemoryTag kWeights = MemoryTag::kWeights;
  static constexpr MemoryTag kGradients = MemoryTag::kGradients;
  static constexpr MemoryTag kOptimizer = MemoryTag::kOptimizer;
  static constexpr MemoryTag kWorkspace = MemoryTag::kWorkspace;

  struct Linear {
    int64_t in, out;
  };
  struct Layer {
    std::vector<int32_t> attention;  // saved, in the order backward frees
    std::vector<int32_t> mlp;
  };

  int32_t Take(int64_t bytes, MemoryTag tag = MemoryTag::kActivations) {
    const int32_t block = trace_.num_blocks++;
    trace_.ops.push_back({block, bytes, tag});
    sizes_.push_back(bytes);
    live_bytes_ += bytes;
    trace_.peak_bytes = std::max(trace_.peak_bytes, live_bytes_);
    return block;
  }
  void Drop(int32_t block) {
    trace_.ops.push_back({block, -1, {}});
    live_bytes_ -= sizes_[static_cast<size_t>(block)];
  }
  void Adapter(int64_t in, int64_t out, MemoryTag tag) {
    Take(options_.lora_rank * in * 4, tag);
    Take(out * options_.lora_rank * 4, tag);
  }

  int64_t DrawTokens() {
    const double low = std::log(static_cast<double>(options_.min_tokens));
    const double high = std::log(static_cast<double>(options_.max_tokens));
    const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
    return static_cast<int64_t>(std::exp(low + (high - low) * unit));
  }

  Layer Forward(int64_t T) {
    const int64_t row = T * options_.hidden_size * 2;
    const int64_t wide = T * options_.intermediate_size * 2;
    const int64_t kv = T * options_.key_value_size * 2;
    const int64_t low_rank = T * options_.lora_rank * 4;
    Layer layer;
    auto save = [&](std::vector<int32_t>& saved, int64_t bytes) {
      saved.push_back(Take(bytes));
    };
    save(layer.attention, row);    // norm
    save(layer.attention, T * 4);  // rstd
    const int32_t q = Take(row), k = Take(kv);
    save(layer.attention, kv);  // v
    for (int i = 0; i < 3; ++i) save(layer.attention, low_rank);
    save(layer.attention, row);  // rotated q
    save(layer.attention, kv);   // rotated k
    Drop(q);
    Drop(k);
    const int32_t workspace = Take(int64_t{1} << 20, kWorkspace);
    save(layer.attention, row);  // attention output
    save(layer.attention, T * options_.num_attention_heads * 4);  // lse
    Drop(workspace);
    const int32_t projected = Take(row);
    save(layer.attention, low_rank);
    save(layer.mlp, row);  // residual sum
    Drop(projected);
    save(layer.mlp, row);  // norm
    save(layer.mlp, T * 4);
    save(layer.mlp, wide);  // gate
    save(layer.mlp, wide);  // up
    for (int i = 0; i < 2; ++i) save(layer.mlp, low_rank);
    save(layer.mlp, wide);  // swiglu
    const int32_t down = Take(row);
    save(layer.mlp, low_rank);
    save(layer.mlp, row);  // residual sum
    Drop(down);
    return layer;
  }

  void Free(std::vector<int32_t>& saved) {
    for (; !saved.empty(); saved.pop_back()) Drop(saved.back());
  }

  // Gradients of an adapter: kept the first time, then added and dropped.
  void AdapterGradient(size_t linear, int64_t T, bool first) {
    const int32_t dlow = Take(T * options_.lora_rank * 4);
    const auto& [in, out] = linears_[linear];
    if (first) {
      Adapter(in, out, kGradients);
    } else {
      const int32_t da = Take(options_.lora_rank * in * 4, kGradients);
      const int32_t db = Take(out * options_.lora_rank * 4, kGradients);
      Drop(db);
      Drop(da);
    }
    Drop(dlow);
  }

  // Returns the gradient of the layer's input.
  int32_t Backward(Layer& layer, int32_t dy, int64_t T, bool first) {
    const int64_t row = T * options_.hidden_size * 2;
    const int64_t wide = T * options_.intermediate_size * 2;
    const int64_t kv = T * options_.key_value_size * 2;
    const int32_t dswiglu = Take(wide);
    AdapterGradient(6, T, first);
    const int32_t dgate = Take(wide), dup = Take(wide);
    Drop(dswiglu);
    AdapterGradient(5, T, first);
    AdapterGradient(4, T, first);
    int32_t dnorm = Take(row);
    Drop(dup);
    Drop(dgate);
    Free(layer.mlp);
    const int32_t dmiddle = Take(row);
    Drop(dnorm);
    Drop(dy);
    const int32_t dattention = Take(row);
    AdapterGradient(3, T, first);
    const int32_t workspace = Take(int64_t{1} << 20, kWorkspace);
    const int32_t dq = Take(row), dk = Take(kv), dv = Take(kv);
    Drop(workspace);
    Drop(dattention);
    for (size_t i = 0; i < 3; ++i) AdapterGradient(i, T, first);
    dnorm = Take(row);
    Drop(dq);
    Drop(dk);
    Drop(dv);
    Free(layer.attention);
    const int32_t dx = Take(row);
    Drop(dnorm);
    Drop(dmiddle);
    return dx;
  }

  void MicroBatch(int64_t T, bool first) {
    const int64_t row = T * options_.hidden_size * 2;
    const int32_t tokens = Take(T * 8);
    const int32_t embedded = Take(row);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < options_.num_hidden_layers; ++i) {
      layers.push_back(Forward(T));
    }
    int32_t dy = Take(row);
    for (int64_t t = 0; t < T; t += 256) {
      const int64_t rows = std::min<int64_t>(256, T - t);
      Drop(Take(rows * options_.vocab_size * 4, kWorkspace));
      Drop(Take(static_cast<int64_t>(random_() % 4096)));  // log lines, sums
    }
    for (; !layers.empty(); layers.pop_back()) {
      dy = Backward(layers.back(), dy, T, first);
    }
    Drop(dy);
    Drop(embedded);
    Drop(tokens);
  }

  const TraceOptions options_;
  std::mt19937_64 random_;
  std::vector<Linear> linears_;
  std::vector<int64_t> sizes_;
  int64_t live_bytes_ = 0;
  AllocationTrace trace_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_ALLOCATION_TRACE_H_
