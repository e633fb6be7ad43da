// Multi-head attention that is trained, around any mechanism of the registry that has a gradient.
#ifndef HEED_TRAINING_ATTENTION_LAYER_H_
#define HEED_TRAINING_ATTENTION_LAYER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/gradient.h"
#include "heed/position.h"
#include "heed/request.h"
#include "heed/thread_pool.h"
#include "heed/training/layers.h"
#include "heed/training/parameter.h"

namespace heed::training {

// How a head learns where keys stand.
enum class HeadPosition {
  kNone,   // from the rows themselves, or not at all
  kRope,   // queries and keys are turned (heed/position.h, RopePairing::kHalf)
  kAlibi,  // scores fall with distance, slope 2^(-8 (h + 1) / num_heads). arXiv:2108.12409
};

struct AttentionLayerOptions {
  int64_t embed_dim = 0;     // a multiple of num_heads; head_dim = embed_dim / num_heads
  int64_t num_heads = 1;     // a multiple of num_kv_heads
  int64_t num_kv_heads = 0;  // 0 = num_heads
  // A row of mechanisms.inc with the capability "gradient", and parameters of its own, but for
  // those that ask for more results (return_lse, ..). dropout_p holds for calls with a
  // dropout_draw; what is dropped follows from dropout_seed, from the draw and from the name of the
  // layer.
  std::string mechanism = "scaled_dot_product";
  std::vector<NamedParam> params{};
  bool causal = false;
  HeadPosition position = HeadPosition::kNone;
  double rope_base = 10000;  // finite and above 1; read by HeadPosition::kRope only
  bool bias = false;
  std::optional<double> out_deviation{};  // absent = 1 / sqrt(embed_dim)
};

// How the rows of x and of the context divide into sequences.
struct SequenceShape {
  int64_t batch = 0;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  // Where `params` have dropout_p: which weights are dropped, others for each number, and in each
  // layer its own. Absent = none: dropout is for training. Trainer counts its steps.
  std::optional<uint64_t> dropout_draw{};
};

// y = W_o heads, head_h = mechanism(W_q,h x, W_k,g context, W_v,g context): heed's own forward and
// backward (heed/gradient.h) between four linear maps. What else the mechanism reads is made here:
//
//   beta                                    sigmoid(W context + b), a number a token and KV head
//   log_decay, log_gates                    log sigmoid(W context + b), the same
//   channel_log_decay                       log sigmoid(W context + b), for each channel of a key
//   sinks, skip, bonus, score_matrix        parameters of the layer
//
// if the mechanism needs it, and in the recurrent family also if it may be given. Decays start at
// sigmoid(4) = 0.98. Outputs of recurrent mechanisms without a denominator pass an RMS norm, one
// factor a channel, before W_o (Sun et al. 2023, arXiv:2307.08621, section 2.2).
class AttentionLayer {
 public:
  // Adds `<name>.q_proj`, `.k_proj`, `.v_proj`, `.o_proj`, and what the mechanism asks for under
  // the names above. Throws Error(kOption) for an unknown mechanism, Error(kUnsupported), by name,
  // for one without a gradient, one that needs tensors not listed above, causal = false where the
  // mechanism is causal by nature, and positions that it does not take; Error(kRange) for sizes;
  // for `params` what the mechanism throws, unless there are lengths that they fit. All of it
  // before anything is added.
  AttentionLayer(ParameterSet& parameters, const std::string& name,
                 const AttentionLayerOptions& options);
  AttentionLayer(const AttentionLayer&) = delete;  // refers to its own rows
  AttentionLayer& operator=(const AttentionLayer&) = delete;

  // x [batch * q_len, embed_dim], context [batch * kv_len, embed_dim], which is x itself for
  // self-attention. Throws Error(kShape | kRange) for lengths that `params` do not fit (grids,
  // periods, landmarks, positions of batch entries).
  const Matrix& Forward(const Matrix& x, const Matrix& context, const SequenceShape& shape,
                        ThreadPool* pool = nullptr);

  // The gradient of x; that of the context is in it where the two are the same.
  const Matrix& Backward(const Matrix& d_y, ThreadPool* pool = nullptr);
  // The gradient of another context.
  const Matrix& context_gradient() const { return d_context_; }

  // What each query takes of each key's value in the last Forward(), [batch, num_heads, q_len,
  // kv_len]: the output for values that are the unit vectors, because every mechanism with a
  // gradient is linear in its values. So recurrent mechanisms have such a picture too. Costs a
  // Forward() whose head_dim_v is kv_len. Throws Error(kOption) where no Forward() came to its end,
  // and Error(kMemory), which may leave weights half written.
  void Weights(TensorView<float> weights, ThreadPool* pool = nullptr) const;

  const AttentionLayerOptions& options() const { return options_; }

 private:
  // An input that the mechanism reads token by token, from a linear map of the context.
  struct Gate {
    std::string input;
    LinearLayer linear;
    // As the mechanism reads and writes them: one row a head, or as the linear map gives them.
    Matrix activated{}, gradient{};
    Matrix d_raw{};  // of the linear map
  };
  // A parameter that the mechanism reads as it is.
  struct Learned {
    std::string input;
    Parameter* parameter;
    // As of the last Forward(): the parameter may have changed since.
    std::vector<float> value{}, gradient{};
  };

  void AddGate(ParameterSet& parameters, const std::string& name, const std::string& input);
  void AddLearned(ParameterSet& parameters, const std::string& name, const std::string& input);
  void ActivateGate(Gate& gate, const Matrix& context, ThreadPool* pool);
  const Matrix& GateInputGradient(Gate& gate, ThreadPool* pool);
  void Turn(Matrix& rows, int64_t heads, int64_t len, RopeOptions options, ThreadPool* pool) const;
  int64_t GatePlace(const Gate& gate, int64_t n) const;
  AnyTensor GateTensor(const Gate& gate, Matrix& rows) const;
  Request MakeRequest();
  std::vector<NamedTensor> Results(const Request& request);
  std::vector<NamedTensor> GradientPlaces();
  void RunMechanismBackward(const Matrix& d_heads, ThreadPool* pool);
  void AddProjectionGradients(ThreadPool* pool);

  AttentionLayerOptions options_;
  int64_t head_dim_ = 0;
  LinearLayer q_, v_, o_;
  std::optional<LinearLayer> k_;
  std::optional<NormLayer> norm_;
  std::deque<Gate> gates_;
  std::deque<Learned> learned_;
  std::vector<float> slopes_;

  std::optional<uint64_t> dropout_seed_;  // of this layer, if it drops anything

  SequenceShape shape_{};
  bool self_ = false;  // the context is x
  // Of the last Forward(); without inputs where it failed. Weights() borrows it.
  mutable Request request_;
  Matrix heads_, lse_, d_q_, d_k_, d_v_, d_x_, d_context_;
};

// The ids that AttentionLayerOptions::mechanism takes, in the order of the registry. Throws
// Error(kMemory).
std::vector<std::string_view> TrainableMechanisms();

}  // namespace heed::training

#endif  // HEED_TRAINING_ATTENTION_LAYER_H_
