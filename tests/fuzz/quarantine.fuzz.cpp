// SPDX-License-Identifier: Apache-2.0
// Most bytes: 512
// A list of samples that could not be read: what is read is written so that it is read again, and all else is an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <penstock/dataset/quarantine.hpp>

namespace {

constexpr penstock::detail::quarantine_of whose{100, 7};

bool is_same(const penstock::detail::quarantine_rows& a, const penstock::detail::quarantine_rows& b) {
  if (a.size() != b.size()) return false;
  for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j)
    if (i->first != j->first || i->second.sample != i->first || i->first >= whose.samples ||
        i->second.where.path != j->second.where.path || i->second.where.position != j->second.where.position ||
        i->second.problem != j->second.problem)
      return false;
  return true;
}

void check(std::string_view from) {
  using namespace penstock::detail;
  const std::unique_ptr<char[]> text(new char[from.size()]);
  if (!from.empty()) std::memcpy(text.get(), from.data(), from.size());
  try {
    const quarantine_rows rows = quarantine_parser({text.get(), from.size()}, "list").parse(whose);
    if (!is_same(rows, quarantine_parser(quarantine_text(rows, whose), "list").parse(whose))) std::abort();
  } catch (const penstock::error& caught) {
    if (!caught.where().position.starts_with("line ")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  check(all);
  // The rows, after a head that is good.
  std::string list = penstock::detail::quarantine_text({}, whose);
  check(list.append(all));
  return 0;
}
