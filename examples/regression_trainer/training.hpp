// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>

#include <penstock/observe/progress.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

#include "data.hpp"
#include "mlp.hpp"
#include "statistics.hpp"
#include "train.hpp"

namespace trainer {

using clock = std::chrono::steady_clock;

// What does not depend on where the network is.
const char* name_of(ending how);
/// A batch did not come in time, of this replica or of another one of this process.
bool is_timeout(const std::exception& problem);
void draw_curve(const std::string& file, const std::string& target, const checkpoint& state);
struct baselines {
  scores least_squares, mean;
};
/// How good the line of least squares and the mean are, which `moments` of the training data tell.
baselines score_baselines(const table& data, const settings& s, const comoments& moments);

/// How good outputs are, in the target's unit, for the samples of one epoch. `predict(batch, use)` calls
/// `use(outputs, targets, samples)` for this batch, or for earlier ones, `finish(use)` for those that are still to
/// come.
scores evaluate(auto& from, std::uint64_t epoch, const standardise& inputs, auto predict, auto finish) {
  scores result;
  const auto use = [&](const auto* outputs, const float* targets, std::size_t samples) {
    for (std::size_t i = 0; i < samples; ++i) result.add(inputs.value(outputs[i]), inputs.value(targets[i]));
  };
  for (auto& batch : from.epoch(epoch)) predict(batch, use);
  finish(use);
  return result;
}

/// What is asked of a `penstock::replica`, for a training without others.
struct alone {
  operator penstock::world() const { return {}; }
  auto start(const auto& work) { return work.start(); }
  bool all_reduce_buffers(const auto&...) { return true; }
  void sum(std::span<double>) {}
};

/// What `work()` comes to, and its problem is told.
template <class Work>
ending ending_of(Work work) {
  try {
    return work();
  } catch (const std::exception& problem) {
    const bool late = is_timeout(problem);
    std::fprintf(stderr, "%s: %s\n", late ? "time-out" : "error", problem.what());
    return late ? ending::timeout : ending::error;
  }
}

/// The loop, and all that it owes at its end. It knows nothing of where the network is: `Network` is `cpu_network`, or
/// one whose losses come later than its steps. Then the host waits, besides for batches, at an epoch's end alone, for
/// its last losses, its validation and, when a checkpoint is written, the parameters; and for the oldest loss when
/// there is no room for another.
template <class Network>
class training {
  using which = typename Network::which;

 public:
  template <class... From>
  training(const settings& s, std::optional<checkpoint> from, const parts& data, From&&... network)
      : s_(s),
        data_(data),
        layout_(std::get<0>(data.train.schema().fields).shape[0], s.layers, s.width),
        net_(layout_, s, std::forward<From>(network)...),
        pending_(net_.most_in_flight()) {
    std::filesystem::create_directories(s.out);
    last_.network = mlp::initial(layout_, s.seed);
    if (from) last_ = std::move(*from);
    if (!fits(layout_, last_.network)) throw penstock::error("the checkpoint's network is of another shape");
    last_.options = s;
    const auto best = std::filesystem::path(s.resume).parent_path() / "best.ckpt";
    best_ = from && std::filesystem::exists(best) ? load(best.string()) : last_;
    if (!fits(layout_, best_.network))
      throw penstock::error("the network is of another shape", {.path = best.string()});
    for (const double loss : last_.validation) improves(loss);
    const std::uint64_t size = s.batch;
    net_.prepare({size, data.train.size() % size, data.validation.size() % size, data.test.size() % size});
    net_.load(which::now, last_.network);
    net_.load(which::kept, best_.network);
  }

  ending run(std::stop_token stop, const std::string& device) {
    alone only;
    return finish(ending_of([&] { return loop(only, stop); }), device);
  }

  /// Puts everything on the disk and prints the report. By one replica, the first, when the loops of all have ended.
  ending finish(ending how, const std::string& device) {
    std::string report = "test: none";
    bool saved = false;
    try {
      // What was enqueued before the loop was left belongs to the run.
      if (!collect(0, [](float) {})) how = ending::not_a_number;
      save_both();
      saved = true;
    } catch (const std::exception& problem) {
      // A device that is lost: the files stay as they were saved last.
      std::fprintf(stderr, "error: %s\n", problem.what());
      how = ending::error;
    }
    try {
      draw_curve(path("loss.svg"), std::get<1>(data_.train.schema().fields).name, last_);
      if (saved && how != ending::timeout) report = test();  // else the data may be stuck for good
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "error: %s\n", problem.what());
      how = ending::error;
    }
    std::printf("device: %s\ncurve: %s\nmodel: regression_trainer --model %s --predict FILE\n", device.c_str(),
                path("loss.svg").c_str(), path("best.ckpt").c_str());
    std::printf("ended: %s step %llu; to go on: regression_trainer --resume %s\n%s seconds=%.2f\n", name_of(how),
                static_cast<unsigned long long>(saved_steps_), path("last.ckpt").c_str(), report.c_str(),
                std::chrono::duration<double>(clock::now() - start_).count());
    std::fflush(stdout);  // mpirun ends whom it sees behind others' failure
    return how;
  }

  /// The same on all replicas: whatever decides how it goes on is of all samples.
  ending loop(auto& replica, std::stop_token stop) {
    start_ = clock::now();
    const bool first = penstock::world(replica).rank == 0;
    if (last_.inputs.mean.empty()) {
      moments_ = statistics(data_.train, s_, stop);
      double stopped[] = {moments_.count == 0 ? 1.0 : 0.0};
      replica.sum(stopped);
      if (stopped[0] > 0) return ending::interrupted;
      const Eigen::VectorXd deviation = moments_.deviation();
      last_.inputs = {{moments_.mean.begin(), moments_.mean.end()}, {deviation.begin(), deviation.end()}, s_.squash};
      best_ = last_;
    }
    const auto work = net_.batches(data_.train, s_, penstock::shuffle::full, last_.inputs, replica);
    if (first) std::fputs(penstock::describe(work).c_str(), stdout), std::fflush(stdout);
    auto batches = replica.start(work);
    auto checks = net_.batches(data_.validation, s_, penstock::shuffle::none, last_.inputs, replica).start();
    if (first) batches.observe(penstock::progress_bar{{.epochs = s_.epochs}});
    batches.set_last_epoch(s_.epochs - 1);
    batches.stop_when(stop);
    if (!last_.feed.empty()) batches.resume(penstock::feed_state::parse(last_.feed));
    const double total = s_.epochs * batches.steps_per_epoch().value();
    const auto tell = [&](float loss) { batches.report("loss", loss); };
    if (Network::can_be_lost && first) save_both();  // so that there is something to go on from

    for (std::uint64_t epoch = batches.state().epoch; epoch < s_.epochs; ++epoch) {
      for (auto& batch : batches.epoch(epoch)) {
        net_.differentiate(batch);
        if (!replica.all_reduce_buffers(batch, penstock::step_options{}, net_.means())) continue;
        const std::uint64_t done = last_.network.steps + in_flight();
        net_.update(cosine_rate(s_.rate, done / total), done + 1);
        pending_[begun_++ % pending_.size()] = {batch.info().total, batches.state()};
        if (!collect(pending_.size() - 1, tell)) return ending::not_a_number;
      }
      if (!collect(0, tell)) return ending::not_a_number;
      if (last_.seen == data_.train.size()) {
        last_.training.push_back(last_.inputs.scale.back() * std::sqrt(last_.loss / last_.seen));
        const scores mine = evaluate(checks, epoch, last_.inputs);
        double all[] = {mine.squares(), mine.count()};
        replica.sum(all);
        last_.validation.push_back(std::sqrt(all[0] / all[1]));
        last_.seen = 0;
        last_.loss = 0;
        last_.feed = state_->text();
        if (improves(last_.validation.back())) {
          best_ = last_;
          net_.keep();
        }
        if (since_best_ == s_.patience && s_.patience > 0) return ending::early_stop;
      }
      if (batches.stopped()) return ending::interrupted;
      if (first && clock::now() > saved_ + std::chrono::seconds(1)) save_both();
    }
    return ending::done;
  }

 private:
  /// A step that was begun: what its loss is worth, and where the feed stands behind it.
  struct step_begun {
    std::uint64_t samples;
    penstock::feed_state feed;
  };

  std::size_t in_flight() const { return begun_ - collected_; }
  /// Takes note of the losses that are there, in the order of their steps, and waits for more while over `most` are to
  /// come. False if one is no number: then the state, here as in the network, is the one before that step.
  bool collect(std::size_t most, auto tell) {
    while (in_flight() > 0) {
      const std::optional<float> loss = net_.loss(in_flight() > most);
      if (!loss) return true;
      if (!std::isfinite(*loss)) {
        collected_ = begun_;
        return false;
      }
      const step_begun& step = pending_[collected_++ % pending_.size()];
      last_.network.steps += 1;
      last_.seen += step.samples;
      last_.loss += double{*loss} * step.samples;
      state_ = step.feed;
      tell(*loss);
    }
    return true;
  }

  bool improves(double loss) {
    since_best_ = loss < least_ ? 0 : since_best_ + 1;
    least_ = std::min(least_, loss);
    return since_best_ == 0;
  }

  /// Needs all losses collected, so that counts and parameters are of the same step.
  void save_both() {
    if (state_) last_.feed = state_->text();
    net_.fetch(which::now, last_.network);
    net_.fetch(which::kept, best_.network);
    save(path("last.ckpt"), last_);
    save(path("best.ckpt"), best_);
    saved_ = clock::now();
    saved_steps_ = last_.network.steps;
  }

  scores evaluate(auto& from, std::uint64_t epoch, const standardise& inputs) {
    net_.begin_predictions();
    return trainer::evaluate(
        from, epoch, inputs, [&](auto& batch, auto& use) { net_.predict(batch, use); },
        [&](auto& use) { net_.finish_predictions(use); });
  }

  /// Scores of the best model as it is on the disk, beside two baselines: least squares, and the mean.
  std::string test() {
    const checkpoint best = load(path("best.ckpt"));
    if (best.inputs.mean.empty() || data_.test.size() == 0) return "test: none";
    if (moments_.count == 0) moments_ = statistics(data_.train, s_, {});
    auto standardised = net_.batches(data_.test, s_, penstock::shuffle::none, best.inputs).start();
    net_.load(which::now, best.network);
    const scores model = evaluate(standardised, 0, best.inputs);
    const auto [ols, mean] = score_baselines(data_.test, s_, moments_);
    char text[256];
    std::snprintf(text, sizeof(text), "test: rmse=%.6g mae=%.6g r2=%.5f ols_rmse=%.6g mean_rmse=%.6g", model.rmse(),
                  model.mae(), model.r2(), ols.rmse(), mean.rmse());
    for (const auto& [name, one] : {std::pair{"network", model}, {"least squares", ols}, {"mean", mean}})
      std::printf("%-14s RMSE %10.6g  MAE %10.6g  R2 %8.5f\n", name, one.rmse(), one.mae(), one.r2());
    return text;
  }

  std::string path(const char* name) const { return s_.out + '/' + name; }

  const settings& s_;
  const parts& data_;
  network_layout layout_;
  Network net_;
  comoments moments_;
  checkpoint last_, best_;
  std::vector<step_begun> pending_;
  std::uint64_t begun_ = 0, collected_ = 0;
  std::optional<penstock::feed_state> state_;  // behind the last step whose loss was collected
  double least_ = std::numeric_limits<double>::infinity();
  std::uint64_t since_best_ = 0, saved_steps_ = 0;
  clock::time_point start_{}, saved_{};
};

/// Prints the model's outputs for all rows, in the target's unit, line by line.
template <class Network>
void predict_on(Network&& net, const checkpoint& model, const table& rows, const settings& s) {
  net.prepare({static_cast<std::uint64_t>(s.batch), rows.size() % s.batch});
  net.load(std::remove_cvref_t<Network>::which::now, model.network);
  const auto print = [&](const float* outputs, const float*, std::size_t samples) {
    for (std::size_t i = 0; i < samples; ++i) std::printf("%.9g\n", model.inputs.value(outputs[i]));
  };
  auto batches = net.batches(rows, s, penstock::shuffle::none, model.inputs).start();
  for (auto& batch : batches.epoch(0)) net.predict(batch, print);
  net.finish_predictions(print);
}

}  // namespace trainer
