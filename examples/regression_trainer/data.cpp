// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <penstock/dataset/csv.hpp>
#include <penstock/dataset/npy.hpp>
#include <penstock/penstock.hpp>

#include "batches.hpp"
#include "statistics.hpp"

namespace trainer {
namespace {

penstock::csv_options csv_options(const settings& s) {
  return {.target = s.target,
          .categories = {s.categories.begin(), s.categories.end()},
          .mode = s.indexed ? penstock::csv_mode::indexed : penstock::csv_mode::loaded};
}

table open(settings& s) {
  if (!s.x.empty()) return penstock::npy_pair<float, 1, float, 0>(s.x, s.y, {.convert = true});
  const penstock::csv_table csv(s.data, csv_options(s));
  s.categories.clear();
  for (const auto& found : csv.options().categories) s.categories.push_back({found});
  return csv;
}

template <class Rows>
struct without_target {
  Rows rows;
  std::uint64_t size() const { return rows.size(); }
  auto schema() const { return trainer::schema{std::get<0>(rows.schema().fields), penstock::field<float>{"target"}}; }
  void read(std::uint64_t index, const auto& to) const {
    const auto& [x, y] = to;
    rows.read(index, std::tie(x));
    y() = 0;
  }
};

auto in_order(const table& data, const settings& s, const standardise& inputs) {
  return batches(data, s, penstock::shuffle::none, inputs, {}, penstock::cpu_device{});
}

}  // namespace

parts open_parts(settings& s) {
  auto [train, validation, test] =
      penstock::split(open(s), {.validation = s.validation, .test = s.test, .seed = s.seed});
  return {train, validation, test};
}

table open_rows(const std::string& path, const settings& s) {
  if (path.ends_with(".npy")) return without_target{penstock::npy_array<float, 1>(path, {.convert = true})};
  return without_target{penstock::csv_features(path, csv_options(s))};
}

feed ordered_batches(const table& data, const settings& s, const standardise& inputs) {
  return in_order(data, s, inputs).start();
}

comoments statistics(const table& data, const settings& s, std::stop_token stop) {
  auto work = in_order(data, s, {}) | penstock::compute([](auto& batch) {
                auto [x, y] = batch.fields();
                return comoments::of(x.data(), y.data(), batch.size(), x.extent(1));
              }) |
              penstock::reduce(comoments{}, [](comoments& all, const comoments& one) { all.merge(one); });
  const auto done = penstock::run(work, {.epochs = 1, .stop = stop});
  return done.stopped ? comoments{} : done.value();
}

}  // namespace trainer
