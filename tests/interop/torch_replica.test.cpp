// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: LibTorch is not instrumented
// ctest: no asan: half a minute of compiling; who owns memory is the matter of torch.test.cpp
// Modules of LibTorch's that train alike: two replicas are one with the whole batch.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/interop/torch.hpp>
#include <penstock/interop/torch_replica.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

namespace {

using penstock::replica_error;
using penstock::replicas;
using penstock::torch_replica;

constexpr std::int64_t edge = 6;

/// `n` pictures of 6 x 6 and what is to become of them.
struct pictures {
  using schema_type = penstock::schema<penstock::field<float, 3>, penstock::field<float, 3>>;
  std::uint64_t n = 13;

  std::uint64_t size() const { return n; }
  schema_type schema() const {
    return schema_type{penstock::field<float, 3>{"x", {1, edge, edge}},
                       penstock::field<float, 3>{"y", {1, edge, edge}}};
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    auto [x, y] = to;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x.data()[i] = 0.25F * static_cast<float>((index * 7 + i * 3) % 11) - 1;
      y.data()[i] = 0.5F * x.data()[i] + 0.1F * static_cast<float>(index % 3);
    }
  }
};

/// Four layers, one of which is never used, and one only where `branch` says so.
struct network : torch::nn::Module {
  explicit network(double fill = 0, std::int64_t channels = 4) {
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, channels, 3).padding(1)));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    at_times = register_module("at_times", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 1, 1)));
    last = register_module("last", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, 1, 3).padding(1)));
    steps = register_buffer("steps", torch::full({}, static_cast<std::int64_t>(fill * 1000), torch::kLong));
    mask = register_buffer("mask", torch::full({3}, fill != 0, torch::kBool));
    const torch::NoGradGuard no_gradients;
    std::int64_t k = 0;
    for (auto& one : parameters()) {
      auto values = one.view({-1});
      for (std::int64_t i = 0; i < values.numel(); ++i)
        values[i] = 0.02 * static_cast<double>((++k * 37) % 23) - 0.2 + fill;
    }
  }
  torch::Tensor forward(const torch::Tensor& x, bool branch = false) {
    torch::Tensor y = last->forward(torch::tanh(first->forward(x)));
    return branch ? y + at_times->forward(x) : y;
  }

  torch::nn::Conv2d first{nullptr}, at_times{nullptr}, last{nullptr};
  torch::nn::Linear unused{nullptr};
  torch::Tensor steps, mask;
};

std::vector<float> values_of(const torch::nn::Module& module) {
  std::vector<float> all;
  for (const auto& one : module.parameters()) {
    const auto flat = one.detach().contiguous();
    all.insert(all.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return all;
}
void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-6 * (1 + std::abs(b[i]))) << "value " << i;
}

auto feed_of(const pictures& data, auto& replica, std::int64_t global) {
  return replica.start(data | penstock::partition({.seed = 5, .world = replica}) | penstock::read({.readers = 1}) |
                       penstock::batch({.global = global}) | penstock::transfer(replica.device()));
}
torch::optim::SGDOptions momentum() { return torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01); }

constexpr penstock::torch_replica_options small{.bucket_bytes = 64, .first_bucket_bytes = 16};

class torch_replicas : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { torch::set_num_threads(1); }
};

/// The model after some epochs of `world` replicas, equal on all of them.
std::vector<float> trained(std::uint64_t world, std::int64_t global, const penstock::torch_replica_options& options) {
  const pictures data;
  std::vector<std::vector<float>> ends(world);
  std::vector<double> losses(world);
  replicas(static_cast<int>(world), [&](auto& replica) {
    auto net = std::make_shared<network>(replica.rank() == 0 ? 0 : 0.3);
    torch_replica together(replica, *net, options);
    torch::optim::SGD optimizer(net->parameters(), momentum());
    auto feed = feed_of(data, replica, global);
    for (std::uint64_t epoch = 0; epoch < 7; ++epoch)
      for (auto& batch : feed.epoch(epoch)) {
        const auto [x, y] = penstock::to_tensors(batch);
        const auto loss = torch::mse_loss(net->forward(x), y);
        optimizer.zero_grad();
        together.backward(batch, loss);
        if (together.all_reduce(batch)) optimizer.step();
      }
    EXPECT_EQ(replica.steps(), 7 * ((13 + global - 1) / global));
    ends[replica.rank()] = values_of(*net);
  });
  for (const auto& one : ends) EXPECT_EQ(one, ends[0]);  // to the last bit
  return ends[0];
}

/// The same by LibTorch alone.
std::vector<float> trained_alone(std::int64_t global) {
  const pictures data;
  network net;
  torch::optim::SGD optimizer(net.parameters(), momentum());
  auto feed = data | penstock::partition({.seed = 5}) | penstock::read({.readers = 1}) |
              penstock::batch(static_cast<int>(global)) | penstock::transfer(penstock::cpu_device{});
  for (std::uint64_t epoch = 0; epoch < 7; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      const auto [x, y] = penstock::to_tensors(batch);
      optimizer.zero_grad();
      torch::mse_loss(net.forward(x), y).backward();
      optimizer.step();
    }
  return values_of(net);
}

TEST_F(torch_replicas, are_one_with_the_whole_batch) {
  // Of 13 rows the last step has three or one: there one replica alone has a row, and the others none.
  for (const std::int64_t global : {5, 6}) {
    const std::vector<float> alone = trained_alone(global);
    for (const std::uint64_t world : {1, 2, 3}) {
      expect_near(trained(world, global, {}), alone);
      expect_near(trained(world, global, small), alone);
    }
  }
}

TEST_F(torch_replicas, begin_with_the_parameters_and_buffers_of_rank_0) {
  replicas(3, [&](auto& replica) {
    auto net = std::make_shared<network>(0.25 * static_cast<double>(replica.rank() + 1));
    const torch_replica together(replica, *net);
    EXPECT_EQ(values_of(*net), values_of(network(0.25)));
    EXPECT_EQ(net->steps.template item<std::int64_t>(), 250);
    // Later the buffers alone, of which those of batch norm are.
    net->steps += static_cast<std::int64_t>(replica.rank());
    net->mask.fill_(replica.rank() != 0);
    torch_replica again(replica, *net);
    EXPECT_FALSE(net->mask.any().template item<bool>());
    net->steps.fill_(7 + static_cast<std::int64_t>(replica.rank()));
    again.broadcast_buffers();
    EXPECT_EQ(net->steps.template item<std::int64_t>(), 7);
  });
}

TEST_F(torch_replicas, a_step_of_several_batches_is_one_with_all_of_them) {
  // Gradients of the whole data at once, without an update; 13 rows by 4 are four batches, the last one of a row.
  const pictures data;
  std::vector<float> wanted;
  {
    network net;
    auto feed = data | penstock::partition({.seed = 5}) | penstock::read({.readers = 1}) | penstock::batch(13) |
                penstock::transfer(penstock::cpu_device{});
    for (auto& batch : feed.epoch(0)) {
      const auto [x, y] = penstock::to_tensors(batch);
      torch::mse_loss(net.forward(x), y).backward();
    }
    for (const auto& one : net.first->parameters())
      wanted.insert(wanted.end(), one.grad().data_ptr<float>(), one.grad().data_ptr<float>() + one.numel());
  }
  for (const std::uint64_t world : {1, 2, 3})
    for (const bool weighed : {false, true})
      replicas(static_cast<int>(world), [&](auto& replica) {
        auto net = std::make_shared<network>();
        torch_replica together(replica, *net, small);
        auto feed = feed_of(data, replica, 4);
        for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
          net->zero_grad();
          for (auto& batch : feed.epoch(epoch)) {
            const auto [x, y] = penstock::to_tensors(batch);
            const auto loss = torch::mse_loss(net->forward(x), y);
            std::optional<double> weight;
            if (weighed) weight = 0.5 * static_cast<double>(batch.size());
            if (batch.step() < 3) {
              together.accumulate(batch, loss, weight);
              continue;
            }
            together.backward(batch, loss, weight);
            ASSERT_TRUE(together.all_reduce(batch));
          }
          std::vector<float> found;
          for (const auto& one : net->first->parameters())
            found.insert(found.end(), one.grad().template data_ptr<float>(),
                         one.grad().template data_ptr<float>() + one.numel());
          expect_near(found, wanted);
        }
      });
}

TEST_F(torch_replicas, a_backward_of_ones_own_counts_too) {
  const pictures data;
  std::array<std::vector<float>, 2> ends;
  for (const bool own : {false, true})
    replicas(2, [&](auto& replica) {
      auto net = std::make_shared<network>();
      torch_replica together(replica, *net, small);
      torch::optim::SGD optimizer(net->parameters(), momentum());
      auto feed = feed_of(data, replica, 5);
      for (auto& batch : feed.epoch(0)) {
        const auto [x, y] = penstock::to_tensors(batch);
        const auto loss = torch::mse_loss(net->forward(x), y);
        optimizer.zero_grad();
        if (own)
          loss.backward();
        else
          together.backward(batch, loss);
        if (together.all_reduce(batch)) optimizer.step();
      }
      if (replica.rank() == 1) ends[own ? 1 : 0] = values_of(*net);
    });
  EXPECT_EQ(ends[0], ends[1]);
}

TEST_F(torch_replicas, a_gradient_is_there_on_all_or_on_none) {
  const pictures data;
  replicas(2, [&](auto& replica) {
    auto net = std::make_shared<network>();
    torch_replica together(replica, *net, small);
    EXPECT_EQ(together.buckets(), 4U);
    auto feed = feed_of(data, replica, 4);
    for (auto& batch : feed.epoch(0)) {
      const auto [x, y] = penstock::to_tensors(batch);
      for (auto& one : net->parameters()) one.mutable_grad().reset();
      const bool branch = batch.step() == 1 && replica.rank() == 1;
      const auto loss = torch::mse_loss(net->forward(x, branch), y);
      together.backward(batch, loss);
      torch::Tensor own;
      if (branch) own = net->at_times->bias.grad().clone();
      const bool counts = static_cast<bool>(together.all_reduce(batch));
      ASSERT_TRUE(counts);
      EXPECT_FALSE(net->unused->weight.grad().defined());
      EXPECT_EQ(net->at_times->bias.grad().defined(), batch.step() == 1);
      // Rank 0's part of it is zero, and both have two samples.
      if (branch) {
        EXPECT_FLOAT_EQ(net->at_times->bias.grad().template item<float>(), 0.5F * own.item<float>());
      }
    }
  });
}

/// What `body` ends in.
std::string ends_in(int n, const std::function<void(penstock::replica_of<penstock::local_world<>>&)>& body) {
  try {
    replicas(n, body, {.timeout = std::chrono::seconds(30)});
  } catch (const replica_error& caught) {
    return caught.what();
  }
  return "nothing";
}
void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nwanted: " << part;
}

TEST_F(torch_replicas, of_different_structure_are_refused_on_all_ranks) {
  std::atomic<int> told = 0;
  const auto with = [&](auto make) {
    told = 0;
    return ends_in(3, [&](auto& replica) {
      auto net = make(replica.rank());
      try {
        torch_replica together(replica, *net);
      } catch (const penstock::error&) {
        ++told;
        throw;
      }
    });
  };
  expect_part(with([](std::uint64_t rank) { return std::make_shared<network>(0, rank == 2 ? 8 : 4); }),
              "entry 0 is parameter \"first.weight\" (Float [4, 1, 3, 3]) on rank 0, parameter \"first.weight\" (Float "
              "[8, 1, 3, 3]) on rank 2; wanted the same names, types and shapes");
  EXPECT_EQ(told, 3);
  expect_part(with([](std::uint64_t rank) {
                auto net = std::make_shared<network>();
                if (rank == 1) net->register_parameter("more", torch::zeros({2}));
                return net;
              }),
              "is parameter \"first.weight\" (Float [4, 1, 3, 3]) on rank 0, parameter \"more\" (Float [2]) on rank 1");
  EXPECT_EQ(told, 3);
  expect_part(with([](std::uint64_t rank) {
                auto net = std::make_shared<network>();
                if (rank == 1) net->register_buffer("more", torch::zeros({2}));
                return net;
              }),
              "entry 10 is missing on rank 0, buffer \"more\" (Float [2]) on rank 1");
  EXPECT_EQ(told, 3);
  expect_part(
      with([](std::uint64_t rank) {
        auto net = std::make_shared<network>();
        if (rank == 1) net->first->bias.set_requires_grad(false);
        return net;
      }),
      "is parameter \"first.bias\" (Float [4]) on rank 0, frozen parameter \"first.bias\" (Float [4]) on rank 1");
  expect_part(with([](std::uint64_t) {
                auto net = std::make_shared<network>();
                net->register_parameter("half", torch::zeros({2}, torch::kHalf));
                return net;
              }),
              "the gradient of parameter \"half\" (Half [2]) cannot be reduced; wanted parameters of float or double");
  expect_part(with([](std::uint64_t) {
                auto net = std::make_shared<network>();
                for (auto& one : net->parameters()) one.set_requires_grad(false);
                return net;
              }),
              "the module has no parameter that requires a gradient");
}

TEST_F(torch_replicas, no_gradient_comes_after_it_was_sent) {
  const pictures data;
  expect_part(ends_in(2,
                      [&](auto& replica) {
                        auto net = std::make_shared<network>();
                        torch_replica together(replica, *net, small);
                        auto feed = feed_of(data, replica, 4);
                        for (auto& batch : feed.epoch(0)) {
                          const auto [x, y] = penstock::to_tensors(batch);
                          const auto once = torch::mse_loss(net->forward(x), y);
                          const auto twice = torch::l1_loss(net->forward(x), y);
                          together.backward(batch, once);
                          together.backward(batch, twice);
                        }
                      }),
              "backward: epoch 0, step 0: rank 0 failed: torch_replica: a gradient comes after it was sent");
}

/// A bucket for each of its parameters: 35, 140, 4 and 144 elements, in the order of backward.
torch::nn::Sequential two_layers() {
  return torch::nn::Sequential(torch::nn::Linear(edge * edge, 4), torch::nn::Tanh(), torch::nn::Linear(4, 35));
}
constexpr penstock::torch_replica_options each_alone{.bucket_bytes = 1, .first_bucket_bytes = 1};

TEST_F(torch_replicas, buckets_are_sent_last_layer_first) {
  // Rank 1 does by hand what rank 0's module does: other sizes, or another order, would not agree.
  const pictures data;
  std::atomic<int> steps = 0;
  replicas(2, [&](auto& replica) {
    auto net = two_layers();
    torch_replica together(replica, *net, each_alone);
    auto feed = feed_of(data, replica, 4);
    for (auto& batch : feed.epoch(0)) {
      if (replica.rank() == 0) {
        const auto [x, y] = penstock::to_tensors(batch);
        const auto loss = net->forward(x.flatten(1)).square().mean();
        together.backward(batch, loss);
        ASSERT_TRUE(together.all_reduce(batch));
      } else {
        // Behind each bucket one more number for its parameter.
        std::vector<float> all[] = {std::vector<float>(36), std::vector<float>(141), std::vector<float>(5),
                                    std::vector<float>(145)};
        for (std::size_t i = 0; i < 3; ++i) replica.ready(batch, all[i]);
        ASSERT_TRUE(replica.all_reduce(batch, all[3]));
        ++steps;
      }
    }
  });
  EXPECT_EQ(steps, 4);
}

TEST_F(torch_replicas, buckets_are_sent_while_backward_computes) {
  // Rank 0 fails in its backward at the first layer, when the last one's buckets have gone. Rank 1 is told in its own
  // backward, where it sends the next one.
  const pictures data;
  std::atomic<bool> told_in_backward = false;
  const std::string text = ends_in(2, [&](auto& replica) {
    auto net = two_layers();
    if (replica.rank() == 0)
      net->parameters()[1].register_hook([](torch::Tensor) { throw std::runtime_error("no gradient today"); });
    torch_replica together(replica, *net, each_alone);
    auto feed = feed_of(data, replica, 4);
    for (auto& batch : feed.epoch(0)) {
      const auto [x, y] = penstock::to_tensors(batch);
      const auto loss = net->forward(x.flatten(1)).square().mean();
      try {
        together.backward(batch, loss);
      } catch (const replica_error&) {
        told_in_backward = replica.rank() == 1;
        throw;
      }
      together.all_reduce(batch);
    }
  });
  expect_part(text, "rank 0 failed: no gradient today");
  EXPECT_TRUE(told_in_backward);
}

TEST_F(torch_replicas, a_void_step_leaves_gradients_alone) {
  const pictures data;
  std::atomic<int> voided = 0;
  replicas(2, [&](auto& replica) {
    auto net = std::make_shared<network>();
    torch_replica together(replica, *net, small);
    auto feed = feed_of(data, replica, 4);
    for (auto& batch : feed.epoch(0)) {
      const auto [x, y] = penstock::to_tensors(batch);
      net->zero_grad();
      const auto loss = torch::mse_loss(net->forward(x), y);
      if (batch.step() == 1 && replica.rank() == 0) replica.stop();
      together.backward(batch, loss);
      const auto own = net->first->weight.grad().clone();
      const auto result = together.all_reduce(batch);
      EXPECT_EQ(static_cast<bool>(result), batch.step() == 0);
      if (result) continue;
      EXPECT_TRUE(torch::equal(own, net->first->weight.grad()));
      ++voided;
    }
  });
  EXPECT_EQ(voided, 2);
}

TEST_F(torch_replicas, options_are_checked_and_hooks_go_with_it) {
  replicas(1, [&](auto& replica) {
    auto net = std::make_shared<network>();
    EXPECT_THROW(torch_replica(replica, *net, {.bucket_bytes = 0}), std::invalid_argument);
    EXPECT_THROW(torch_replica(replica, *net, {.first_bucket_bytes = 0}), std::invalid_argument);
    const auto node = torch::autograd::impl::grad_accumulator(net->first->bias);
    {
      const torch_replica together(replica, *net);
      EXPECT_EQ(node->post_hooks().size(), 1U);
    }
    EXPECT_TRUE(node->post_hooks().empty());
    net->forward(torch::zeros({1, 1, edge, edge})).sum().backward();
  });
}

}  // namespace
