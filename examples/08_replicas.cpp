// SPDX-License-Identifier: Apache-2.0
// Two replicas train alike, each with two readers of its own: the loop of example 01, with an all_reduce in it.
// As processes on one or several machines: penstock::replicas(penstock::mpi_world(), ...), and mpirun -n 2.
#include <array>
#include <cmath>
#include <cstdio>

#include <penstock/dataset/csv.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "examples/data/diamonds.csv";
  const penstock::csv_table diamonds(file, {.target = "price", .columns = {"carat"}});

  // Called once for each replica, on a thread of its own.
  penstock::replicas(2, [&](auto& replica) {
    auto feed = replica.start(diamonds                                              // the same for both
                              | penstock::partition({.seed = 7, .world = replica})  // its share of every step
                              | penstock::read({.readers = 2})                      // its two readers
                              | penstock::batch({.global = 256})                    // over all replicas
                              | penstock::transfer(replica.device()));              // the device that they read for

    float slope = 0, offset = 0;
    for (int epoch = 0; epoch < 5; ++epoch) {
      double squares = 0, samples = 0;
      for (auto& batch : feed.epoch(epoch)) {  // ends on both at the same step
        auto [x, y] = batch.fields();          // x is 128 by 1, y is 128
        std::array<float, 2> gradient{};
        double errors = 0;
        for (std::size_t i = 0; i < batch.size(); ++i) {
          const float error = slope * x(i, 0) + offset - y(i);
          gradient[0] += error * x(i, 0);
          gradient[1] += error;
          errors += error * error;
        }
        // Becomes the mean over all samples of the step, on both. Nothing to update with where the run ends here.
        const auto sums = penstock::buffer(gradient, penstock::mean_of_sums);
        const auto step = replica.all_reduce(batch, {.metrics = {&errors, 1}}, sums);
        if (!step) continue;
        slope -= 0.3f * gradient[0];
        offset -= 0.3f * gradient[1];
        squares += step.metrics[0];
        samples += step.samples;
      }
      if (replica.rank() == 0)
        std::printf("epoch %d: price = %.0f * carat %+.0f, root mean square error %.0f\n", epoch, slope, offset,
                    std::sqrt(squares / samples));
    }
  });
}
