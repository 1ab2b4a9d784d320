// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cctype>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/dataset/image.hpp>
#include <penstock/dataset/image_decode.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

struct image_files_options {
  bool recursive = false;  ///< with the folders within the folder
  image_decode_options decode{};
};

namespace detail {

inline constexpr std::string_view image_endings = ".png, .jpg, .jpeg, .tif or .tiff";

/// By its name, capitals or not. Hidden files are none: some systems put notes about an image beside it, as ._NAME.
inline bool is_image_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos || name.starts_with('.')) return false;
  std::string ending(name.substr(dot));
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".tif" || ending == ".tiff";
}

template <class Iterator>
void list_images(const std::string& folder, std::vector<std::string>& paths) {
  std::error_code problem;
  Iterator entry(folder, problem);
  for (; !problem && entry != Iterator(); entry.increment(problem)) {
    std::error_code gone;
    if (is_image_name(entry->path().filename().string()) && entry->is_regular_file(gone))
      paths.push_back(entry->path().string());
  }
  if (problem) throw_file_error(folder, "list the folder", problem.value());
}

}  // namespace detail

/// Image files, by number: a folder's, in the order of their paths' bytes, or those of a list, in its order. PNG, JPEG
/// and TIFF; an image source (see `image_source`), decoded by `decode_image`.
///
///     penstock::image_files("photos", {.decode = {.channels = 1, .longest_side = 1024}})
///
/// Of a folder those count that are regular files, or links to such, with a name ending in .png, .jpg, .jpeg, .tif or
/// .tiff, capitals or not, and not beginning with a dot. A part of them, for validation: a list made of `paths()`. The
/// constructor opens no file; readers do, each closes one before it decodes it. Throws `error` if the folder cannot be
/// listed or has no image, `std::invalid_argument` for an empty list and for options; `load` throws `error` as
/// `decode_image` does.
class image_files {
 public:
  static constexpr std::size_t dimensions = 2;

  template <std::convertible_to<std::string> Folder>
  explicit image_files(const Folder& folder, const image_files_options& options = {})
      : folder_(folder), options_(options) {
    check();
    if (options_.recursive)
      detail::list_images<std::filesystem::recursive_directory_iterator>(folder_, paths_);
    else
      detail::list_images<std::filesystem::directory_iterator>(folder_, paths_);
    if (paths_.empty())
      throw error(detail::concat("no image is in the folder, wanted files ending in ", detail::image_endings,
                                 options_.recursive ? "" : "; .recursive = true looks into folders within"),
                  detail::place_in_file(folder_));
    std::sort(paths_.begin(), paths_.end());
  }
  explicit image_files(std::vector<std::string> paths, const image_files_options& options = {})
      : paths_(std::move(paths)), options_(options) {
    check();
    if (paths_.empty()) detail::reject_option("image_files", "the list", "empty", "1 path or more");
  }

  explicit image_files(std::initializer_list<std::string> paths, const image_files_options& options = {})
      : image_files(std::vector<std::string>(paths), options) {}

  std::uint64_t size() const { return paths_.size(); }
  std::size_t channels() const { return options_.decode.channels; }
  const std::string& path(std::uint64_t index) const { return paths_[static_cast<std::size_t>(index)]; }
  const std::vector<std::string>& paths() const { return paths_; }
  const image_files_options& options() const { return options_; }
  /// The path within the folder, of a list the name, without the ending: what pairs have in common.
  std::string stem(std::uint64_t index) const {
    const std::filesystem::path whole(path(index));
    const std::filesystem::path within =
        folder_.empty() ? whole.filename() : whole.lexically_relative(std::filesystem::path(folder_));
    return (within.parent_path() / within.stem()).string();
  }
  image load(std::uint64_t index) const { return detail::decode_image_file(path(index), options_.decode); }

 private:
  void check() const { detail::check_image_options("image_files", options_.decode); }

  std::string folder_;  // empty for a list
  std::vector<std::string> paths_;
  image_files_options options_;
};

namespace detail {

struct stemmed_file {
  std::string stem, path;
};

inline std::vector<stemmed_file> by_stem(const image_files& files) {
  std::vector<stemmed_file> all;
  all.reserve(files.paths().size());
  for (std::uint64_t i = 0; i < files.size(); ++i) all.push_back({files.stem(i), files.path(i)});
  const auto stem = [](const stemmed_file& file) -> const std::string& { return file.stem; };
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return stem(a) < stem(b); });
  const auto twin =
      std::adjacent_find(all.begin(), all.end(), [&](const auto& a, const auto& b) { return stem(a) == stem(b); });
  if (twin != all.end())
    throw error(concat("two images are named alike, ", twin->path, " and ", (twin + 1)->path,
                       "; wanted one of a name for each pair"));
  return all;
}

/// "a, b, c and 5 more"; those of `all` whose stems are not among `others`.
inline std::string partnerless(const std::vector<stemmed_file>& all, const std::vector<stemmed_file>& others) {
  constexpr std::size_t shown = 5;
  std::string names;
  std::size_t count = 0;
  for (const stemmed_file& one : all) {
    if (std::binary_search(others.begin(), others.end(), one,
                           [](const auto& a, const auto& b) { return a.stem < b.stem; }))
      continue;
    if (count++ < shown) names += (names.empty() ? "" : ", ") + one.path;
  }
  return count > shown ? concat(names, " and ", count - shown, " more") : names;
}

inline image_files listed(const std::vector<stemmed_file>& files, const image_files_options& options) {
  std::vector<std::string> paths;
  paths.reserve(files.size());
  for (const stemmed_file& one : files) paths.push_back(one.path);
  return image_files(std::move(paths), options);
}

}  // namespace detail

/// Two sets of image files as pairs, such as photo and depth: number i of the first has the name of number i of the
/// second, endings and folders aside (of recursive folders the path within). In the order of the names.
///
///     auto [photos, depths] = penstock::image_pairs(penstock::image_files("left"), penstock::image_files("depth"));
///
/// Throws `error` that names images without a partner, and names that come twice. Opens no file.
inline std::pair<image_files, image_files> image_pairs(const image_files& first, const image_files& second) {
  const auto one = detail::by_stem(first), other = detail::by_stem(second);
  const std::string without = detail::partnerless(one, other), lonely = detail::partnerless(other, one);
  if (!without.empty() || !lonely.empty())
    throw error(detail::concat("images have no partner of their name: ", without,
                               without.empty() || lonely.empty() ? "" : "; ", lonely));
  return {detail::listed(one, first.options()), detail::listed(other, second.options())};
}

}  // namespace penstock
