// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own: the price of a diamond from its weight, by stochastic gradient descent.
#include <cmath>
#include <cstdio>

#include <penstock/dataset/csv.hpp>
#include <penstock/penstock.hpp>

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "examples/data/diamonds.csv";

  penstock::cpu_device device;
  auto feed = penstock::csv_table(file, {.target = "price", .columns = {"carat"}})  // a dataset
              | penstock::partition({.seed = 7})                                    // shuffled anew in each epoch
              | penstock::read({.readers = 2})                                      // reader threads, in place
              | penstock::batch(256)                                                // 256 samples at a time
              | penstock::transfer(device);                                         // read ahead, double-buffered

  float slope = 0, offset = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    double squares = 0, samples = 0;
    for (auto& batch : feed.epoch(epoch)) {
      auto [x, y] = batch.fields();  // x is 256 by 1, y is 256
      float slope_gradient = 0, offset_gradient = 0;
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const float error = slope * x(i, 0) + offset - y(i);
        slope_gradient += error * x(i, 0);
        offset_gradient += error;
        squares += error * error;
      }
      samples += batch.size();
      slope -= 0.3f * slope_gradient / batch.size();
      offset -= 0.3f * offset_gradient / batch.size();
    }
    std::printf("epoch %d: price = %.0f * carat %+.0f, root mean square error %.0f\n", epoch, slope, offset,
                std::sqrt(squares / samples));
  }
}
