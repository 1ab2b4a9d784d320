// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <penstock/device/device.hpp>
#include <penstock/interop/torch_buckets.hpp>
#include <penstock/interop/torch_structure.hpp>
#include <penstock/schedule/replica.hpp>

namespace penstock {

/// How gradients are put together for the exchange. Equal on all ranks.
struct torch_replica_options {
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// Of the first one that is sent: less, so that the exchange begins while most is still computed.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;

  void validate() const {
    const auto check = [](const char* name, std::size_t bytes) {
      if (bytes == 0) detail::reject_option("torch_replica", name, "0", "1 or more");
    };
    check("bucket_bytes", bucket_bytes);
    check("first_bucket_bytes", first_bucket_bytes);
  }
};

/// A `torch::nn::Module` that trains alike on all replicas: each has one of its own, of the same structure, and a loop
/// of its own.
///
///   penstock::torch_replica together(replica, *net);          // rank 0's parameters and buffers, on all
///   for (auto& batch : feed.epoch(epoch)) {
///     const auto [x, y] = penstock::to_tensors(batch);
///     const auto loss = torch::mse_loss(net->forward(x), y);  // the mean over this replica's samples
///     optimizer.zero_grad();
///     together.backward(batch, loss);                         // reduces while it computes
///     if (together.all_reduce(batch)) optimizer.step();
///   }
///
/// Afterwards a gradient is the mean over all samples of the step, weighed by how many each rank had, so that the
/// replicas train as one with the whole batch does. A parameter that no rank's loss depends on, of those ranks that had
/// samples, has no gradient on any; one that some depend on has, on all, and is 0 for those that do not.
///
/// Statistics of batch norm are of each rank's own samples, in training too, as if each had a smaller batch: the
/// running ones are not reduced, and differ between ranks until `broadcast_buffers`. There is no batch norm over all
/// ranks.
///
/// Use: by the thread that runs the body, like the replica, which it refers to, as it does to the module. Parameters
/// are those that the module has and trains when it is made. With CUDA a `torch_stream_guard` is needed in the loop's
/// body, for the whole of it; autograd then has a thread of its own, which may not exchange values: buckets are sent by
/// `all_reduce`, one after the other. Words of the exchange are to be waited for, `replica_options{.lag = 0}`, as
/// LibTorch's optimisers ask no gate.
template <class Replica>
class torch_replica {
  using stream_view = typename Replica::stream_view;

 public:
  /// All ranks call it, outside the steps; it returns with equal modules. Throws, on all ranks, the first parameter or
  /// buffer that is not the same by name, type and shape; what is on another device than the replica; and parameters
  /// that are neither float nor double.
  torch_replica(Replica& replica, torch::nn::Module& module, const torch_replica_options& options = {})
      : replica_(replica), module_(module), thread_(std::this_thread::get_id()) {
    options.validate();
    const auto all = entries(true);
    detail::check_same_structure(replica_, all);
    buckets_ = detail::make_buckets(all, options.first_bucket_bytes, options.bucket_bytes);
    detail::broadcast(replica_, all);
    missing_.resize(buckets_.size());
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      for (const detail::torch_entry& one : buckets_[b].parameters()) {
        // Held, as a parameter only knows of it while somebody does.
        auto node = torch::autograd::impl::grad_accumulator(one.tensor);
        const auto key = node->add_post_hook(std::make_unique<hook>(*this, b));
        hooks_.emplace_back(std::move(node), key);
      }
    reset();
  }
  torch_replica(const torch_replica&) = delete;
  torch_replica& operator=(const torch_replica&) = delete;
  ~torch_replica() {
    for (const auto& [node, key] : hooks_) node->del_post_hook(key);
  }

  /// Computes the gradients of `loss`, and sends each bucket to the other ranks as soon as it is complete, the last
  /// layers' first. The last `backward` of a step: a gradient that comes after it is an error.
  ///
  /// `loss` is the mean over the batch's samples, or over what makes up `weight`, such as tokens, which is then given
  /// on all ranks. A batch without samples is passed over, whatever its loss is.
  template <class Batch>
  void backward(const Batch& batch, const at::Tensor& loss, std::optional<double> weight = {}) {
    const double factor = count(batch.info(), weight);
    place_.emplace(place{batch.info(), batch.stream()});
    if (factor != 0) run(loss, factor);
  }
  /// Computes gradients and adds them up, without an exchange: for all but the last batch of a step of several, which
  /// is followed by `backward` and `all_reduce`. As many on all ranks. Each batch counts by its samples, or `weight`:
  /// the gradient is the mean over all samples of all of them.
  ///
  /// The last batch of an epoch is one that is exchanged.
  template <class Batch>
  void accumulate(const Batch& batch, const at::Tensor& loss, std::optional<double> weight = {}) {
    const double factor = count(batch.info(), weight);
    place_.reset();
    if (factor != 0) run(loss, factor);
  }

  /// Ends the step: what is not sent yet is, and every parameter's `grad()` becomes that of all ranks. If the result is
  /// false, gradients are this rank's own, and are not to be applied; see `replica::all_reduce`.
  ///
  /// Also after `loss.backward()` of one's own, which sends nothing before: the gradient there is counts by
  /// `options.weight` or the batch's samples.
  template <class Batch>
  step_result all_reduce(const Batch& batch, const step_options& options = {}) {
    step_options all = options;
    if (calls_ != 0) {
      if (options.weight)
        detail::reject_option("torch_replica: all_reduce", "weight", std::to_string(*options.weight),
                              "none beside those of backward and accumulate");
      all.weight = weight();
    }
    const std::size_t last = buckets_.size() - 1;
    while (sent_ < last) send(batch, all);
    buckets_[last].fill(share());
    const reduce_buffer rest = buckets_[last].buffer();
    reset();
    const step_result result = replica_.all_reduce_buffers(batch, all, {&rest, 1});
    if (result && result.of != batch.step())
      throw error(
          "torch_replica: whether a step counts is only known later with this communicator, and an optimiser of "
          "LibTorch's cannot take its update back; wanted replica_options{.lag = 0}",
          {.stage = "all_reduce", .epoch = batch.epoch(), .step = batch.step()});
    if (result)
      for (detail::torch_bucket& one : buckets_) one.hand_out();
    return result;
  }

  /// Rank 0's buffers, such as the running statistics of batch norm, replace those of all others. All ranks call it,
  /// outside the steps: before a validation, for example.
  void broadcast_buffers() { detail::broadcast(replica_, entries(false)); }

  /// How many buckets the gradients make, and are sent in.
  std::size_t buckets() const noexcept { return buckets_.size(); }

 private:
  /// What of a batch the exchange is told.
  struct place {
    batch_info what;
    stream_view on;
    const batch_info& info() const noexcept { return what; }
    stream_view stream() const noexcept { return on; }
  };
  /// Behind a parameter's accumulation: `grad()` is what this backward makes of it.
  struct hook final : torch::autograd::FunctionPostHook {
    hook(torch_replica& whose, std::size_t which) : of(whose), bucket(which) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      of.arrived(bucket);
      return outputs;
    }
    torch_replica& of;
    std::size_t bucket;
  };

  std::vector<detail::torch_entry> entries(bool with_parameters) const {
    std::vector<detail::torch_entry> all;
    std::unordered_set<const void*> seen;  // one that is shared counts once
    const auto add = [&](const auto& named, bool parameter) {
      for (const auto& one : named) {
        const at::Tensor& tensor = one.value();
        if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
        all.push_back({one.key(), tensor, parameter});
        check_device(all.back());
      }
    };
    if (with_parameters) add(module_.named_parameters(), true);
    add(module_.named_buffers(), false);
    return all;
  }
  void check_device(const detail::torch_entry& one) const {
    using device_type = typename Replica::device_type;
    at::Device wanted(at::kCPU);
    if constexpr (!host_device<device_type>)
      wanted = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(replica_.device().ordinal()));
    if (one.tensor.device() != wanted)
      throw error(detail::concat("torch_replica: ", detail::text_of(one), " is on ", one.tensor.device().str(),
                                 ", the replica on ", wanted.str(), "; wanted module.to(device) before"));
  }

  void reset() {
    for (std::size_t b = 0; b < buckets_.size(); ++b) missing_[b] = buckets_[b].size();
    sent_ = 0;
    place_.reset();
    calls_ = 0;
    total_ = reference_ = 0;
    weighed_ = false;
  }
  /// What the loss is to be multiplied by: batches of one step count by their weights, and the first one's is 1, so
  /// that a step of one batch has the gradients that it has elsewhere.
  double count(const batch_info& info, std::optional<double> weight) {
    // A step that was left before its end is over.
    if (calls_ != 0 && (info.epoch != epoch_ || info.step < step_)) reset();
    epoch_ = info.epoch;
    step_ = info.step;
    const double mine = info.count == 0 ? 0 : weight.value_or(static_cast<double>(info.count));
    if (!(mine >= 0)) detail::reject_option("torch_replica", "weight", std::to_string(mine), "0 or more");
    ++calls_;
    weighed_ = weighed_ || weight.has_value();
    if (reference_ == 0) reference_ = mine;
    total_ += mine;
    return mine == 0 ? 0 : mine / reference_;
  }
  /// Of this rank's gradients; none where it is the batch's number of samples.
  std::optional<double> weight() const {
    if (calls_ < 2 && !weighed_) return {};
    return total_;
  }
  double share() const { return total_ == 0 ? 1 : reference_ / total_; }

  static void run(const at::Tensor& loss, double factor) { (factor == 1 ? loss : loss * factor).backward(); }

  void arrived(std::size_t bucket) {
    if (!place_) return;
    if (bucket < sent_ || missing_[bucket] == 0)
      throw error(
          "torch_replica: a gradient comes after it was sent to the other ranks, by another backward of the same step; "
          "wanted accumulate(batch, loss) for all but the last, or one loss that is the sum",
          {.stage = "backward", .epoch = epoch_, .step = step_});
    --missing_[bucket];
    // Autograd's threads for devices may not exchange values.
    if (std::this_thread::get_id() != thread_) return;
    while (sent_ + 1 < buckets_.size() && missing_[sent_] == 0) send(*place_, {.weight = weight()});
  }
  template <class Batch>
  void send(const Batch& batch, const step_options& options) {
    detail::torch_bucket& one = buckets_[sent_];
    one.fill(share());
    ++sent_;
    replica_.ready(batch, step_options{.weight = options.weight}, one.buffer());
  }

  Replica& replica_;
  torch::nn::Module& module_;
  std::thread::id thread_;
  std::vector<detail::torch_bucket> buckets_;
  std::vector<std::size_t> missing_;  // of each bucket's gradients, in this backward
  std::size_t sent_ = 0;              // buckets of this step
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, std::uintptr_t>> hooks_;
  std::optional<place> place_;  // of the batch whose backward sends
  std::size_t calls_ = 0;       // of backward and accumulate in this step
  double total_ = 0, reference_ = 0;
  bool weighed_ = false;
  std::uint64_t epoch_ = 0, step_ = 0;
};

}  // namespace penstock
