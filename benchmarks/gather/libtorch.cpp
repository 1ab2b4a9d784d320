// SPDX-License-Identifier: Apache-2.0
// LibTorch's ways to the same batches: index_select with one thread and with all, a data loader whose dataset gathers a
// batch with it, and the loader's natural form, a dataset of single rows and Stack.
#include "gather.hpp"

#if __has_include(<torch/torch.h>)
#include <torch/torch.h>
#include <torch/version.h>
#define GATHER_LIBTORCH 1
#endif

namespace gather {

#if GATHER_LIBTORCH

namespace {

using clock_type = std::chrono::steady_clock;

torch::Tensor tensor_of(const array& of) {
  return torch::from_blob(of.values.data(),
                          {static_cast<std::int64_t>(of.rows), static_cast<std::int64_t>(of.columns)});
}

/// Calls `epoch`, which returns the rows that came and a sum of a number of each batch, once before the measurement.
template <class Epoch>
contest::figures measured(const array& of, Epoch epoch) {
  const auto one = [&] {
    const auto [rows, seen] = epoch();
    check(rows, of.rows, seen);
  };
  one();
  const auto begin = clock_type::now();
  for (int number = 1; number <= of.epochs(); ++number) one();
  return rate(of, clock_type::now() - begin);
}

contest::figures by_index_select(const array& of, int batch, int threads) {
  const torch::NoGradGuard no_gradients;
  at::set_num_threads(threads);
  const torch::Tensor all = tensor_of(of);
  const auto list = shuffled(of.rows);
  const torch::Tensor order =
      torch::from_blob(const_cast<std::uint64_t*>(list.data()), {static_cast<std::int64_t>(of.rows)}, torch::kInt64);
  torch::Tensor out = torch::empty({batch, all.size(1)});
  return measured(of, [&] {
    std::size_t rows = 0;
    float seen = 0;
    for (std::int64_t first = 0; first < all.size(0); first += batch) {
      const std::int64_t count = std::min<std::int64_t>(batch, all.size(0) - first);
      torch::Tensor to = out.narrow(0, 0, count);
      at::index_select_out(to, all, 0, order.narrow(0, first, count));
      seen += to.data_ptr<float>()[0];
      rows += static_cast<std::size_t>(count);
    }
    return std::pair(rows, seen);
  });
}

struct batches : torch::data::datasets::BatchDataset<batches, torch::Tensor> {
  explicit batches(torch::Tensor all) : all_(std::move(all)) {}
  torch::Tensor get_batch(c10::ArrayRef<std::size_t> indices) override {
    const torch::NoGradGuard no_gradients;
    const torch::Tensor order = torch::from_blob(const_cast<std::size_t*>(indices.data()),
                                                 {static_cast<std::int64_t>(indices.size())}, torch::kInt64);
    return all_.index_select(0, order);
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(all_.size(0)); }

 private:
  torch::Tensor all_;
};

struct single_rows : torch::data::datasets::Dataset<single_rows, torch::data::TensorExample> {
  explicit single_rows(torch::Tensor all) : all_(std::move(all)) {}
  torch::data::TensorExample get(std::size_t index) override { return all_[static_cast<std::int64_t>(index)]; }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(all_.size(0)); }

 private:
  torch::Tensor all_;
};

template <class Dataset, class TensorOf>
contest::figures by_loader(const array& of, Dataset dataset, int batch, int workers, TensorOf tensor) {
  // Threads of the loader and of the operators are not both wanted.
  at::set_num_threads(workers == 0 ? static_cast<int>(contest::cpus().size()) : 1);
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      std::move(dataset),
      torch::data::DataLoaderOptions(static_cast<std::size_t>(batch)).workers(static_cast<std::size_t>(workers)));
  return measured(of, [&] {
    std::size_t rows = 0;
    float seen = 0;
    for (auto& one : *loader) {
      const torch::Tensor values = tensor(one);
      seen += values.data_ptr<float>()[0];
      rows += static_cast<std::size_t>(values.size(0));
    }
    return std::pair(rows, seen);
  });
}

}  // namespace

void add_libtorch(contest::question& ask, const std::string& name, const array& of, int batch, int most_workers) {
  if (name != "k64") ask.rival("LibTorch", TORCH_VERSION);
  const int all_threads = static_cast<int>(contest::cpus().size());
  ask.add(name + "_libtorch_select1", [&of, batch] { return by_index_select(of, batch, 1); });
  ask.add(name + "_libtorch_select", [&of, batch, all_threads] { return by_index_select(of, batch, all_threads); });
  for (int workers = 0; workers <= most_workers; ++workers)
    ask.add(name + "_libtorch_loader" + std::to_string(workers), [&of, batch, workers] {
      return by_loader(of, batches(tensor_of(of)), batch, workers, [](auto& one) { return one; });
    });
  ask.add(name + "_libtorch_stack0", [&of, batch] {
    return by_loader(of, single_rows(tensor_of(of)).map(torch::data::transforms::Stack<torch::data::TensorExample>()),
                     batch, 0, [](auto& one) { return one.data; });
  });
}

std::vector<std::string> libtorch_forms(const std::string& name, int most_workers) {
  std::vector<std::string> all{name + "_libtorch_select1", name + "_libtorch_select", name + "_libtorch_stack0"};
  for (int workers = 0; workers <= most_workers; ++workers)
    all.push_back(name + "_libtorch_loader" + std::to_string(workers));
  return all;
}

#else

void add_libtorch(contest::question& ask, const std::string& name, const array&, int, int) {
  if (name != "k64") ask.left_out("LibTorch", "no libtorch-dev");
}
std::vector<std::string> libtorch_forms(const std::string&, int) { return {}; }

#endif

}  // namespace gather
