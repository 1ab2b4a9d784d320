// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>  // before the operators, which in 1.13 do not compile as C++20 by clang otherwise
#include <ATen/ops/cat.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/communicator/reduce_buffer.hpp>
#include <penstock/sample/error.hpp>

namespace penstock::detail {

/// A parameter or buffer of a module.
struct torch_entry {
  std::string name;
  at::Tensor tensor;
  bool parameter = false;
};

/// `parameter "conv.weight" (float [4, 1, 3, 3])`, in a line.
inline std::string text_of(const torch_entry& one) {
  std::string sizes;
  for (const std::int64_t extent : one.tensor.sizes()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(extent);
  return concat(one.parameter ? one.tensor.requires_grad() ? "parameter" : "frozen parameter" : "buffer", " \"",
                one.name, "\" (", std::string_view(c10::toString(one.tensor.scalar_type())), " [", sizes, "])");
}
inline std::string text_of(const std::vector<torch_entry>& all) {
  std::string text;
  for (const torch_entry& one : all) text += text_of(one) + '\n';
  return text;
}
/// FNV-1a: the same on all ranks, whatever machine each is on.
inline std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char one : text) hash = (hash ^ static_cast<unsigned char>(one)) * 0x100000001b3ULL;
  return hash;
}

/// Throws, on every rank alike, if some rank's entries differ from rank 0's: it names the first that does.
template <class Replica>
void check_same_structure(Replica& replica, const std::vector<torch_entry>& all) {
  const std::string text = text_of(all);
  const auto hashes = replica.gather(concat(all.size(), ' ', hash_of(text)));
  bool same = true;
  for (const std::string& one : hashes) same = same && one == hashes[0];
  if (same) return;
  const auto texts = replica.gather(text);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    std::string_view a = texts[0], b = texts[r];
    for (std::size_t n = 0; !a.empty() || !b.empty(); ++n) {
      const std::string_view one = a.substr(0, a.find('\n')), other = b.substr(0, b.find('\n'));
      if (one != other)
        throw error(concat("torch_replica: ranks have different modules: entry ", n, " is ",
                           one.empty() ? "missing" : one, " on rank 0, ", other.empty() ? "missing" : other,
                           " on rank ", r, "; wanted the same names, types and shapes in the same order"));
      a.remove_prefix(a.empty() ? 0 : one.size() + 1);
      b.remove_prefix(b.empty() ? 0 : other.size() + 1);
    }
  }
}

/// In which elements a type's values travel without loss.
inline at::ScalarType travels_as(const torch_entry& one) {
  const at::ScalarType type = one.tensor.scalar_type();
  if (type == at::kDouble || type == at::kFloat) return type;
  if (type == at::kHalf || type == at::kBFloat16) return at::kFloat;
  if (c10::isIntegralType(type, true)) return at::kLong;
  throw error(
      concat("torch_replica: ", text_of(one), " cannot be sent to the other ranks; wanted real numbers or bool"));
}
inline reduce_buffer buffer_of(const at::Tensor& flat, reduction how) {
  const element_type type = flat.scalar_type() == at::kFloat    ? element_type::float32
                            : flat.scalar_type() == at::kDouble ? element_type::float64
                                                                : element_type::int64;
  return {flat.data_ptr(), static_cast<std::size_t>(flat.numel()), type, how};
}

/// Rank 0's values replace those of all others. Outside the steps.
template <class Replica>
void broadcast(Replica& replica, const std::vector<torch_entry>& all) {
  const at::NoGradGuard no_gradients;
  const auto on = replica.device().make_stream();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
    std::vector<at::Tensor> parts;
    for (const torch_entry& one : all)
      if (travels_as(one) == type) parts.push_back(one.tensor.detach().reshape({-1}).to(type));
    if (parts.empty()) continue;
    const at::Tensor flat = at::cat(parts);
    if (flat.numel() == 0) continue;
    // LibTorch's stream and ours are ordered by the host, once.
    if (!flat.is_cpu()) c10::impl::VirtualGuardImpl(flat.device().type()).getStream(flat.device()).synchronize();
    replica.broadcast(0, on.view(), buffer_of(flat, reduction::sum));
    on.view().synchronize();
    std::int64_t at = 0;
    for (const torch_entry& one : all) {
      if (travels_as(one) != type) continue;
      at::Tensor to = one.tensor.detach();
      to.copy_(flat.narrow(0, at, to.numel()).view(to.sizes()));
      at += to.numel();
    }
    if (!flat.is_cpu()) c10::impl::VirtualGuardImpl(flat.device().type()).getStream(flat.device()).synchronize();
  }
}

}  // namespace penstock::detail
