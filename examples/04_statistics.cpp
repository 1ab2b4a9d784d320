// SPDX-License-Identifier: Apache-2.0
// Statistics of a table that need not fit in memory: compute and reduce, driven by run().
#include <cmath>
#include <cstdio>
#include <vector>

#include <penstock/dataset/csv.hpp>
#include <penstock/observe/progress.hpp>
#include <penstock/penstock.hpp>

// Count, mean and sum of squared deviations of each column; two of them merge into one (Chan, Golub and LeVeque 1979).
struct moments {
  double count = 0;
  std::vector<double> mean, squares;
};

moments of_batch(const auto& batch) {
  const auto x = batch.template get<0>();
  moments result{double(batch.size()), std::vector<double>(x.extent(1)), std::vector<double>(x.extent(1))};
  for (std::size_t i = 0; i < batch.size(); ++i)
    for (std::size_t j = 0; j < x.extent(1); ++j) result.mean[j] += x(i, j) / result.count;
  for (std::size_t i = 0; i < batch.size(); ++i)
    for (std::size_t j = 0; j < x.extent(1); ++j) result.squares[j] += std::pow(x(i, j) - result.mean[j], 2);
  return result;
}

void merge(moments& into, const moments& other) {
  if (into.count == 0) return void(into = other);
  const double count = into.count + other.count;
  for (std::size_t j = 0; j < into.mean.size(); ++j) {
    const double shift = other.mean[j] - into.mean[j];
    into.mean[j] += shift * other.count / count;
    into.squares[j] += other.squares[j] + shift * shift * into.count * other.count / count;
  }
  into.count = count;
}

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "examples/data/diamonds.csv";
  // Indexed: the file stays on disk, rows are parsed when they are read.
  penstock::csv_table table(file, {.target = "price", .mode = penstock::csv_mode::indexed});

  auto work = table | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 2}) |
              penstock::batch(1024) | penstock::transfer(penstock::cpu_device{}) |
              penstock::compute([](auto& batch) { return of_batch(batch); }) | penstock::reduce(moments{}, merge);

  std::fputs(penstock::describe(work).c_str(), stdout);
  const moments all = penstock::run(work, {.epochs = 1}, penstock::progress_bar{}).value();
  for (std::size_t j = 0; j < all.mean.size(); ++j)
    std::printf("%-8s mean %8.3f, standard deviation %7.3f\n", table.feature_names()[j].c_str(), all.mean[j],
                std::sqrt(all.squares[j] / all.count));
}
