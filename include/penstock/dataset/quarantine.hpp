// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/dataset/atomic_file.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/fault.hpp>
#include <penstock/sample/fault_list.hpp>
#include <penstock/sample/take_number.hpp>

/// The file of samples that could not be read: see `read_options::quarantine`.
///
///     # penstock-quarantine 1 samples 50000 fields 1234567890
///     sample,path,position,problem
///     17,"photo17.png","row 7","the file is cut"
namespace penstock::detail {

/// A list, by sample.
using quarantine_rows = std::map<std::uint64_t, sample_fault>;

inline std::string quarantine_text(const quarantine_rows& rows, const quarantine_of& whose) {
  std::string out = concat("# penstock-quarantine 1 samples ", whose.samples, " fields ", whose.fields,
                           "\nsample,path,position,problem\n");
  const auto quote = [&](std::string_view text, char after) {
    out += '"';
    for (const char c : text) out.append(c == '"' ? 2 : 1, c);
    out += '"';
    out += after;
  };
  for (const auto& [sample, row] : rows) {
    out += std::to_string(sample) + ',';
    quote(row.where.path, ',');
    quote(row.where.position, ',');
    quote(row.problem, '\n');
  }
  return out;
}

/// Reads what `quarantine_text` wrote, or a person has edited: other line ends and quotes, other orders of rows.
/// Errors are `error`, with path and line, for all else, and for a list of another dataset.
class quarantine_parser {
 public:
  quarantine_parser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  quarantine_rows parse(const quarantine_of& whose) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
    head(whose);
    quarantine_rows rows;
    bool named = false;
    while (next_row()) {
      if (cells_ != 4) refuse("found a row of " + std::to_string(cells_) + " cells, wanted 4");
      if (!named) {
        if (cell_[0] != "sample" || cell_[1] != "path" || cell_[2] != "position" || cell_[3] != "problem")
          refuse("found other names of columns, wanted sample,path,position,problem");
        named = true;
        continue;
      }
      sample_fault row;
      std::string_view digits = cell_[0];
      if (!take_number(digits, row.sample) || !digits.empty() || row.sample >= whose.samples)
        refuse("found the sample \"" + cell_[0].substr(0, 40) + "\", wanted a number below " +
               std::to_string(whose.samples));
      row.where.sample = row.sample;
      row.where.path = cell_[1];
      row.where.position = cell_[2];
      row.problem = cell_[3];
      rows.emplace(row.sample, std::move(row));  // the first of several: two lists may have been put together
    }
    if (!named) refuse("the list ends here, wanted sample,path,position,problem");
    return rows;
  }

 private:
  static constexpr std::string_view begin = "# penstock-quarantine ";

  void head(const quarantine_of& whose) {
    const std::size_t end = text_.find_first_of("\r\n", at_);
    std::string_view rest = text_.substr(at_, end == std::string_view::npos ? end : end - at_);
    at_ += rest.size();
    while (!rest.empty() && rest.back() == ',') rest.remove_suffix(1);  // a spreadsheet's
    if (rest.substr(0, begin.size()) != begin)
      refuse("the file is of another kind, wanted a list of samples that begins \"# penstock-quarantine\"");
    std::uint64_t format = 0, samples = 0, fields = 0;
    const auto value = [&](std::string_view name, std::uint64_t& to) {
      if (rest.substr(0, name.size()) != name) return false;
      rest.remove_prefix(name.size());
      return take_number(rest, to);
    };
    if (!value(begin, format) || format != 1 || !value(" samples ", samples) || !value(" fields ", fields) ||
        !rest.empty())
      refuse("found another head, wanted \"# penstock-quarantine 1 samples N fields F\"");
    if (samples != whose.samples)
      refuse("the list is of a dataset of " + std::to_string(samples) + " samples, wanted one of " +
             std::to_string(whose.samples));
    if (fields != whose.fields) refuse("the list is of a dataset with other fields");
  }

  bool at_line_end() const { return at_ == text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; }
  void pass_line_end() {
    ++line_;
    at_ += text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n' ? 2 : 1;
  }
  /// The next row that is not blank, into `cell_`; `line_` is where it begins.
  bool next_row() {
    line_ += within_;
    within_ = 0;
    while (at_ < text_.size() && at_line_end()) pass_line_end();
    if (at_ == text_.size()) return false;
    for (cells_ = 0;; ++at_) {
      std::string cell = at_ < text_.size() && text_[at_] == '"' ? quoted() : plain();
      if (cells_ < 4) cell_[cells_] = std::move(cell);
      ++cells_;
      if (at_line_end()) return true;
      if (text_[at_] != ',') refuse("found more after a closing quote, wanted a comma or the end of the line");
    }
  }
  std::string plain() {
    const std::size_t first = at_;
    while (!at_line_end() && text_[at_] != ',') ++at_;
    return std::string(text_.substr(first, at_ - first));
  }
  std::string quoted() {
    std::string out;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"' && (++at_ == text_.size() || text_[at_] != '"')) return out;
      within_ += text_[at_] == '\n' ? 1 : 0;
      out += text_[at_];
    }
    refuse("a quote is opened here and never closed");
  }
  [[noreturn]] void refuse(std::string problem) const {
    throw error(std::move(problem), place_in_file(path_, "line " + std::to_string(line_)));
  }

  std::string_view text_;
  std::string path_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
  std::uint64_t within_ = 0;  // line ends in the row's quotes
  std::string cell_[4];
  std::size_t cells_ = 0;
};

/// The rows of the list at `path`; none if there is no such file.
inline quarantine_rows read_quarantine(const std::string& path, const quarantine_of& whose) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  const file_descriptor file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return quarantine_parser(text, path).parse(whose);
}

/// One feed's list: what files held when it began, which readers look up, and what has come to it since, which is the
/// consumer's. Of several ranks each keeps its own, `bad.rank1.csv`, and looks up those of all, and `bad.csv`.
class quarantine_file final : public fault_list {
 public:
  /// Throws `error` for a list that cannot be read, or is not of this dataset, and where none can be written.
  quarantine_file(const std::string& path, std::uint64_t rank, std::uint64_t ranks, const quarantine_of& whose)
      : path_(ranks > 1 ? of_rank(path, rank) : path), whose_(whose) {
    listed_ = read_quarantine(path, whose);
    for (std::uint64_t i = 0; ranks > 1 && i < ranks; ++i) listed_.merge(read_quarantine(of_rank(path, i), whose));
    const atomic_file probe(path_);
  }

  /// "dir.d/bad.csv" of rank 1 is "dir.d/bad.rank1.csv".
  static std::string of_rank(const std::string& path, std::uint64_t rank) {
    const std::size_t slash = path.rfind('/');
    const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
    const std::size_t dot = path.rfind('.');
    const std::size_t at = dot == std::string::npos || dot <= name ? path.size() : dot;
    return concat(path.substr(0, at), ".rank", rank, path.substr(at));
  }

  bool lists_any(std::span<const std::uint64_t> samples) const override {
    if (listed_.empty()) return false;
    for (const std::uint64_t sample : samples)
      if (find(sample) != nullptr) return true;
    return false;
  }
  const sample_fault* find(std::uint64_t sample) const override {
    const auto at = listed_.find(sample);
    return at == listed_.end() ? nullptr : &at->second;
  }

  void add(const sample_fault& fault) override {
    if (find(fault.sample) == nullptr) changed_ = found_.emplace(fault.sample, fault).second || changed_;
  }
  /// Writes the file anew, if there is something to add to it, with what others have put there meanwhile.
  void write() override {
    if (!changed_) return;
    quarantine_rows all = read_quarantine(path_, whose_);
    all.insert(found_.begin(), found_.end());
    const std::string text = quarantine_text(all, whose_);
    write_atomically(path_, std::as_bytes(std::span(text)));
    changed_ = false;
  }

 private:
  std::string path_;
  quarantine_of whose_;
  quarantine_rows listed_;
  quarantine_rows found_;
  bool changed_ = false;
};

}  // namespace penstock::detail

namespace penstock {

/// For `read({.bad = bad_samples::skip, .quarantine = quarantine("bad.csv")})`: a CSV file of the samples that could
/// not be read, kept over runs; see `read_options::quarantine`. An empty path is no list.
inline quarantine_list quarantine(std::string path) {
  return {std::move(path),
          [](const std::string& at, std::uint64_t rank, std::uint64_t ranks,
             const detail::quarantine_of& whose) -> std::shared_ptr<detail::fault_list> {
            return std::make_shared<detail::quarantine_file>(at, rank, ranks, whose);
          }};
}

}  // namespace penstock
