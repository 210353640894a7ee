// SPDX-License-Identifier: Apache-2.0
// The command line of an example: `--name value` or `--name=value`. --help prints what there is and
// exits with 0; anything not understood is one line on standard error and exit status 2.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

class flags {
 public:
  flags(std::string program, std::string about)
      : program_(std::move(program)), about_(std::move(about)) {}

  flags& text(std::string name, std::string placeholder, std::string& to, std::string help) {
    return add(std::move(name), std::move(placeholder), std::move(help), [&to](std::string_view v) {
      to = v;
      return std::string();
    });
  }
  flags& number(std::string name, std::string placeholder, int low, int high, int& to,
                std::string help) {
    return add(std::move(name), std::move(placeholder), std::move(help),
               [&to, low, high](std::string_view v) {
                 int n = 0;
                 const auto [end, ec] = std::from_chars(v.data(), v.data() + v.size(), n);
                 if (ec == std::errc() && end == v.data() + v.size() && n >= low && n <= high) {
                   to = n;
                   return std::string();
                 }
                 return "not a number from " + std::to_string(low) + " to " + std::to_string(high);
               });
  }

  void parse(int argc, char** argv) const {
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "--help" || words[i] == "-h") usage();
      const std::size_t eq = words[i].find('=');
      const std::string_view name = words[i].substr(0, eq);
      const option* o = find(name);
      if (o == nullptr) fail("unknown option '" + std::string(name) + "'; --help lists them");
      if (eq == std::string_view::npos && i + 1 == words.size())
        fail(o->name + " needs a value: " + o->placeholder);
      const std::string_view value =
          eq == std::string_view::npos ? words[++i] : words[i].substr(eq + 1);
      if (const std::string bad = o->set(value); !bad.empty())
        fail(o->name + " " + std::string(value) + ": " + bad);
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    std::fprintf(stderr, "%s: %s\n", program_.c_str(), why.c_str());
    std::exit(2);
  }

 private:
  struct option {
    std::string name, placeholder, help;
    std::function<std::string(std::string_view)> set;  // what is wrong with the value, or nothing
  };

  flags& add(std::string name, std::string placeholder, std::string help,
             std::function<std::string(std::string_view)> set) {
    options_.push_back({std::move(name), std::move(placeholder), std::move(help), std::move(set)});
    return *this;
  }
  const option* find(std::string_view name) const {
    for (const option& o : options_) {
      if (o.name == name) return &o;
    }
    return nullptr;
  }
  [[noreturn]] void usage() const {
    std::printf("%s\n\nusage: %s [options]\n", about_.c_str(), program_.c_str());
    for (const option& o : options_) {
      const std::string left = o.name + " " + o.placeholder;
      std::printf("  %-20s %s\n", left.c_str(), o.help.c_str());
    }
    std::printf("  %-20s %s\n", "--help", "this text");
    std::exit(0);
  }

  std::string program_, about_;
  std::vector<option> options_;
};

}  // namespace examples
