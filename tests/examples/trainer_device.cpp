// SPDX-License-Identifier: Apache-2.0
// The trainer's GPU network: what its kernels compute, against float64; the whole of it, with loops in place of cuBLAS
// and launches, against the network on the CPU; and training runs on it, and on a GPU if there is one.
#include <cmath>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <Eigen/Core>

#include "cpu_network.hpp"
#include "curve_data.hpp"
#include "late_network.hpp"
#include "program.hpp"
#include "replicated.hpp"
#include "train_cuda.hpp"

namespace {

using namespace trainer;
using program_test::content;
using program_test::curve_data;
using program_test::late_calls;
using program_test::late_network;
using program_test::temporary_directory;

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  penstock::philox random(7, 0, seed);
  std::vector<float> result(count);
  for (float& x : result) x = random.normal();
  return result;
}
void expect_near(double found, double wanted, double scale) { EXPECT_NEAR(found, wanted, 2e-6 * scale) << wanted; }

TEST(trainer_device_math, products_are_those_of_blas) {
  const int m = 5, n = 3, k = 4;
  const auto a = random_floats(m * k, 1), b = random_floats(k * n, 2);
  const auto stored = [](const std::vector<float>& at, int rows, int columns, bool transposed) -> Eigen::MatrixXd {
    const Eigen::MatrixXd as_it_lies =
        Eigen::Map<const Eigen::MatrixXf>(at.data(), transposed ? columns : rows, transposed ? rows : columns)
            .cast<double>();
    if (transposed) return as_it_lies.transpose();
    return as_it_lies;
  };
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      std::vector<float> c(m * n);
      late_calls::sgemm(ta, tb, m, n, k, a.data(), ta ? k : m, b.data(), tb ? n : k, c.data(), m);
      const Eigen::MatrixXd wanted = stored(a, m, k, ta) * stored(b, k, n, tb);
      for (int i = 0; i < m * n; ++i) expect_near(c[i], wanted(i), 10);
    }
}

TEST(trainer_device_math, biases_are_added_and_rectified) {
  const std::size_t rows = 37, columns = 5;
  const auto before = random_floats(rows * columns, 1), bias = random_floats(columns, 2);
  for (const bool rectify : {false, true}) {
    auto values = before;
    late_calls::cells(rows, columns, add_bias{values.data(), bias.data(), columns, rectify});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double sum = double{before[i]} + bias[i % columns];
      expect_near(values[i], rectify ? std::max(sum, 0.0) : sum, 1);
    }
  }
  float nan = NAN, zero = 0;
  add_bias{&nan, &zero, 1, true}(0, 0);
  EXPECT_TRUE(std::isnan(nan)) << "a network that is lost is not to look well";
}

TEST(trainer_device_math, squared_error_and_its_gradient) {
  for (const std::size_t rows : {1, 2, 511, 512, 513, 3000}) {
    const auto outputs = random_floats(rows, 1), targets = random_floats(rows, 2);
    std::vector<float> deltas(rows);
    float bias = 0, loss = 0, halted = 0;
    late_calls::sums(rows, 1,
                     squared_error{outputs.data(), targets.data(), rows, deltas.data(), &bias, &loss, &halted});
    double squares = 0, sum = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      const double error = double{outputs[i]} - targets[i];
      expect_near(deltas[i], 2 * error / rows, 1);
      squares += error * error / rows;
      sum += 2 * error / rows;
    }
    expect_near(loss, squares, 2);
    expect_near(bias, sum, 2);
    EXPECT_EQ(halted, 0);
  }
}

TEST(trainer_device_math, a_loss_that_is_no_number_halts) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    const float outputs[] = {1, bad}, targets[] = {1, 2};
    float deltas[2], bias = 0, loss = 0, halted = 0;
    late_calls::sums(2, 1, squared_error{outputs, targets, 2, deltas, &bias, &loss, &halted});
    EXPECT_FALSE(std::isfinite(loss));
    EXPECT_EQ(halted, 1);
  }
}

TEST(trainer_device_math, back_through_a_relu) {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{1, 1}, {7, 33}, {300, 40}, {1000, 1}}) {
    auto values = random_floats(rows * columns, 1);
    for (float& x : values) x = std::max(x, 0.0f);
    const auto before = random_floats(rows * columns, 2);
    auto deltas = before;
    std::vector<float> bias(columns);
    late_calls::sums(rows, columns, rectified_gradient{values.data(), columns, deltas.data(), bias.data()});
    for (std::size_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::size_t at = column; at < values.size(); at += columns) {
        EXPECT_EQ(deltas[at], values[at] > 0 ? before[at] : 0);
        sum += deltas[at];
      }
      expect_near(bias[column], sum, std::sqrt(rows) + 1);
    }
  }
}

TEST(trainer_device_math, one_step_of_each_optimiser) {
  const std::size_t size = 100;
  const auto g = random_floats(size, 1), p0 = random_floats(size, 2), m0 = random_floats(size, 3);
  auto v0 = random_floats(size, 4);
  for (float& x : v0) x *= x;
  const float rate = 0.01f, beta = 0.9f, halted = 1, running = 0;
  for (const double t : {1.0, 2.0, 1000.0}) {
    const auto [scale, root] = adam_factors(t, rate, beta, adam_beta2);
    auto p = p0, m = m0, v = v0;
    adam_update step{g.data(), &halted, p.data(), m.data(), v.data(), scale, root, beta, adam_beta2, adam_epsilon};
    late_calls::each(size, step);
    EXPECT_TRUE(p == p0 && m == m0 && v == v0);
    step.halted = &running;
    late_calls::each(size, step);
    const double b1 = beta, b2 = adam_beta2;
    for (std::size_t i = 0; i < size; ++i) {
      const double first = b1 * m0[i] + (1 - b1) * g[i], second = b2 * v0[i] + (1 - b2) * g[i] * g[i];
      const double change = rate * (first / (1 - std::pow(b1, t))) / (std::sqrt(second / (1 - std::pow(b2, t))) + 1e-8);
      expect_near(m[i], first, 1);
      expect_near(v[i], second, 5);
      EXPECT_NEAR(p[i], p0[i] - change, 1e-6 + 1e-4 * std::abs(change)) << t;  // 1 - beta2 is a float
    }
  }
  auto p = p0, m = m0;
  momentum_update step{g.data(), &halted, p.data(), m.data(), rate, beta};
  late_calls::each(size, step);
  EXPECT_TRUE(p == p0 && m == m0);
  step.halted = &running;
  late_calls::each(size, step);
  for (std::size_t i = 0; i < size; ++i) {
    expect_near(m[i], double{beta} * m0[i] + g[i], 2);
    expect_near(p[i], p0[i] - double{rate} * (double{beta} * m0[i] + g[i]), 2);
  }
}

/// As much of a batch as networks look at.
struct plain_batch {
  std::vector<float> x, y;
  std::size_t size() const { return y.size(); }
  template <std::size_t I>
  auto host() const {
    static_assert(I == 1);
    return penstock::tensor_view<const float, 1>(y.data(), {y.size()});
  }
  auto fields() const {
    return std::pair{penstock::tensor_view<const float, 2>(x.data(), {y.size(), x.size() / y.size()}), host<1>()};
  }
};

struct shape {
  std::uint64_t features, hidden, width;
  std::int64_t batch;
  bool adam;
};
class trainer_device_network : public testing::TestWithParam<shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, trainer_device_network,
                         testing::Values(shape{1, 1, 1, 1, true}, shape{9, 2, 64, 256, true}, shape{3, 1, 7, 5, false},
                                         shape{20, 3, 33, 70, false}, shape{5, 4, 16, 600, true}));

// The very code that enqueues on a GPU, step by step beside the network on the CPU.
TEST_P(trainer_device_network, steps_as_the_one_on_the_cpu) {
  const auto [features, hidden, width, batch, adam] = GetParam();
  const network_layout layout(features, hidden, width);
  settings s;
  s.batch = batch;
  s.adam = adam;
  s.momentum = adam ? 0.9f : 0.5f;
  s.depth = 1;
  cpu_network cpu(layout, s);
  late_network device(layout, s);
  network_state start = mlp::initial(layout, 3);
  start.parameters.array() += 0.01f;  // biases, too
  device.prepare({static_cast<std::uint64_t>(batch), 1});
  device.load(late_network::which::now, start);
  cpu.load(cpu_network::which::now, start);

  std::vector<float> wanted, found;
  for (std::uint64_t t = 1; t <= 40; ++t) {
    const std::uint64_t rows = t % 5 == 0 ? std::max<std::uint64_t>(batch / 3, 1) : batch;
    plain_batch one{random_floats(rows * features, 2 * t), random_floats(rows, 2 * t + 1)};
    for (std::size_t i = 0; i < rows; ++i) one.y[i] = std::sin(one.x[i * features]) + 0.1f * one.y[i];
    cpu.differentiate(one);
    cpu.update(0.01f, t);
    wanted.push_back(*cpu.loss(true));
    device.differentiate(one);
    device.update(0.01f, t);
    while (found.size() < t) {
      const auto loss = device.loss(t - found.size() == device.most_in_flight());
      if (!loss) break;
      found.push_back(*loss);
    }
    if (t == 1) device.keep();
    network_state cpu_now = start, device_now = start;
    if (t == 1 || t == 40) {
      cpu.fetch(cpu_network::which::now, cpu_now);
      device.fetch(late_network::which::now, device_now);
      const double tolerance = t == 1 ? 1e-5 : 2e-3;
      EXPECT_LE((cpu_now.first - device_now.first).norm(), tolerance * cpu_now.first.norm());
      EXPECT_LE((cpu_now.second - device_now.second).norm(), tolerance * cpu_now.second.norm());
      EXPECT_LE((cpu_now.parameters - device_now.parameters).norm(), tolerance * cpu_now.parameters.norm());
      EXPECT_NE(cpu_now.parameters, start.parameters);
    }
  }
  while (found.size() < wanted.size()) found.push_back(device.loss(true).value());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], 1e-3 * wanted[i] + 1e-6) << "step " << i + 1;

  // What was kept is the state behind the first step.
  network_state kept = start;
  device.fetch(late_network::which::kept, kept);
  cpu.load(cpu_network::which::now, kept);
  device.load(late_network::which::now, kept);
  std::vector<float> outputs, device_outputs, targets;
  const auto use = [](std::vector<float>& to) {
    return [&to](const float* from, const float*, std::size_t rows) { to.insert(to.end(), from, from + rows); };
  };
  const auto use_both = [&](const float* from, const float* y, std::size_t rows) {
    device_outputs.insert(device_outputs.end(), from, from + rows);
    targets.insert(targets.end(), y, y + rows);
  };
  std::vector<float> all_targets;
  for (std::uint64_t t = 0; t < 20; ++t) {
    const std::uint64_t rows = t == 19 ? 1 : batch;
    const plain_batch one{random_floats(rows * features, 100 + t), random_floats(rows, 200 + t)};
    all_targets.insert(all_targets.end(), one.y.begin(), one.y.end());
    cpu.predict(one, use(outputs));
    device.predict(one, use_both);
  }
  device.finish_predictions(use_both);
  ASSERT_EQ(device_outputs.size(), outputs.size());
  EXPECT_EQ(targets, all_targets);
  for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_NEAR(device_outputs[i], outputs[i], 1e-4);
}

/// Whole runs on a device of which two are there to be had: `late`, loops on the host whose results come late, and
/// `cuda`; each alone, and two replicas on it.
class trainer_on_device : public testing::TestWithParam<std::string> {
 protected:
  static bool late() { return GetParam().starts_with("late"); }
  static bool two() { return GetParam().ends_with("two"); }
  /// So many reads of the training part, where each replica has read it whole before, for the statistics.
  static std::uint64_t reads(std::uint64_t training) { return training + (two() ? 2000 : 1000); }
  void SetUp() override {
    if (late()) return;
    if (const std::string problem = why_no_cuda(); !problem.empty()) GTEST_SKIP() << "no CUDA: " << problem;
  }
  static ending run(const settings& s, std::optional<checkpoint> from, const parts& data, std::stop_token stop = {}) {
    settings there = s;
    there.replicas = two() ? 2 : 1;
    there.device = "cuda";
    if (!late()) return train(there, std::move(from), data, stop);
    if (!two()) return training<late_network>(there, std::move(from), data).run(stop, "late");
    return train_replicas<late_network>(penstock::local_world<>(2), there, from, data, stop, "late");
  }
  static ending run_on_cpu(const settings& s, std::optional<checkpoint> from, const parts& data) {
    return train(s, std::move(from), data, {});
  }
  settings options(const std::string& folder, bool adam = true) const {
    settings s;
    s.device = "cpu";
    s.target = "y";
    s.width = 8;
    s.epochs = 4;
    s.patience = 0;
    s.batch = 64;
    s.timeout = 60;
    s.adam = adam;
    if (!adam) s.rate = 0.01f;
    s.out = where / folder;
    return s;
  }
  static parts data(std::function<void(std::uint64_t)> hook = [](std::uint64_t) {}) {
    return {curve_data{.first = 0, .count = 1000, .hook = std::move(hook)}, curve_data{.first = 1000, .count = 200},
            curve_data{.first = 2000, .count = 200}};
  }
  static checkpoint last(const settings& s) { return load(s.out + "/last.ckpt"); }
  static settings resumed(settings s, const std::string& folder, const settings& from) {
    s.resume = from.out + "/last.ckpt";
    s.out = folder;
    return s;
  }
  static void expect_same_curve(const checkpoint& found, const checkpoint& wanted, double tolerance = 2e-3) {
    EXPECT_EQ(found.network.steps, wanted.network.steps);
    ASSERT_EQ(found.training.size(), wanted.training.size());
    for (std::size_t i = 0; i < wanted.training.size(); ++i) {
      EXPECT_NEAR(found.training[i], wanted.training[i], tolerance * wanted.training[i]) << "epoch " << i;
      EXPECT_NEAR(found.validation[i], wanted.validation[i], tolerance * wanted.validation[i]) << "epoch " << i;
    }
    EXPECT_LE((found.network.parameters - wanted.network.parameters).norm(),
              10 * tolerance * wanted.network.parameters.norm());
  }
  temporary_directory where;
};
INSTANTIATE_TEST_SUITE_P(Devices, trainer_on_device, testing::Values("late", "late_two", "cuda", "cuda_two"),
                         [](const auto& one) { return one.param; });

TEST_P(trainer_on_device, gives_the_curve_of_the_cpu_and_the_same_bits_every_time) {
  for (const bool adam : {true, false}) {
    const settings cpu = options("cpu", adam), one = options("one", adam), two = options("two", adam);
    ASSERT_EQ(run_on_cpu(cpu, {}, data()), ending::done);
    ASSERT_EQ(run(one, {}, data()), ending::done);
    ASSERT_EQ(run(two, {}, data()), ending::done);
    expect_same_curve(last(one), last(cpu));
    expect_same_curve(load(one.out + "/best.ckpt"), load(cpu.out + "/best.ckpt"));
    EXPECT_TRUE(content(one.out + "/last.ckpt") == content(two.out + "/last.ckpt"));
    EXPECT_TRUE(content(one.out + "/best.ckpt") == content(two.out + "/best.ckpt"));
  }
}

TEST_P(trainer_on_device, stopped_in_mid_epoch_it_goes_on_there_and_on_the_cpu) {
  std::stop_source stop;
  const settings s = options("run"), whole = options("whole");
  const auto in_second_epoch = [&](std::uint64_t reads) {
    if (reads == trainer_on_device::reads(1500)) stop.request_stop();
  };
  ASSERT_EQ(run(s, {}, data(in_second_epoch), stop.get_token()), ending::interrupted);
  ASSERT_EQ(run(whole, {}, data()), ending::done);
  const checkpoint broken_off = last(s);
  EXPECT_GT(broken_off.network.steps, 16U);
  EXPECT_LT(broken_off.network.steps, 32U);
  const settings on_cpu = resumed(s, where / "on_cpu", s), there = resumed(s, s.out, s);
  ASSERT_EQ(run_on_cpu(on_cpu, load(on_cpu.resume), data()), ending::done);
  expect_same_curve(last(on_cpu), last(whole));
  ASSERT_EQ(run(there, load(there.resume), data()), ending::done);
  EXPECT_TRUE(content(s.out + "/last.ckpt") == content(whole.out + "/last.ckpt"));
  EXPECT_TRUE(content(s.out + "/best.ckpt") == content(whole.out + "/best.ckpt"));
}

TEST_P(trainer_on_device, goes_on_from_a_checkpoint_of_the_cpu) {
  settings cpu = options("cpu");
  ASSERT_EQ(run_on_cpu(cpu, {}, data()), ending::done);
  cpu.epochs = 6;  // the learning rate is another one from here on
  const settings on_cpu = resumed(cpu, where / "on_cpu", cpu), there = resumed(cpu, where / "there", cpu);
  ASSERT_EQ(run_on_cpu(on_cpu, load(on_cpu.resume), data()), ending::done);
  ASSERT_EQ(run(there, load(there.resume), data()), ending::done);
  expect_same_curve(last(there), last(on_cpu));
}

TEST_P(trainer_on_device, a_failed_read_leaves_the_steps_before_it) {
  const settings s = options("run"), whole = options("whole");
  const auto fails = [](std::uint64_t reads) {
    if (reads == trainer_on_device::reads(1500)) throw std::runtime_error("the sample is gone");
  };
  ASSERT_EQ(run(s, {}, data(fails)), ending::error);
  const settings there = resumed(s, s.out, s);
  ASSERT_EQ(run(there, load(there.resume), data()), ending::done);
  ASSERT_EQ(run(whole, {}, data()), ending::done);
  EXPECT_TRUE(content(s.out + "/last.ckpt") == content(whole.out + "/last.ckpt"));
}

// Noticed some steps late, but as of the step itself: the later ones have changed nothing and are not counted.
TEST_P(trainer_on_device, a_loss_that_is_no_number_ends_at_the_step_that_the_cpu_ends_at) {
  for (const bool diverges : {true, false}) {  // or one sample is bad, and all others go on to be good
    settings cpu = options("cpu"), s = options("run");
    if (diverges) cpu.rate = s.rate = 1e30f;
    std::uint64_t bad = 2500;
    const auto spoilt = [&] {
      return parts{curve_data{.first = 0, .count = 1000, .bad = diverges ? 0U : bad},
                   curve_data{.first = 1000, .count = 200}, curve_data{.first = 2000, .count = 200}};
    };
    ASSERT_EQ(run_on_cpu(cpu, {}, spoilt()), ending::not_a_number);
    bad = reads(1500);
    ASSERT_EQ(run(s, {}, spoilt()), ending::not_a_number);
    const checkpoint wanted = last(cpu), found = last(s);
    if (!diverges && two()) {  // which sample it is, is chance
      EXPECT_GT(found.network.steps, 16U);
      EXPECT_LT(found.network.steps, 32U);
      EXPECT_TRUE(found.network.parameters.allFinite());
      continue;
    }
    EXPECT_EQ(found.network.steps, wanted.network.steps);
    EXPECT_EQ(found.feed, wanted.feed);
    EXPECT_EQ(found.seen, wanted.seen);
    EXPECT_NEAR(found.loss, wanted.loss, 1e-3 * wanted.loss);
    EXPECT_LE((found.network.first - wanted.network.first).norm(), 1e-3 * wanted.network.first.norm());
  }
}

TEST_P(trainer_on_device, stops_early_where_the_cpu_does) {
  settings cpu = options("cpu"), s = options("run");
  cpu.rate = s.rate = 1e-30f;
  cpu.epochs = s.epochs = 1000;
  cpu.patience = s.patience = 3;
  ASSERT_EQ(run_on_cpu(cpu, {}, data()), ending::early_stop);
  ASSERT_EQ(run(s, {}, data()), ending::early_stop);
  EXPECT_EQ(last(s).network.steps, last(cpu).network.steps);
  EXPECT_EQ(load(s.out + "/best.ckpt").network.steps, load(cpu.out + "/best.ckpt").network.steps);
}

}  // namespace
