// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
// Real files with oddities, as tests/real_inputs.sh fetches them. Wanted sizes and sums are those that Python's csv
// module gives for the same files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <penstock/dataset/csv.hpp>

#include "csv_support.hpp"

namespace {

using penstock::csv_missing;
using penstock::csv_mode;
using penstock::csv_options;
using penstock::csv_text;

struct real_file {
  const char* name;
  const char* path;  // below PENSTOCK_REAL_INPUTS
  csv_options options;
  std::size_t rows;
  std::size_t features;
  std::size_t missing;
  double sum;  // of all cells that are not missing; texts are numbered in alphabetical order
};

void PrintTo(const real_file& file, std::ostream* out) { *out << file.path; }

const std::string python = "usr/lib/python3/dist-packages/";
const std::vector<real_file> files{
    {"byte_order_mark", "statsmodels/datasets/danish_data/data.csv", {}, 55, 6, 0, 2472.97089846},
    {"semicolons", "statsmodels/datasets/modechoice/modechoice.csv", {.delimiter = 0}, 840, 9, 0, 692106},
    {"tabs_and_single_quotes",
     "statsmodels/datasets/anes96/anes96.csv",
     {.delimiter = 0, .quote = '\''},
     944,
     10,
     0,
     371905},
    {"blanks_and_single_quotes",
     "statsmodels/datasets/spector/spector.csv",
     {.delimiter = ' ', .quote = '\''},
     32,
     5,
     0,
     1354.75},
    {"commas_in_quotes_and_no_last_line_end",
     "statsmodels/datasets/fertility/fertility.csv",
     {},
     219,
     58,
     1542,
     90717.819},
    {"CR_only_of_stata",
     "statsmodels/tsa/statespace/tests/results/results_wpi1_ar3_stata.csv",
     {},
     124,
     14,
     11,
     16728.42237030014},
    {"CR_only", "statsmodels/tsa/regime_switching/tests/results/mar_filardo.csv", {}, 519, 8, 30, 267228.7416057792},
    {"row_names_and_NA",
     "statsmodels/regression/tests/results/dietox.csv",
     {.row_names = true},
     861,
     7,
     72,
     5506681.787708},
    {"blank_line", "statsmodels/genmod/tests/results/stata_lbw_glm.csv", {}, 189, 11, 0, 608901},
    {"quoted_header", "statsmodels/datasets/fair/fair.csv", {}, 6366, 9, 0, 434253.41017150314},
    {"texts_and_empty_cells", "statsmodels/gam/tests/results/autos.csv", {}, 205, 26, 59, 4387000.74},
    {"empty_cells", "statsmodels/datasets/co2/co2.csv", {}, 2284, 2, 59, 45216687974.5},
    {"wide", "statsmodels/datasets/star98/star98.csv", {}, 303, 22, 0, 6132029.332672006},
    {"long", "statsmodels/datasets/randhie/randhie.csv", {}, 20190, 10, 0, 513918.7216121732},
    {"names_with_commas",
     "vega_datasets/_data/airports.csv",
     {.text = csv_text::drop},
     3376,
     2,
     0,
     -197781.88404838069},
    {"count_line_without_header",
     "sklearn/datasets/data/wine_data.csv",
     {.header = false, .skip_lines = 1},
     178,
     14,
     0,
     160142.296},
    {"blanks", "sklearn/datasets/data/linnerud_exercise.csv", {.delimiter = ' '}, 20, 3, 0, 4506},
    {"comment_line",
     "../../../share/matplotlib/mpl-data/sample_data/Stocks.csv",
     {.comment = '#'},
     524,
     11,
     1915,
     2327939.0337177217},
};

class csv_real : public testing::TestWithParam<real_file> {};
INSTANTIATE_TEST_SUITE_P(, csv_real, testing::ValuesIn(files), [](const auto& run) { return run.param.name; });

TEST_P(csv_real, is_what_others_read) {
  const char* const folder = std::getenv("PENSTOCK_REAL_INPUTS");
  if (folder == nullptr) GTEST_SKIP() << "PENSTOCK_REAL_INPUTS is not set: see tests/real_inputs.sh";
  const auto path = std::filesystem::path(folder) / python / GetParam().path;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: see tests/real_inputs.sh";
  for (const csv_mode mode : {csv_mode::loaded, csv_mode::indexed}) {
    csv_options options = GetParam().options;
    options.on_missing = csv_missing::nan;
    options.mode = mode;
    const penstock::csv_features<double> table(path, options);
    EXPECT_EQ(table.size(), GetParam().rows);
    EXPECT_EQ(table.feature_names().size(), GetParam().features);
    std::size_t missing = 0;
    double sum = 0;
    for (const penstock_test::numbers& row : penstock_test::rows_of(table)) {
      for (const double cell : row) {
        std::isnan(cell) ? void(++missing) : void(sum += cell);
      }
    }
    EXPECT_EQ(missing, GetParam().missing);
    EXPECT_NEAR(sum, GetParam().sum, 1e-9 * std::abs(GetParam().sum));
  }
}

}  // namespace
