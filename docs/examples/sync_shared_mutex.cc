// SPDX-License-Identifier: Apache-2.0
// An example of docs/sync.md.
#include <cassert>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <weft/weft.hpp>

class phone_book {
 public:
  std::optional<int> find(const std::string& who) const {
    std::shared_lock hold(m_);
    const auto i = numbers_.find(who);
    return i != numbers_.end() ? std::optional(i->second) : std::nullopt;
  }
  void enter(const std::string& who, int number) {
    std::lock_guard hold(m_);
    numbers_[who] = number;
  }

 private:
  mutable weft::shared_mutex m_;
  std::map<std::string, int> numbers_;
};

int main() {
  return weft::run([] {
    phone_book book;
    book.enter("Ada", 1815);
    weft::wait_group wg;
    for (int i = 0; i < 4; ++i) wg.go([&] { assert(book.find("Ada") == 1815); });
    wg.go([&] { book.enter("Grace", 1906); });
    wg.wait();
    assert(book.find("Grace") == 1906);
  });
}
