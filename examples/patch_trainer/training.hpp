// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/cuda.h>
#include <torch/data.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include <penstock/interop/torch.hpp>
#include <penstock/interop/torch_replica.hpp>
#include <penstock/observe/csv_log.hpp>
#include <penstock/observe/html_report.hpp>
#include <penstock/observe/progress.hpp>
#include <penstock/observe/tensorboard.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

#include "checkpoint.hpp"
#include "photos.hpp"
#include "score.hpp"
#include "train.hpp"

namespace patch_trainer {

using clock = std::chrono::steady_clock;

const char* name_of(ending how);
/// What `work()` comes to, and its problem is told.
ending ending_of(const std::function<ending()>& work);

/// What only the report sees: inputs and what they should become.
struct held_out {
  std::vector<picture> inputs, targets;
};

at::Tensor tensor_of(const picture& one);
/// What the network makes of a picture.
picture improved(convolutions& net, const picture& input, const at::Device& device);
/// Prints how good the network is on what it never saw, beside its rivals, and draws strip.svg. Returns the line that a
/// script reads.
std::string report(convolutions& net, const held_out& seen, const settings& s, const at::Device& device);

/// How a step's gradients become those of all replicas: for one alone they are already.
struct alone {
  explicit alone(auto&, convolutions&) {}
  struct result {
    std::array<double, 1> metrics;
    std::uint64_t samples;
    explicit operator bool() const { return true; }
  };
  void backward(const auto&, const at::Tensor& loss) { loss.backward(); }
  result all_reduce(const auto& batch, const penstock::step_options& options) {
    return {{options.metrics[0]}, batch.size()};
  }
};

/// Patches as LibTorch's DataLoader takes them: a tensor for each of input and response.
template <class Patches>
struct torch_patches : torch::data::datasets::Dataset<torch_patches<Patches>> {
  torch_patches(const Patches& from, std::uint64_t key, std::shared_ptr<std::atomic<std::uint64_t>> which)
      : patches(from), seed(key), epoch(std::move(which)) {}

  torch::data::Example<> get(std::size_t index) override {
    const auto [input, response, origin] = patches.schema().fields;
    const auto make = [](const auto& field) {
      return torch::empty({static_cast<std::int64_t>(field.shape[0]), static_cast<std::int64_t>(field.shape[1]),
                           static_cast<std::int64_t>(field.shape[2])});
    };
    torch::data::Example<> result{make(input), make(response)};
    penstock::patch_origin place;
    penstock::philox random(seed, epoch->load(), index);
    const std::stop_token none;
    penstock::read_context context{random, epoch->load(), none};
    using view = penstock::tensor_view<float, 3>;
    patches.read(
        index,
        {view(result.data.data_ptr<float>(), input.shape), view(result.target.data_ptr<float>(), response.shape),
         penstock::tensor_view<penstock::patch_origin, 0>(&place, {})},
        context);
    return result;
  }
  torch::optional<std::size_t> size() const override { return patches.size(); }

  Patches patches;
  std::uint64_t seed;
  std::shared_ptr<std::atomic<std::uint64_t>> epoch;
};

/// One network, its optimiser, and a loop over batches. Each replica has one.
template <class Device>
class training {
 public:
  training(const settings& s, Device device, at::Device where)
      : s_(s),
        device_(std::move(device)),
        where_(where),
        net_(s.layers, s.width, s.channels(), s.channels(), !s.pairs()),
        adam_((net_.to(where), net_.parameters()), torch::optim::AdamOptions(s.rate)) {
    if (uses_bfloat16(s)) net_.train_in_bfloat16();
    if (!s.resume.empty()) {
      checkpoint from(s.resume);
      from.restore(net_, adam_);
      feed_ = from.feed();
    }
  }

  convolutions& network() { return net_; }

  /// The training loop: one of our own, over what the pipeline delivers, alike on all replicas. `scope(batch)` gives
  /// what is to live while a batch is worked on, such as a guard of LibTorch's stream.
  template <class Together>
  ending loop(auto& replica, const auto& patches, const held_out& seen, std::stop_token stop, auto scope) {
    const bool first = penstock::world(replica).rank == 0;
    const auto work =
        patches | penstock::partition(patches.blocks(s_.together), {.seed = seed(), .world = replica}) |
        penstock::read({.readers = s_.readers,
                        .timeout = s_.readers == 0 ? std::optional<std::chrono::nanoseconds>() : patience(),
                        .bad = penstock::bad_samples::skip,
                        .most_bad = patches.size() / 10}) |
        penstock::batch({.global = s_.batch}) | penstock::transfer(device_, {.depth = s_.depth});
    auto batches = replica.start(work);
    if (first) {
      const std::string table = penstock::describe(work);
      std::fputs(table.c_str(), stdout), std::fflush(stdout);
      batches.describe_as(table);
      watch(batches);
    }
    batches.set_last_epoch(s_.epochs - 1);
    batches.stop_when(stop);
    if (!feed_.empty()) batches.resume(penstock::feed_state::parse(feed_));
    Together together(replica, net_);
    steps_ = batches.steps_per_epoch().value() * s_.epochs;

    for (std::uint64_t epoch = batches.state().epoch; epoch < epochs(); ++epoch) {
      for (auto& batch : batches.epoch(epoch)) {
        [[maybe_unused]] const auto on_stream = scope(batch);
        const auto loss = lose(penstock::to_tensor<0>(batch), penstock::to_tensor<1>(batch));
        together.backward(batch, loss);
        // A device is asked for its loss now and then, as asking waits for it.
        const bool asked = where_.is_cpu() || batch.step() % 20 == 0;
        const double mine = asked && batch.size() != 0 ? loss.template item<double>() * batch.size() : 0;
        const auto step = together.all_reduce(batch, {.metrics = {&mine, 1}});
        if (!step) continue;
        // Of all replicas, so that all end alike, before anything of it is in the model.
        if (!std::isfinite(step.metrics[0])) return ending::not_a_number;
        if (asked) batches.report("loss", step.metrics[0] / step.samples);
        update(epoch * (steps_ / s_.epochs) + batch.step());
        feed_ = batches.state().text();
        if (first && clock::now() > saved_ + std::chrono::minutes(1)) keep();
      }
      if (batches.stopped()) return ending::interrupted;
      feed_ = batches.state().text();
      if (first && (epoch + 1) % 5 == 0) batches.report("PSNR", validate(seen));
      if (first && clock::now() > saved_ + std::chrono::seconds(10)) keep();
    }
    return ending::done;
  }

  /// The same training by LibTorch's own DataLoader: the same patches in another order, as many workers.
  ending loop_of_torch(const auto& patches, const held_out& seen, std::stop_token stop) {
    using patches_type = std::remove_cvref_t<decltype(patches)>;
    torch_patches<patches_type> data{patches, seed(), std::make_shared<std::atomic<std::uint64_t>>(0)};
    auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        data.map(torch::data::transforms::Stack<>()),
        torch::data::DataLoaderOptions().batch_size(s_.batch).workers(s_.readers).enforce_ordering(false));
    const std::uint64_t per_epoch = (patches.size() + s_.batch - 1) / s_.batch;
    steps_ = per_epoch * s_.epochs;
    penstock::progress_bar bar{{.epochs = epochs(), .steps_per_epoch = per_epoch}};
    bar.on_begin({.epochs = epochs(), .steps_per_epoch = per_epoch});
    for (std::uint64_t epoch = 0; epoch < epochs(); ++epoch) {
      std::uint64_t step = 0;
      data.epoch->store(epoch);
      auto asked = clock::now();
      for (auto& batch : *loader) {
        bar.on_batch({epoch, step, static_cast<std::uint64_t>(batch.data.size(0)), clock::now() - asked, per_epoch});
        const auto loss = lose(batch.data, batch.target);
        loss.backward();
        const float value = loss.template item<float>();
        if (!std::isfinite(value)) return ending::not_a_number;
        bar.on_metric({"loss", value, epoch, step});
        update(epoch * per_epoch + step++);
        if (stop.stop_requested()) return ending::interrupted;
        asked = clock::now();
      }
      bar.on_epoch({.epoch = epoch, .steps = step});
      if ((epoch + 1) % 5 == 0) bar.on_metric({"PSNR", validate(seen), epoch, step});
    }
    bar.on_end({"done"});
    return ending::done;
  }

  /// Puts the model on the disk as it is after the last step that counted; not one that is no number any more.
  void keep() {
    if (feed_.empty()) return;
    settle();
    for (const at::Tensor& one : net_.parameters())
      if (!at::isfinite(one).all().template item<bool>()) return;
    save(s_.out + "/model.ckpt", s_, net_, adam_, feed_);
    saved_ = clock::now();
    kept_ = true;
  }
  bool kept() const { return kept_; }

 private:
  void watch(auto& batches) {
    batches.observe(penstock::progress_bar{{.epochs = epochs()}});
    batches.observe(penstock::csv_log(s_.out + "/steps.csv"));
    batches.observe(penstock::tensorboard(s_.out + "/tensorboard"));
    batches.observe(penstock::html_report(s_.out + "/report.html",
                                          {.title = s_.pairs() ? "Image to image" : "Denoising", .epochs = epochs()}));
  }

  std::uint64_t seed() const { return static_cast<std::uint64_t>(s_.seed); }
  std::uint64_t epochs() const { return static_cast<std::uint64_t>(s_.epochs); }
  std::chrono::nanoseconds patience() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(s_.timeout * 1e9));
  }

  /// The mean squared error over the batch, with no gradients of the step before.
  at::Tensor lose(const at::Tensor& x, const at::Tensor& y) {
    adam_.zero_grad();
    return torch::nn::functional::mse_loss(net_.forward(x), y);
  }
  void update(std::uint64_t step) {
    const double rate = s_.rate * 0.5 * (1 + std::cos(std::numbers::pi * (step + 1.0) / steps_));
    for (auto& group : adam_.param_groups()) static_cast<torch::optim::AdamOptions&>(group.options()).lr(rate);
    adam_.step();
  }

  /// What was enqueued for batches is done: the rest works on another stream.
  void settle() {
    if (!where_.is_cpu()) torch::cuda::synchronize();
  }

  double validate(const held_out& seen) {
    settle();
    double sum = 0;
    for (std::size_t i = 0; i < seen.inputs.size(); ++i)
      sum += psnr(improved(net_, seen.inputs[i], where_), seen.targets[i]);
    return sum / seen.inputs.size();
  }

  const settings& s_;
  Device device_;
  at::Device where_;
  convolutions net_;
  torch::optim::Adam adam_;
  std::uint64_t steps_ = 1;  // of the whole run
  std::string feed_;         // where the batches go on behind the last step that counted
  clock::time_point saved_ = clock::now();
  bool kept_ = false;
};

/// A training without others.
struct only_one {
  operator penstock::world() const { return {}; }
  auto start(const auto& work) { return work.start(); }
};

/// What `with(patches)` makes of the run's patches, of whichever task.
template <class With>
ending with_patches(const settings& s, held_out& seen, With with) {
  if (s.pairs()) {
    const auto [left, right] = penstock::image_pairs(penstock::image_files(s.inputs, decoding(s)),
                                                     penstock::image_files(s.responses, decoding(s)));
    const photos inputs = split(left, s), responses = split(right, s);
    for (std::size_t i = 0; i < inputs.held_out.size(); ++i) {
      seen.inputs.push_back(corner(inputs.held_out[i], s));
      seen.targets.push_back(corner(responses.held_out[i], s));
    }
    return with(pairs(inputs, responses, s));
  }
  const photos all = split(penstock::image_files(s.photos, decoding(s)), s);
  for (std::size_t i = 0; i < all.held_out.size(); ++i) {
    seen.targets.push_back(corner(all.held_out[i], s));
    seen.inputs.push_back(with_noise(seen.targets.back(), i, s));
  }
  return with(noisy(all, s));
}

/// After the loop: model, pictures and figures, whatever ended it.
template <class Device>
ending finish(ending how, training<Device>* first, const held_out& seen, const settings& s, const at::Device& where,
              clock::time_point begun) {
  std::string line = "test: none";
  if (first != nullptr) {
    try {
      first->keep();
      if (how != ending::not_a_number) line = report(first->network(), seen, s, where);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "error: %s\n", problem.what());
      how = ending::error;
    }
  }
  const bool kept = first != nullptr && first->kept();
  std::printf("ended: %s; %s\n%s seconds=%.1f\n", name_of(how),
              kept ? ("to go on: patch_trainer --resume " + s.out + "/model.ckpt").c_str() : "nothing to go on from",
              line.c_str(), std::chrono::duration<double>(clock::now() - begun).count());
  std::fflush(stdout);
  return how;
}

}  // namespace patch_trainer
