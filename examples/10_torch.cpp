// SPDX-License-Identifier: Apache-2.0
// A network of LibTorch's that two replicas train alike, in a loop of one's own. Any torch::nn::Module does.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include <penstock/dataset/csv.hpp>
#include <penstock/interop/torch.hpp>
#include <penstock/interop/torch_replica.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "examples/data/diamonds.csv";
  const penstock::csv_table diamonds(file, {.target = "price", .columns = {"carat", "x", "y", "z"}});
  torch::set_num_threads(1);  // each replica is a thread already

  penstock::replicas(2, [&](auto& replica) {
    torch::nn::Sequential net(torch::nn::Linear(4, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
    penstock::torch_replica together(replica, *net);  // both begin with rank 0's parameters
    torch::optim::Adam optimizer(net->parameters(), 0.003);

    auto feed =
        replica.start(diamonds | penstock::partition({.seed = 7, .world = replica}) | penstock::read({.readers = 1}) |
                      penstock::batch({.global = 256}) | penstock::transfer(replica.device()));
    for (int epoch = 0; epoch < 3; ++epoch) {
      double squares = 0, samples = 0;
      for (auto& batch : feed.epoch(epoch)) {
        auto [x, y] = penstock::to_tensors(batch);  // the batch's own memory
        auto loss = torch::mse_loss(net->forward(x).squeeze(1), y / 1000);
        optimizer.zero_grad();
        together.backward(batch, loss);  // sends gradients to the other replica while it computes
        const double sum = batch.size() == 0 ? 0 : loss.template item<double>() * batch.size();
        const auto step = together.all_reduce(batch, {.metrics = {&sum, 1}});
        if (!step) continue;
        optimizer.step();
        squares += step.metrics[0];
        samples += step.samples;
      }
      if (replica.rank() == 0)
        std::printf("epoch %d: root mean square error %.0f\n", epoch, 1000 * std::sqrt(squares / samples));
    }
  });
}
