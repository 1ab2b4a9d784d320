// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <penstock/dataset/csv_syntax.hpp>

namespace penstock::detail {

/// Cuts a stream of bytes into rows and cells as RFC 4180 says, and forgives what real files do beyond it: a
/// byte-order mark, any of the three line ends (even mixed), a missing last one, blank lines, blanks around quotes.
///
/// A push parser: bytes come in pieces of any size, cut anywhere, and what comes out does not depend on the cuts.
/// A parser that starts at the mark of a row yields that row and all after it. The sink is told
///   void cell(const csv_cell&)                               every cell, in order
///   bool row(csv_mark start, std::size_t cells)              after a row's last cell; false ends the parsing
///   void fail(const std::string&, std::uint64_t line, std::size_t column)   must throw; the column counts from 0
/// A cell that lies in one piece without doubled quotes is handed on where it is; only others are copied.
class csv_parser {
 public:
  explicit csv_parser(const csv_syntax& syntax, csv_mark start = {}) : syntax_(&syntax), byte_(start.byte) {
    line_ = start.line;
    if (start.byte != 0) {
      bom_ = bom_done;
    } else if (syntax.skip_lines() > 0) {
      skip_lines_ = syntax.skip_lines();
      state_ = state::skipped_line;
    }
  }

  csv_parser(const csv_parser&) = delete;
  csv_parser& operator=(const csv_parser&) = delete;

  /// Takes the next piece. False if the sink has seen enough.
  template <class Sink>
  bool push(std::string_view piece, Sink& sink) {
    while (bom_ < bom.size() && !piece.empty()) {
      if (piece.front() == bom[bom_]) {
        piece.remove_prefix(1);
        if (++bom_ == bom.size()) {
          bom_ = bom_done;
          byte_ = bom.size();
        }
      } else if (!replay_bom(sink)) {
        return false;
      }
    }
    return parse(piece, sink);
  }

  /// The end of the stream: completes a last row that has no line end.
  template <class Sink>
  void finish(Sink& sink) {
    if (bom_ < bom.size() && !replay_bom(sink)) return;
    switch (state_) {
      case state::row_start:
      case state::skipped_line: return;
      case state::quoted: sink.fail("a quote is opened here and never closed", cell_line_, cells_); return;
      default: static_cast<void>(end_row(sink));
    }
  }

 private:
  enum class state : unsigned char { row_start, skipped_line, cell_start, lead, plain, quoted, quote, after_quote };
  static constexpr std::string_view bom = "\xEF\xBB\xBF";
  static constexpr std::size_t bom_done = bom.size() + 1;

  /// What looked like a byte-order mark was text.
  template <class Sink>
  bool replay_bom(Sink& sink) {
    const std::string_view text = bom.substr(0, bom_);
    bom_ = bom_done;
    return parse(text, sink);
  }

  template <class Sink>
  bool parse(std::string_view piece, Sink& sink) {
    const char* const begin = piece.data();
    const char* const end = begin + piece.size();
    const char* at = begin;
    while (at != end) {
      const char c = *at;
      switch (state_) {
        case state::row_start:
          if (csv_syntax::is_line_end(c)) {  // a blank line, or the second half of CR LF
            count_line(c);
            ++at;
          } else if (syntax_->is_comment(c)) {
            state_ = state::skipped_line;
          } else {
            after_cr_ = false;
            row_ = {byte_ + static_cast<std::uint64_t>(at - begin), line_};
            cells_ = 0;
            start_cell();
          }
          break;
        case state::skipped_line:
          if (csv_syntax::is_line_end(c)) {
            const bool counted = count_line(c);
            if (counted && skip_lines_ > 0) --skip_lines_;
            if (counted && skip_lines_ == 0) state_ = state::row_start;
          } else {
            after_cr_ = false;
          }
          ++at;
          break;
        case state::cell_start:
          if (syntax_->separates_by_blanks() && (c == ' ' || c == '\t')) {
            ++at;
          } else if (syntax_->is_quote(c)) {
            state_ = state::quoted;
            quoted_ = true;
            ++at;
          } else {
            state_ = syntax_->is_blank(c) ? state::lead : state::plain;
          }
          break;
        case state::lead:
          if (syntax_->is_blank(c)) {
            append(at, 1);
            ++at;
          } else if (syntax_->is_quote(c)) {
            forget_text();
            state_ = state::cell_start;
          } else if (csv_syntax::is_line_end(c)) {
            if (!end_row_at(c, sink)) return false;
            ++at;
          } else {
            state_ = state::plain;
          }
          break;
        case state::plain: {
          const char* const first = at;
          while (at != end && !syntax_->ends_cell(*at)) ++at;
          append(first, static_cast<std::size_t>(at - first));
          if (at == end) break;
          if (!end_cell_at(*at++, sink)) return false;
          break;
        }
        case state::quoted: {
          const char* const first = at;
          while (at != end && !syntax_->is_quote(*at)) {
            if (csv_syntax::is_line_end(*at)) {
              count_line(*at);
            } else {
              after_cr_ = false;
            }
            ++at;
          }
          append(first, static_cast<std::size_t>(at - first));
          if (at == end) break;
          after_cr_ = false;
          state_ = state::quote;
          ++at;
          break;
        }
        case state::quote:
          if (syntax_->is_quote(c)) {
            append(at, 1);
            state_ = state::quoted;
            ++at;
          } else {
            state_ = state::after_quote;
          }
          break;
        case state::after_quote:
          if (syntax_->ends_cell(c)) {
            if (!end_cell_at(c, sink)) return false;
          } else if (!syntax_->is_blank(c)) {
            const std::string found(1, c);
            sink.fail("found '" + found + "' after a closing quote, wanted the end of the cell", line_, cells_);
          }
          ++at;
          break;
      }
    }
    byte_ += piece.size();
    keep_text();
    return true;
  }

  /// Counts a line end, CR LF once. True if it was counted.
  bool count_line(char c) {
    const bool counted = !(c == '\n' && after_cr_);
    if (counted) ++line_;
    after_cr_ = c == '\r';
    return counted;
  }

  void start_cell() {
    state_ = state::cell_start;
    quoted_ = false;
    cell_line_ = line_;
  }

  template <class Sink>
  void emit(Sink& sink) {
    sink.cell(csv_cell{cells_, text_, quoted_, cell_line_});
    ++cells_;
    forget_text();
    start_cell();
  }

  template <class Sink>
  bool end_cell_at(char c, Sink& sink) {
    if (csv_syntax::is_line_end(c)) return end_row_at(c, sink);
    emit(sink);
    return true;
  }

  template <class Sink>
  bool end_row_at(char c, Sink& sink) {
    const bool go_on = end_row(sink);
    count_line(c);
    return go_on;
  }

  /// A line of nothing but blanks is no row; blanks that separate may also stand before the line end.
  template <class Sink>
  bool end_row(Sink& sink) {
    const bool blank_line = cells_ == 0 && state_ == state::lead;
    const bool no_cell = syntax_->separates_by_blanks() && text_.empty() && !quoted_;
    if (!blank_line && !no_cell) emit(sink);
    forget_text();
    state_ = state::row_start;
    return cells_ == 0 || sink.row(row_, cells_);
  }

  void append(const char* text, std::size_t size) {
    if (size == 0) return;
    if (text_.empty()) {
      text_ = {text, size};
    } else if (!copied_ && text_.data() + text_.size() == text) {
      text_ = {text_.data(), text_.size() + size};
    } else {
      if (!copied_) copy_.assign(text_);
      copy_.append(text, size);
      copied_ = true;
      text_ = copy_;
    }
  }
  void forget_text() {
    text_ = {};
    copied_ = false;
  }
  /// The piece may be gone when the next one comes.
  void keep_text() {
    if (copied_ || text_.empty()) return;
    copy_.assign(text_);
    copied_ = true;
    text_ = copy_;
  }

  const csv_syntax* syntax_;
  std::uint64_t byte_;
  std::uint64_t line_ = 1;
  std::uint64_t cell_line_ = 1;
  csv_mark row_;
  std::size_t cells_ = 0;
  std::size_t skip_lines_ = 0;
  std::size_t bom_ = 0;
  std::string_view text_;
  std::string copy_;
  state state_ = state::row_start;
  bool quoted_ = false;
  bool copied_ = false;
  bool after_cr_ = false;
};

}  // namespace penstock::detail
