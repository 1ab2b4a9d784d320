// SPDX-License-Identifier: Apache-2.0
#include "train.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <span>

#include <penstock/observe/progress.hpp>

#include "chart.hpp"
#include "statistics.hpp"

namespace trainer {
namespace {

using clock = std::chrono::steady_clock;

const char* name_of(ending how) {
  switch (how) {
    case ending::done: return "done";
    case ending::early_stop: return "early stop";
    case ending::not_a_number: return "the loss is no number";
    case ending::timeout: return "time-out";
    case ending::interrupted: return "interrupted";
    default: return "error";
  }
}

/// How good the outputs `predict(x, rows)` are, in the target's unit, for the samples of one epoch.
scores evaluate(feed& from, std::uint64_t epoch, const standardise& inputs, auto predict) {
  scores result;
  for (auto& batch : from.epoch(epoch)) {
    const auto [x, y] = batch.fields();
    const auto outputs = predict(x.data(), batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) result.add(inputs.value(outputs(i)), inputs.value(y(i)));
  }
  return result;
}

class training {
 public:
  training(const settings& s, std::optional<checkpoint> from, const parts& data)
      : s_(s), data_(data), net_(std::get<0>(data.train.schema().fields).shape[0], s.layers, s.width, s.batch) {
    std::filesystem::create_directories(s.out);
    last_.network = net_.initial(s.seed);
    if (from) last_ = std::move(*from);
    if (!net_.fits(last_.network)) throw penstock::error("the checkpoint's network is of another shape");
    last_.options = s;
    const auto best = std::filesystem::path(s.resume).parent_path() / "best.ckpt";
    best_ = from && std::filesystem::exists(best) ? load(best.string()) : last_;
    for (const double loss : last_.validation) improves(loss);
  }

  ending run(std::stop_token stop) {
    const auto start = clock::now();
    ending how = ending::error;
    std::string report = "test: none";
    try {
      how = loop(stop);
    } catch (const penstock::timeout_error& late) {
      how = ending::timeout;
      std::fprintf(stderr, "time-out: %s\n", late.what());
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "error: %s\n", problem.what());
    }
    try {
      save_both();
      const std::string svg =
          chart("RMSE of " + std::get<1>(data_.train.schema().fields).name,
                {{"training", "#1f77b4", last_.training}, {"validation", "#d62728", last_.validation}});
      penstock::write_atomically(path("loss.svg"), std::as_bytes(std::span(svg)));
      if (how != ending::timeout) report = test();  // else the data may be stuck for good
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "error: %s\n", problem.what());
      how = ending::error;
    }
    std::printf("curve: %s\nmodel: regression_trainer --model %s --predict FILE\n", path("loss.svg").c_str(),
                path("best.ckpt").c_str());
    std::printf("ended: %s step %llu; to go on: regression_trainer --resume %s\n%s seconds=%.2f\n", name_of(how),
                static_cast<unsigned long long>(last_.network.steps), path("last.ckpt").c_str(), report.c_str(),
                std::chrono::duration<double>(clock::now() - start).count());
    return how;
  }

 private:
  auto network(const network_state& state) {
    return [&](const float* x, Eigen::Index rows) { return net_.predict(state.parameters, x, rows); };
  }
  ending loop(std::stop_token stop) {
    if (last_.inputs.mean.empty()) {
      moments_ = statistics(data_.train, s_, stop);
      if (moments_.count == 0) return ending::interrupted;
      const Eigen::VectorXd deviation = moments_.deviation();
      last_.inputs = {{moments_.mean.begin(), moments_.mean.end()}, {deviation.begin(), deviation.end()}, s_.squash};
      best_ = last_;
    }
    auto batches = shuffled_batches(data_.train, s_, last_.inputs);
    auto checks = ordered_batches(data_.validation, s_, last_.inputs);
    batches.observe(penstock::progress_bar{{.epochs = s_.epochs}});
    batches.set_last_epoch(s_.epochs - 1);
    batches.stop_when(stop);
    if (!last_.feed.empty()) batches.resume(penstock::feed_state::parse(last_.feed));
    const double total = s_.epochs * batches.steps_per_epoch().value();
    network_state& now = last_.network;

    for (std::uint64_t epoch = batches.state().epoch; epoch < s_.epochs; ++epoch) {
      for (auto& batch : batches.epoch(epoch)) {
        const auto [x, y] = batch.fields();
        const float loss = net_.differentiate(now.parameters, x.data(), y.data(), batch.size());
        if (!std::isfinite(loss)) return ending::not_a_number;  // model and state are those before this batch
        const float rate = cosine_rate(s_.rate, now.steps / total);
        (s_.adam ? adam_step(now, net_.gradients(), rate, s_.momentum)
                 : sgd_step(now, net_.gradients(), rate, s_.momentum));
        last_.seen += batch.size();
        last_.loss += double{loss} * batch.size();
        state_ = batches.state();
        batches.report("loss", loss);
      }
      if (last_.seen == data_.train.size()) {
        last_.training.push_back(last_.inputs.scale.back() * std::sqrt(last_.loss / last_.seen));
        last_.validation.push_back(evaluate(checks, epoch, last_.inputs, network(now)).rmse());
        last_.seen = 0;
        last_.loss = 0;
        last_.feed = state_->text();
        if (improves(last_.validation.back())) best_ = last_;
        if (since_best_ == s_.patience && s_.patience > 0) return ending::early_stop;
      }
      if (batches.stopped()) return ending::interrupted;
      if (clock::now() > saved_ + std::chrono::seconds(1)) save_both();
    }
    return ending::done;
  }

  bool improves(double loss) {
    since_best_ = loss < least_ ? 0 : since_best_ + 1;
    least_ = std::min(least_, loss);
    return since_best_ == 0;
  }

  void save_both() {
    if (state_) last_.feed = state_->text();
    save(path("last.ckpt"), last_);
    save(path("best.ckpt"), best_);
    saved_ = clock::now();
  }

  /// Scores of the best model as it is on the disk, beside two baselines: least squares, and the mean.
  std::string test() {
    const checkpoint best = load(path("best.ckpt"));
    if (best.inputs.mean.empty() || data_.test.size() == 0) return "test: none";
    if (moments_.count == 0) moments_ = statistics(data_.train, s_, {});
    const Eigen::VectorXd line = moments_.least_squares();
    auto standardised = ordered_batches(data_.test, s_, best.inputs), plain = ordered_batches(data_.test, s_, {});
    const scores model = evaluate(standardised, 0, best.inputs, network(best.network));
    const scores ols = evaluate(plain, 0, {}, [&](const float* x, Eigen::Index rows) -> Eigen::VectorXd {
      const Eigen::Map<const matrix> all(x, rows, line.size() - 1);
      return (all.cast<double>() * line.head(all.cols())).array() + line.tail(1).value();
    });
    const scores mean = evaluate(plain, 1, {}, [&](const float*, Eigen::Index rows) {
      return Eigen::VectorXd::Constant(rows, moments_.mean.tail(1).value());
    });
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
  mlp net_;
  comoments moments_;
  checkpoint last_, best_;
  std::optional<penstock::feed_state> state_;
  double least_ = std::numeric_limits<double>::infinity();
  std::uint64_t since_best_ = 0;
  clock::time_point saved_{};
};

}  // namespace

ending train(const settings& s, std::optional<checkpoint> from, const parts& data, std::stop_token stop) {
  return training(s, std::move(from), data).run(stop);
}

}  // namespace trainer
