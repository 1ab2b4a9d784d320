// SPDX-License-Identifier: Apache-2.0
// The loop over tensors: of penstock's batches, and of LibTorch's DataLoader over a dataset of single patches and
// Stack, which is its natural form, and over one that puts whole batches together by hand, which is its fastest.
#include "torch_loader.hpp"

#if __has_include(<torch/torch.h>)
#include <torch/torch.h>
#include <torch/version.h>

#include <memory>
#include <random>
#include <utility>

#include <penstock/interop/torch.hpp>
#include <penstock/penstock.hpp>

namespace torch_loader {

namespace {

constexpr auto extent = static_cast<std::int64_t>(patch);

void convert(const photographs& all, std::size_t from, float* x, float* y) {
  for (std::size_t row = 0; row < patch; ++row)
    for (std::size_t column = 0; column < patch; ++column) {
      x[row * patch + column] = static_cast<float>(all.input[from + row * edge + column]) * (1 / 255.0F);
      y[row * patch + column] = static_cast<float>(all.response[from + row * edge + column]) * (1 / 255.0F);
    }
}

/// A dataset of one's own for penstock.
struct patches {
  using schema_type = penstock::schema<penstock::field<float, 3>, penstock::field<float, 3>>;
  const photographs* all;
  std::uint64_t number;

  std::uint64_t size() const { return number; }
  schema_type schema() const {
    return schema_type{penstock::field<float, 3>{"input", {1, patch, patch}},
                       penstock::field<float, 3>{"response", {1, patch, patch}}};
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to, penstock::read_context& context) const {
    const auto [x, y] = to;
    const std::size_t top = context.random.below(edge - patch + 1), left = context.random.below(edge - patch + 1);
    convert(*all, photographs::offset(index, top, left), x.data(), y.data());
  }
};

/// For LibTorch's loader, whose workers draw from generators of their own.
std::pair<std::size_t, std::size_t> place() {
  thread_local std::mt19937 generator(std::random_device{}());
  std::uniform_int_distribution<std::size_t> within(0, edge - patch);
  const std::size_t top = within(generator);
  return {top, within(generator)};
}

struct single_patches : torch::data::datasets::Dataset<single_patches> {
  single_patches(const photographs& all, std::uint64_t count) : number(count) {
    const auto n = static_cast<std::int64_t>(images), e = static_cast<std::int64_t>(edge);
    input = torch::from_blob(const_cast<std::uint8_t*>(all.input.data()), {n, e, e}, torch::kUInt8);
    response = torch::from_blob(const_cast<std::uint8_t*>(all.response.data()), {n, e, e}, torch::kUInt8);
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto [top, left] = place();
    const auto cut = [&, t = static_cast<std::int64_t>(top), l = static_cast<std::int64_t>(left)](const auto& from) {
      return from[static_cast<std::int64_t>(index % images)]
          .narrow(0, t, extent)
          .narrow(1, l, extent)
          .unsqueeze(0)
          .to(torch::kFloat32)
          .mul_(1 / 255.0F);
    };
    return {cut(input), cut(response)};
  }
  torch::optional<std::size_t> size() const override { return number; }

  torch::Tensor input, response;
  std::uint64_t number;
};

struct whole_batches : torch::data::datasets::BatchDataset<whole_batches, torch::data::Example<>> {
  whole_batches(const photographs& of, std::uint64_t count) : all(&of), number(count) {}
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) override {
    const auto n = static_cast<std::int64_t>(indices.size());
    const auto x = torch::empty({n, 1, extent, extent}), y = torch::empty({n, 1, extent, extent});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto [top, left] = place();
      convert(*all, photographs::offset(indices[i], top, left), x.data_ptr<float>() + i * patch * patch,
              y.data_ptr<float>() + i * patch * patch);
    }
    return {x, y};
  }
  torch::optional<std::size_t> size() const override { return number; }

  const photographs* all;
  std::uint64_t number;
};

/// What is done with a batch: nothing but a look at it, or a step of a small network.
class consumer {
 public:
  explicit consumer(bool train) : train_(train) {
    torch::manual_seed(7);
    torch::set_num_threads(1);  // as many threads as workers say
    if (!train) return;
    const auto layer = [](int in, int out) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1));
    };
    net_ = torch::nn::Sequential(layer(1, 8), torch::nn::ReLU(), layer(8, 8), torch::nn::ReLU(), layer(8, 1));
    optimizer_ = std::make_unique<torch::optim::Adam>(net_->parameters(), 1e-3);
  }
  std::uint64_t take(const torch::Tensor& x, const torch::Tensor& y) {
    const auto last = x.numel() - 1;
    if (!(x.data_ptr<float>()[last] > 0 && y.data_ptr<float>()[last] > 0)) throw std::runtime_error("a patch is empty");
    if (train_) {
      const auto loss = torch::mse_loss(net_->forward(x), y);
      optimizer_->zero_grad();
      loss.backward();
      optimizer_->step();
    }
    return static_cast<std::uint64_t>(x.size(0));
  }

 private:
  bool train_;
  torch::nn::Sequential net_{nullptr};
  std::unique_ptr<torch::optim::Adam> optimizer_;
};

contest::figures by_penstock(const photographs& all, const work& of, int readers) {
  consumer consume(of.train);
  auto feed = (patches{&all, of.patches} | penstock::partition({.seed = 7}) | penstock::read({.readers = readers}) |
               penstock::batch(of.batch) | penstock::transfer(penstock::cpu_device{}, {.depth = of.depth}))
                  .start();
  return measured(of, [&](int number) {
    std::uint64_t came = 0;
    for (auto& batch : feed.epoch(static_cast<std::uint64_t>(number))) {
      const auto [x, y] = penstock::to_tensors(batch);
      came += consume.take(x, y);
    }
    return came;
  });
}

template <class Dataset>
contest::figures by_loader(Dataset dataset, const work& of, int workers) {
  consumer consume(of.train);
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      std::move(dataset),
      torch::data::DataLoaderOptions(static_cast<std::size_t>(of.batch)).workers(static_cast<std::size_t>(workers)));
  return measured(of, [&](int) {
    std::uint64_t came = 0;
    for (auto& batch : *loader) came += consume.take(batch.data, batch.target);
    return came;
  });
}

}  // namespace

bool has_libtorch() { return true; }

void add(contest::question& ask, const std::string& name, const photographs& all, const work& of, int most_readers) {
  if (!of.train) ask.rival("LibTorch", TORCH_VERSION);
  for (int n = 0; n <= most_readers; ++n) {
    const std::string with = std::to_string(n);
    ask.add(name + "_readers" + with, [&all, of, n] { return by_penstock(all, of, n); });
    if (n == 1) ask.add(name + "_again", [&all, of, n] { return by_penstock(all, of, n); });
    ask.add(name + "_stack" + with, [&all, of, n] {
      return by_loader(single_patches(all, of.patches).map(torch::data::transforms::Stack<>()), of, n);
    });
    ask.add(name + "_by_hand" + with, [&all, of, n] { return by_loader(whole_batches(all, of.patches), of, n); });
  }
}

}  // namespace torch_loader

#else

namespace torch_loader {

bool has_libtorch() { return false; }
void add(contest::question&, const std::string&, const photographs&, const work&, int) {}

}  // namespace torch_loader

#endif
