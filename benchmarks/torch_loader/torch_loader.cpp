// SPDX-License-Identifier: Apache-2.0
// large packages: libtorch-dev
// How fast do random patches reach a loop over LibTorch's tensors? Penstock's readers against LibTorch's own DataLoader
// with as many workers: pairs of 40 x 40 patches, 64 a batch, cut from photographs of bytes in memory and converted to
// float. Once with nothing done with them, and once with a step of a small convolutional network.
#include <cstdio>
#include <memory>
#include <string>

#include "torch_loader.hpp"

int main(int argc, char** argv) {
  using namespace torch_loader;
  contest::question ask("torch_loader", "patches/s", argc, argv);
  if (!has_libtorch()) {
    std::puts("torch_loader: left out: no libtorch-dev");
    return 77;
  }
  int batch = 64, depth = 3, most_readers = 2;
  ask.guarded([&] {
    batch = ask.sizes.integer("batch", batch);
    depth = ask.sizes.integer("depth", depth);
    most_readers = ask.sizes.integer("readers", most_readers, 1);
  });
  const auto all = std::make_unique<photographs>();
  const work load{.patches = static_cast<std::uint64_t>(batch) * 512, .batch = batch, .depth = depth};
  const work train{
      .patches = static_cast<std::uint64_t>(batch) * 24, .batch = batch, .depth = depth, .epochs = 1, .train = true};
  add(ask, "load", *all, load, most_readers);
  add(ask, "train", *all, train, most_readers);
  return ask.run([&](contest::line& line) {
    for (const char* what : {"load", "train"})
      for (int n = 1; n <= most_readers; ++n) {
        const std::string kind = what, with = std::to_string(n);
        line.ratio(kind + with + "_stack", kind + "_readers" + with, kind + "_stack" + with);
        line.ratio(kind + with + "_by_hand", kind + "_readers" + with, kind + "_by_hand" + with);
      }
    line.again("load_readers1", "load_again");
  });
}
