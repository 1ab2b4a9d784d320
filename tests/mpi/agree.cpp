// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes: what they come to, and how they leave. Run by mpirun; every process runs all tests.
#include <cmath>
#include <cstdio>
#include <limits>
#include <ranges>
#include <stdexcept>

#include <penstock/communicator/mpi.hpp>
#include <penstock/device/modelled.hpp>

#include "../replicas/support.hpp"

namespace {

using namespace replicated;
using penstock::reduction;
using penstock::replica_error;
using penstock::replicas;

penstock::mpi_world<>* world = nullptr;

struct came_to {
  line model{};
  penstock::replica_summary summary{};
};

// By a loop of one's own; `act(replica, epoch, step)` before each step, true: leave.
template <class World, class Act>
came_to train(World& over, const rows& data, settings s, Act&& act, penstock::replica_options options = {}) {
  came_to result;
  result.summary = replicas(
      over,
      [&](auto& replica) {
        std::array<float, 2> gradient{};
        auto feed = replica.start(work_of(data, replica, s));
        for (std::uint64_t epoch = 0; epoch < 2 && !replica.stopped(); ++epoch)
          for (auto& batch : feed.epoch(epoch)) {
            if (act(replica, epoch, batch.step())) break;
            result.model.gradient(batch, gradient);
            if (replica.all_reduce(batch, gradient)) result.model.update(gradient);
          }
        EXPECT_EQ(feed.state(), replica.state());
      },
      options);
  return result;
}
constexpr auto nothing = [](auto&&...) { return false; };

// The model that a run(world, ...) ends with.
template <class World>
line train_by_run(World& over, const rows& data, settings s) {
  line model;
  std::array<float, 2> gradient{};
  const auto result = penstock::run(over,
                                    [&](auto& replica) {
                                      return work_of(data, replica, s) | penstock::compute([&](const auto& batch) {
                                               model.gradient(batch, gradient);
                                               return std::span(gradient);
                                             }) |
                                             penstock::all_reduce() |
                                             penstock::compute([&](std::span<float> mean) { model.update(mean); });
                                    },
                                    {.epochs = 2});
  EXPECT_FALSE(result.stopped);
  return model;
}

// All ranks have the same bits.
void expect_same(const line& model) {
  replicas(*world, [&](auto& replica) {
    char text[64];
    std::snprintf(text, sizeof text, "%a %a", double{model.w[0]}, double{model.w[1]});
    const auto all = replica.gather(text);
    for (const std::string& one : all) EXPECT_EQ(one, all[0]);
  });
}

template <class Body>
std::string ends_in(Body&& body, std::uint64_t* rank = nullptr) {
  try {
    replicas(*world, body, {.timeout = std::chrono::seconds(60)});
  } catch (const replica_error& caught) {
    if (rank != nullptr) *rank = caught.rank();
    return caught.what();
  }
  return "nothing";
}
void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
}

const rows thirteen{13};

TEST(mpi, comes_to_what_one_rank_comes_to_by_both_forms) {
  for (const std::int64_t global : {13, 5, 4}) {
    penstock::local_world<> one(1);
    const line wanted = train(one, thirteen, {.global = global}, nothing).model;
    const auto looped = train(*world, thirteen, {.global = global}, nothing);
    const line run = train_by_run(*world, thirteen, {.global = global});
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(looped.model.w[i], wanted.w[i], 1e-5);
    // As many threads come to the same bits.
    by_rank<line> threads(world->size());
    replicas(static_cast<int>(world->size()), [&](auto& replica) {
      line model;
      std::array<float, 2> gradient{};
      auto feed = replica.start(work_of(thirteen, replica, {.global = global}));
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
        for (auto& batch : feed.epoch(epoch)) {
          model.gradient(batch, gradient);
          if (replica.all_reduce(batch, gradient)) model.update(gradient);
        }
      threads.tell(replica, model);
    });
    EXPECT_EQ(looped.model, threads.same());
    EXPECT_EQ(looped.model, run);
    EXPECT_EQ(looped.summary.steps, 2U * static_cast<std::uint64_t>((13 + global - 1) / global));
    expect_same(run);
  }
}

TEST(mpi, repeated_runs_are_equal_to_the_bit) {
  const rows data{101};
  line first;
  for (int run = 0; run < 4; ++run) {
    const line model = train(*world, data, {.global = 10, .readers = 1 + run % 3}, nothing).model;
    if (run == 0) first = model;
    EXPECT_EQ(model, first);
  }
  // Where MPI may choose another algorithm.
  for (const std::size_t size : {std::size_t{1000}, std::size_t{300000}}) {
    std::vector<float> wanted;
    for (int run = 0; run < 3; ++run)
      replicas(*world, [&](auto& replica) {
        std::vector<float> values(size);
        for (std::size_t i = 0; i < size; ++i)
          values[i] = std::sin(static_cast<float>(i + 1)) / static_cast<float>(replica.rank() + 3);
        auto feed = replica.start(work_of(thirteen, replica));
        for (auto& batch : feed.epoch(0)) {
          EXPECT_TRUE(replica.all_reduce(batch, values));
        }
        if (run == 0) wanted = values;
        EXPECT_TRUE(values == wanted);
        double sums[1] = {0};
        for (const float one : values) sums[0] += double{one};
        char text[32];
        std::snprintf(text, sizeof text, "%a", sums[0]);
        for (const std::string& one : replica.gather(text)) EXPECT_EQ(one, text);
      });
  }
}

TEST(mpi, a_rank_without_samples_brings_nothing) {
  replicas(*world, [&](auto& replica) {
    auto feed = replica.start(work_of(thirteen, replica, {.global = 6}));
    for (auto& batch : feed.epoch(0)) {
      const bool none = batch.size() == 0;
      std::vector<float> mean(3, none ? std::numeric_limits<float>::quiet_NaN() : 2.0F);
      std::vector<double> sum(2, none ? std::numeric_limits<double>::infinity() : static_cast<double>(batch.size()));
      std::vector<std::int64_t> most(1, none ? 1000 : -5 - static_cast<std::int64_t>(replica.rank()));
      std::vector<double> of_sums(1, 3 * static_cast<double>(batch.size()));
      ASSERT_TRUE(replica.all_reduce(batch, mean, penstock::buffer(sum, reduction::sum),
                                     penstock::buffer(most, reduction::maximum),
                                     penstock::buffer(of_sums, reduction::mean_of_sums)));
      for (const float one : mean) EXPECT_FLOAT_EQ(one, 2.0F);
      EXPECT_EQ(sum[0], batch.step() == 2 ? 1 : 6);
      EXPECT_LE(most[0], -5);
      EXPECT_DOUBLE_EQ(of_sums[0], 3);
    }
  });
}

TEST(mpi, a_step_of_weight_zero_updates_nothing) {
  const auto summary = replicas(*world, [&](auto& replica) {
    auto feed = replica.start(work_of(thirteen, replica));
    for (auto& batch : feed.epoch(0)) {
      std::vector<float> values(3, std::numeric_limits<float>::quiet_NaN()), most(1, 7);
      EXPECT_FALSE(replica.all_reduce(batch, {.weight = 0.0}, values, penstock::buffer(most, reduction::maximum)));
      for (const float one : values) EXPECT_EQ(one, 0);
      EXPECT_EQ(most[0], 0);
    }
  });
  EXPECT_EQ(summary.steps, 0U);
}

TEST(mpi, all_types_and_sizes) {
  const rows data{8};
  replicas(*world, [&](auto& replica) {
    const std::uint64_t n = replica.size();
    auto feed = replica.start(work_of(data, replica, {.global = 8}));
    for (auto& batch : feed.epoch(0)) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{70003}}) {
        const auto check = [&](auto one) {
          using element = decltype(one);
          std::vector<element> values(size);
          for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<element>(i + replica.rank());
          std::vector<element> most = values;
          replica.ready(batch, penstock::buffer(values, reduction::sum));
          replica.ready(batch, penstock::buffer(most, reduction::maximum));
          return std::pair(std::move(values), std::move(most));
        };
        // They are under way until the step's end.
        auto a = check(float{});
        auto b = check(double{});
        auto c = check(std::int32_t{});
        auto d = check(std::int64_t{});
        auto e = check(std::uint32_t{});
        auto f = check(std::uint64_t{});
        EXPECT_TRUE(replica.all_reduce(batch));
        const auto expect = [&](const auto& pair) {
          using element = std::remove_cvref_t<decltype(pair.first[0])>;
          for (std::size_t i = 0; i < size; ++i) {
            ASSERT_EQ(pair.first[i], static_cast<element>(n * i + n * (n - 1) / 2));
            ASSERT_EQ(pair.second[i], static_cast<element>(i + n - 1));
          }
        };
        expect(a), expect(b), expect(c), expect(d), expect(e), expect(f);
      }
    }
  });
}

TEST(mpi, layers_that_are_ready_early_come_to_the_same) {
  line models[2];
  for (const bool early : {false, true})
    replicas(*world, [&](auto& replica) {
      line& model = models[early];
      std::array<float, 2> gradient{};
      auto feed = replica.start(work_of(thirteen, replica));
      for (auto& batch : feed.epoch(0)) {
        model.gradient(batch, gradient);
        penstock::step_result result;
        if (early) {
          replica.ready(batch, std::span(gradient).last(1));
          result = replica.all_reduce(batch, std::span(gradient).first(1));
        } else {
          result = replica.all_reduce(batch, gradient);
        }
        if (result) model.update(gradient);
      }
    });
  for (std::size_t i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(models[0].w[i], models[1].w[i]);
  // Left with something under way.
  const auto summary = replicas(*world, [&](auto& replica) {
    std::vector<float> values(50000, 1);
    auto feed = replica.start(work_of(thirteen, replica));
    for (auto& batch : feed.epoch(0)) {
      replica.ready(batch, penstock::buffer(values, reduction::sum));
      if (batch.step() == 1 && replica.rank() == 0) break;
      std::vector<float> none(1);
      replica.all_reduce(batch, none);
    }
  });
  EXPECT_EQ(summary.steps, 1U);
}

TEST(mpi, what_is_outside_the_loop_is_exchanged_too) {
  replicas(*world, [&](auto& replica) {
    const std::uint64_t n = replica.size();
    std::vector<double> numbers(19, static_cast<double>(replica.rank() + 1));
    replica.sum(numbers);
    for (const double one : numbers) EXPECT_EQ(one, static_cast<double>(n * (n + 1) / 2));
    std::vector<float> parameters(7, replica.rank() == n - 1 ? 3.5F : std::numeric_limits<float>::quiet_NaN());
    replica.broadcast(n - 1, {}, parameters);
    for (const float one : parameters) EXPECT_EQ(one, 3.5F);
    const auto texts = replica.gather(std::string(replica.rank() * 3, 'x') + std::to_string(replica.rank()));
    ASSERT_EQ(texts.size(), n);
    for (std::uint64_t r = 0; r < n; ++r) EXPECT_EQ(texts[r], std::string(r * 3, 'x') + std::to_string(r));
    for (const std::string& one : replica.gather("")) EXPECT_EQ(one, "");
  });
}

TEST(mpi, a_rank_that_throws_is_named_on_all_with_its_step_and_cause) {
  for (const std::uint64_t who : {std::uint64_t{0}, world->size() - 1})
    for (std::uint64_t when = 0; when < 4; ++when) try {
        train(*world, thirteen, {}, [&](auto& replica, std::uint64_t epoch, std::uint64_t step) {
          if (replica.rank() == who && epoch == 0 && step == when) throw std::logic_error("not today");
          return false;
        });
        ADD_FAILURE();
      } catch (const replica_error& caught) {
        expect_part(caught.what(), "rank " + std::to_string(who) + " failed: not today");
        expect_part(caught.what(), "epoch 0, step " + std::to_string(when));
        EXPECT_EQ(caught.rank(), who);
        if (world->rank() == who) {
          EXPECT_THROW(caught.rethrow_cause(), std::logic_error);
        }
      }
}

TEST(mpi, a_rank_that_breaks_out_ends_the_epoch_for_all) {
  for (const std::uint64_t who : {std::uint64_t{0}, world->size() - 1})
    for (std::uint64_t when = 0; when < 4; ++when) {
      const auto ends = train(*world, thirteen, {}, [&](auto& replica, std::uint64_t epoch, std::uint64_t step) {
        return replica.rank() == who && epoch == 0 && step == when;
      });
      EXPECT_EQ(ends.summary.steps, when + 4);
      expect_same(ends.model);
    }
}

TEST(mpi, a_stop_ends_the_run_on_all_at_the_same_step) {
  for (const std::uint64_t who : {std::uint64_t{0}, world->size() - 1})
    for (std::uint64_t when = 0; when < 4; ++when) {
      const auto ends = train(*world, thirteen, {}, [&](auto& replica, std::uint64_t epoch, std::uint64_t step) {
        if (replica.rank() == who && epoch == 1 && step == when) replica.stop();
        return false;
      });
      EXPECT_TRUE(ends.summary.stopped);
      EXPECT_EQ(ends.summary.stopped_by, who);
      EXPECT_EQ(ends.summary.steps, 4 + when);
      EXPECT_EQ(ends.summary.state.samples, 4 * when);
      expect_same(ends.model);
    }
}

TEST(mpi, REP_2_other_sizes_and_orders_are_refused_by_name) {
  std::uint64_t rank = 99;
  std::string text = ends_in(
      [&](auto& replica) {
        auto feed = replica.start(work_of(thirteen, replica));
        for (auto& batch : feed.epoch(0)) {
          std::vector<float> values(replica.rank() == 1 && batch.step() == 1 ? 1000 : 1024);
          replica.all_reduce(batch, values);
        }
      },
      &rank);
  expect_part(text, "epoch 0, step 1: ranks bring values of different sizes: 1000 and 1024 elements");
  expect_part(text, "rank 0 brings 1024, rank 1 1000 elements");
  EXPECT_EQ(rank, 1U);
  text = ends_in([&](auto& replica) {
    auto feed = replica.start(work_of(thirteen, replica));
    std::vector<float> first(10), second(12);
    for (auto& batch : feed.epoch(0)) {
      if (replica.rank() == 1)
        replica.all_reduce(batch, second, first);
      else
        replica.all_reduce(batch, first, second);
    }
  });
  expect_part(text, "in another order, of other types");
  text = ends_in([&](auto& replica) {
    auto feed = replica.start(work_of(thirteen, replica));
    std::vector<float> first(1000), second(1024);
    for (auto& batch : feed.epoch(0)) {
      const bool swapped = replica.rank() == 1;
      replica.ready(batch, swapped ? second : first);
      replica.ready(batch, swapped ? first : second);
      replica.all_reduce(batch);
    }
  });
  expect_part(text, "1000 and 1024 elements");
}

TEST(mpi, a_rank_that_returns_before_the_others_is_told_of) {
  std::uint64_t rank = 99;
  const std::string text = ends_in(
      [&](auto& replica) {
        if (replica.rank() == 1) return;
        replica.barrier();
      },
      &rank);
  expect_part(text, "rank 1 has returned from its body");
  EXPECT_EQ(rank, 1U);
}

TEST(mpi, streams_that_run_dry_at_different_steps) {
  constexpr std::uint64_t size = 4;
  const std::vector<std::vector<std::uint64_t>> cases = {{9, 2, 5, 1}, {1, 9, 3, 4}, {4, 4, 4, 4}, {1, 20, 16, 3}};
  for (const bool join : {true, false})
    for (const auto& lengths : cases) {
      const auto batches = [&](std::uint64_t r) { return (lengths[r] + size - 1) / size; };
      std::uint64_t steps = batches(0);
      for (std::uint64_t r = 1; r < world->size(); ++r)
        steps = join ? std::max(steps, batches(r)) : std::min(steps, batches(r));
      double wanted = 0, seen = 0;
      for (std::uint64_t r = 0; r < world->size(); ++r)
        wanted += static_cast<double>(std::min(lengths[r], steps * size));
      const auto summary = replicas(
          *world,
          [&](auto& replica) {
            const std::uint64_t n = lengths[replica.rank()];
            auto feed = replica.start(penstock::stream([n] { return std::views::iota(std::uint64_t{0}, n); }) |
                                      penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read() |
                                      penstock::batch({.size = size}) | penstock::transfer(replica.device()));
            for (auto& batch : feed.epoch(0)) {
              double count[1] = {batch.size() == 0 ? std::nan("") : static_cast<double>(batch.size())};
              if (replica.all_reduce(batch, penstock::buffer(std::span(count), reduction::sum))) seen += count[0];
            }
            replica.barrier();
          },
          {.uneven = join ? penstock::uneven::join : penstock::uneven::stop});
      EXPECT_EQ(seen, wanted) << join << testing::PrintToString(lengths);
      EXPECT_EQ(summary.steps, steps);
    }
}

// One stream dealt out over all ranks, the last of which gets none.
TEST(mpi, a_rank_without_any_sample_of_a_stream_takes_part) {
  const std::uint64_t n = world->size() - 1;
  const auto less = penstock::stream([n] { return std::views::iota(std::uint64_t{0}, n); });
  for (const bool join : {true, false}) {
    double seen = 0;
    const auto summary = replicas(
        *world,
        [&](auto& replica) {
          auto feed =
              replica.start(less | penstock::partition({.shuffle = penstock::shuffle::none, .world = replica}) |
                            penstock::read() | penstock::batch({.size = 2}) | penstock::transfer(replica.device()));
          for (auto& batch : feed.epoch(0)) {
            double count[1] = {batch.size() == 0 ? std::nan("") : static_cast<double>(batch.size())};
            if (replica.all_reduce(batch, penstock::buffer(std::span(count), reduction::sum))) seen += count[0];
          }
        },
        {.uneven = join ? penstock::uneven::join : penstock::uneven::stop});
    EXPECT_EQ(seen, join ? static_cast<double>(n) : 0);
    EXPECT_EQ(summary.steps, join ? 1U : 0U);
  }
}

// What the protocol of an exchange allows: ranks that do not know of what sizes values are.
TEST(mpi, who_joins_learns_the_sizes_from_the_first_that_knows) {
  using words = penstock::control_words;
  world->begin({}, 0);
  auto one = world->join(0);
  std::vector<float> mean(70, 4);
  std::vector<std::int32_t> most(3, -2);
  const penstock::reduce_buffer buffers[] = {penstock::buffer(mean), penstock::buffer(most, reduction::maximum)};
  penstock::exchange<penstock::cpu_stream> step{};
  step.step = 5;
  const bool joins = one.rank() == 0;
  step.joins = joins;
  if (!joins) {
    step.buffers = buffers;
    step.words.sums[words::weight] = 2;
    step.words.describe(11, 73);
  }
  one.post(step);
  EXPECT_EQ(one.words_of(0).sums[words::weight], 2 * static_cast<double>(one.size() - 1));
  for (const float value : mean) EXPECT_FLOAT_EQ(value, 4);
  for (const std::int32_t value : most) EXPECT_EQ(value, -2);
  // With memory of its own, that is overwritten.
  step.buffers = buffers;
  if (joins) mean.assign(70, std::numeric_limits<float>::quiet_NaN()), most.assign(3, 100);
  one.post(step);
  for (const float value : mean) EXPECT_FLOAT_EQ(value, 4);
  for (const std::int32_t value : most) EXPECT_EQ(value, -2);
}

TEST(mpi, values_of_a_device_are_staged) {
  penstock::modelled_device device;
  int asked_for = -1;
  penstock::mpi_world devices([&](int local) {
    asked_for = local;
    return device;
  });
  EXPECT_EQ(asked_for, static_cast<int>(devices.rank()));
  EXPECT_EQ(devices.local_rank(), asked_for);
  const auto summary = replicas(devices, [&](auto& replica) {
    auto feed = replica.start(work_of(thirteen, replica, {.global = 6}));
    auto stream = device.make_stream();
    const auto host = device.allocate_host(1000 * sizeof(float));
    float* const values = reinterpret_cast<float*>(host.data());
    for (const std::size_t size : {std::size_t{10}, std::size_t{1000}}) {
      const auto memory = device.allocate(size * sizeof(float));
      float* const there = reinterpret_cast<float*>(memory.data());
      for (auto& batch : feed.epoch(size == 10 ? 0 : 1)) {
        const bool none = batch.size() == 0;
        for (std::size_t i = 0; i < size; ++i)
          values[i] = none ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(i);
        device.copy_to_device(there, values, size * sizeof(float), batch.stream());
        if (batch.step() == 1) replica.ready(batch, penstock::buffer(there, size / 2));
        const std::size_t first = batch.step() == 1 ? size / 2 : 0;
        EXPECT_TRUE(replica.all_reduce(batch, penstock::buffer(there + first, size - first)));
        device.copy_to_host(values, there, size * sizeof(float), batch.stream());
        auto read = device.make_event();
        device.record(read, batch.stream());
        ASSERT_EQ(device.wait(
                      read, [] { return false; }, std::chrono::steady_clock::now() + std::chrono::seconds(30)),
                  penstock::wait_result::complete);
        for (std::size_t i = 0; i < size; ++i) ASSERT_FLOAT_EQ(values[i], static_cast<float>(i));
      }
    }
  });
  EXPECT_EQ(summary.steps, 6U);
}

TEST(mpi, part_of_the_processes_is_a_world_too) {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(world->rank() % 2), 0, &half);
  {
    penstock::mpi_world part(half);
    EXPECT_EQ(part.size(), world->size() / 2);
    EXPECT_EQ(train(part, thirteen, {}, nothing).summary.steps, 8U);
  }
  int size = 0;
  EXPECT_EQ(MPI_Comm_size(half, &size), MPI_SUCCESS);
  MPI_Comm_free(&half);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  penstock::mpi_world all;
  world = &all;
  return RUN_ALL_TESTS();
}
