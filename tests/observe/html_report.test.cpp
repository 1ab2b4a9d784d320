// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/html_report.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/temporary_directory.hpp"
#include "modelled_events.hpp"

namespace {

using namespace std::chrono_literals;
using penstock_test::content_of;

/// The elements that are open where the text ends or the first that does not fit; empty for a page that is whole.
std::string left_open(std::string_view page) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = page.find('<', at)) != page.npos;) {
    const std::size_t end = page.find('>', at);
    if (end == page.npos) return "a tag without an end";
    const std::string_view tag = page.substr(at + 1, end - at - 1);
    at = end + 1;
    const std::string name(tag.substr(0, tag.find_first_of(" /", 1)));
    if (name == "!DOCTYPE" || name == "meta" || tag.ends_with('/')) continue;
    if (name.starts_with('/')) {
      if (open.empty() || name.substr(1) != open.back()) return name;
      open.pop_back();
    } else {
      open.push_back(name);
      if (name == "style" || name == "script") at = page.find("</" + name, at);
    }
  }
  return open.empty() ? "" : open.back();
}

class html_report : public testing::Test {
 protected:
  void SetUp() override { penstock_test::modelled_now = std::chrono::steady_clock::time_point{1h}; }
  static penstock::html_report_options modelled(penstock::html_report_options options = {}) {
    options.clock = &penstock_test::modelled_clock;
    options.wall_clock = &penstock_test::modelled_wall_clock;
    return options;
  }
  std::string page() const { return content_of(path_); }
  bool has(std::string_view part) const { return page().find(part) != std::string::npos; }

  penstock_test::temporary_directory folder_;
  std::string path_ = folder_.file("report.html");
};

TEST_F(html_report, follows_a_run_from_before_its_first_batch_to_its_end) {
  penstock::html_report observer(path_, modelled({.title = "Diamonds", .epochs = 3}));
  penstock_test::modelled_events run{observer};
  EXPECT_TRUE(has("waiting for the first batch"));
  EXPECT_EQ(left_open(page()), "");
  observer.on_begin({.steps_per_epoch = 100, .description = "stage  runs on"});
  run.steps(0, 0, 15);
  EXPECT_TRUE(has("waiting for the first batch")) << "the interval is 2 s";
  run.steps(0, 16, 50);
  EXPECT_TRUE(has("<meta http-equiv=\"refresh\" content=\"2\">")) << "the page goes on";
  EXPECT_TRUE(has(">running</span>"));
  EXPECT_TRUE(has("epoch 1 of 3, step 40 of 100")) << page();
  EXPECT_TRUE(has("0:26 left")) << page();
  EXPECT_TRUE(has("<title>13% Diamonds</title>"));
  EXPECT_TRUE(has("written 2026-01-02 04:04:09 UTC"));
  EXPECT_EQ(left_open(page()), "");
  run.steps(0, 51, 99);
  run.end_epoch(0);
  observer.on_end({"stopped"});
  EXPECT_FALSE(has("http-equiv")) << "nothing more will come";
  EXPECT_TRUE(has(">stopped</span>"));
  EXPECT_TRUE(has("<dd>25%</dd>\n<dd class=\"quiet\">bound by data</dd>")) << page();
  EXPECT_TRUE(has("aria-label=\"loss over steps; loss, last 99 at step 99\"")) << page();
  EXPECT_TRUE(has("stage  runs on"));
  EXPECT_EQ(left_open(page()), "");
}

TEST_F(html_report, needs_nothing_but_itself) {
  penstock::html_report observer(path_, modelled());
  penstock_test::modelled_events run{observer};
  run.steps(0, 0, 30);
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "<link", "<img", "fetch("})
    EXPECT_FALSE(has(outside)) << outside;
}

TEST_F(html_report, texts_of_others_cannot_become_part_of_the_page) {
  const std::string evil = "</pre><script>\"'&";
  penstock::html_report observer(path_, modelled({.title = evil}));
  penstock_test::modelled_events run{observer};
  observer.on_begin({.description = evil});
  run.batch(0, 0);
  run.report(0, 0, 1, evil.c_str());
  const std::vector<penstock::sample_fault> faults{{.sample = 7, .where = {.path = evil}, .problem = evil}};
  observer.on_epoch({.faults = faults});
  observer.on_error({.message = evil, .where = {.position = evil}});
  EXPECT_FALSE(has(evil));
  EXPECT_EQ(left_open(page()), "");
  EXPECT_TRUE(has("<h1>&lt;/pre&gt;&lt;script&gt;&quot;&#39;&amp;</h1>"));
  EXPECT_TRUE(has("role=\"alert\">&lt;/pre&gt;"));
  EXPECT_TRUE(has("1 sample could not be read"));
}

TEST_F(html_report, names_the_first_faults_and_counts_all) {
  penstock::html_report observer(path_, modelled({.most_faults = 3}));
  penstock_test::modelled_events run{observer};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    run.steps(epoch, 0, 1);
    std::vector<penstock::sample_fault> faults;
    for (std::uint64_t sample = 1; sample <= 2; ++sample)
      faults.push_back({.sample = 100 * epoch + sample, .substitute = 5, .where = {.epoch = epoch}, .problem = "torn"});
    observer.on_epoch({.epoch = epoch, .faults = faults});
  }
  observer.on_end({"done"});
  EXPECT_TRUE(has("4 samples could not be read; the first 3"));
  EXPECT_TRUE(has("<th scope=\"row\">101</th><td>2</td><td class=\"words\">torn; sample 5 was read in its place"));
  EXPECT_FALSE(has(">102<"));
}

TEST_F(html_report, its_size_is_bounded_whatever_the_run) {
  penstock::html_report observer(path_, modelled({.interval = 100s, .points = 50, .most_metrics = 10}));
  observer.on_begin({});
  std::size_t size = 0;
  for (std::uint64_t step = 0; step < 40'000; ++step) {
    penstock_test::modelled_now += 50ms;
    observer.on_batch({.epoch = step / 20, .step = step % 20, .samples = 1});
    const std::string name = "metric" + std::to_string(step % 1000);
    observer.on_metric({name, static_cast<double>(step), step / 20, step % 20});
    if (step == 20'000) observer.on_metric({"metric1", 1e6, step / 20, step % 20});  // a spike is kept
    if (step == 30'000) size = page().size();
  }
  observer.on_end({"done"});
  EXPECT_LT(page().size(), 150'000U);
  EXPECT_LT(page().size(), 2 * size) << "a curve has between half its points and all of them";
  EXPECT_TRUE(has("1e+06")) << "the greatest value";
  EXPECT_FALSE(has("metric10<"));
}

TEST_F(html_report, curves_of_odd_values_are_drawn) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double most = std::numeric_limits<double>::max();
  const std::vector<std::vector<double>> odd{{0},
                                             {5, 5, 5},
                                             {std::numeric_limits<double>::quiet_NaN(), infinity},
                                             {1, infinity, 2},
                                             {-most, most},
                                             {std::numeric_limits<double>::denorm_min(), most},
                                             {-1e-300, 1e-300},
                                             {1e15, 1e15 + 1}};
  penstock::html_report observer(path_, modelled());
  observer.on_begin({});
  for (std::uint64_t step = 0; step < 3; ++step) {
    penstock_test::modelled_now += 1s;
    observer.on_batch({.step = step, .samples = 1});
    for (std::size_t i = 0; i < odd.size(); ++i)
      if (step < odd[i].size()) observer.on_metric({"odd" + std::to_string(i), odd[i][step], 0, step});
  }
  observer.on_end({"done"});
  EXPECT_EQ(left_open(page()), "");
  const std::string text = page();
  for (const char* name :
       {" x=\"", " y=\"", "cx=\"", "cy=\"", "x1=\"", "y1=\"", "x2=\"", "y2=\"", "points=\"", " d=\"M"})
    for (std::size_t at = 0; (at = text.find(name, at)) != text.npos; ++at) {
      const std::size_t begin = at + std::string_view(name).size();
      const std::string value = text.substr(begin, text.find('"', begin) - begin);
      EXPECT_EQ(value.find_first_not_of("0123456789.,- lm"), value.npos) << name << value;
      EXPECT_LT(std::stod(value), 2000) << name << value;
    }
  EXPECT_TRUE(has("<path class=\"cross\""));
  EXPECT_TRUE(has("<th scope=\"col\">not finite</th>"));
}

TEST_F(html_report, names_of_one_kind_share_a_chart) {
  penstock::html_report observer(path_, modelled());
  penstock_test::modelled_events run{observer};
  run.batch(0, 0);
  for (const char* name : {"training/loss", "rate", "validation/loss"}) run.report(0, 0, 1, name);
  observer.on_end({"done"});
  EXPECT_TRUE(has("<b>loss</b><span class=\"quiet s0\"><span class=\"key\"></span>training/loss 1</span>"));
  EXPECT_FALSE(has("<b>validation/loss</b>"));
  EXPECT_TRUE(has("<b>rate</b>"));
}

TEST_F(html_report, says_which_rank_it_is_of) {
  penstock::html_report observer(path_, modelled({.rank = 2, .ranks = 4}));
  penstock_test::modelled_events run{observer};
  run.steps(0, 0, 3);
  observer.on_end({"done"});
  EXPECT_TRUE(has("epoch 1, step 3, rank 2 of 4")) << page();
}

TEST_F(html_report, refuses_what_it_cannot_write_and_a_later_failure_does_not_end_the_run) {
  try {
    penstock::html_report observer(folder_ / "missing/report.html");
    FAIL() << "it was taken";
  } catch (const penstock::error& problem) {
    EXPECT_NE(std::string(problem.what()).find("missing/report.html: cannot write: No such file"), std::string::npos)
        << problem.what();
  }
  EXPECT_THROW(penstock::html_report(path_, {.interval = 0ns}), std::invalid_argument);
  EXPECT_THROW(penstock::html_report(path_, {.points = 3}), std::invalid_argument);
  EXPECT_THROW(penstock::html_report(path_, {.rank = 1}), std::invalid_argument);

  std::filesystem::create_directory(folder_ / "gone");
  penstock::html_report observer(folder_ / "gone/report.html", modelled());
  penstock_test::modelled_events run{observer};
  std::filesystem::remove_all(folder_ / "gone");
  testing::internal::CaptureStderr();
  run.steps(0, 0, 50);
  observer.on_end({"done"});
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_NE(observer.failure().find("gone/report.html: cannot write: No such file"), std::string::npos);
}

}  // namespace
