// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include <penstock/dataset/atomic_file.hpp>

#include "network.hpp"
#include "options.hpp"

namespace patch_trainer {

inline constexpr std::uint32_t checkpoint_format = 1;

/// Writes all that going on needs into one file, whole or not at all. `feed` says where the batches go on.
inline void save(const std::string& path, settings s, convolutions& net, torch::optim::Adam& adam,
                 const std::string& feed) {
  torch::serialize::OutputArchive root, model, optimizer;
  s.each([&](const char* name, const auto& value) { root.write(name, c10::IValue(value)); });
  root.write("feed", c10::IValue(feed));
  net.save(model);
  adam.save(optimizer);
  root.write("model", model);
  root.write("optimizer", optimizer);
  std::ostringstream bytes;
  root.save_to(bytes);
  const std::string text = bytes.str();
  penstock::write_checked(path, std::as_bytes(std::span(text)), checkpoint_format);
}

/// What `save` wrote; a file that is cut or changed is refused with its name.
class checkpoint {
 public:
  explicit checkpoint(const std::string& path) {
    const auto bytes = penstock::read_checked(path, checkpoint_format);
    std::istringstream text(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    root_.load_from(text);
  }
  settings options() {
    settings s;
    c10::IValue value;
    s.each([&]<class T>(const char* name, T& to) {
      root_.read(name, value);
      to = value.to<T>();
    });
    return s;
  }
  std::string feed() {
    c10::IValue value;
    root_.read("feed", value);
    return value.toStringRef();
  }
  void restore(convolutions& net, torch::optim::Adam& adam) {
    torch::serialize::InputArchive model, optimizer;
    root_.read("model", model);
    root_.read("optimizer", optimizer);
    net.load(model);
    adam.load(optimizer);
  }

 private:
  torch::serialize::InputArchive root_;
};

}  // namespace patch_trainer
