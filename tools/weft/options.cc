// SPDX-License-Identifier: Apache-2.0
// The command line: a command, a PID where it wants one, options anywhere behind the command. An
// option that the command does not have is refused, not ignored.
#include "options.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "failure.h"

namespace weft::tool {

const std::string_view help_text = R"(weft: looks at running programs that use weft

  weft dump PID                 every goroutine: state, why it waits, stack, where it was started
  weft stats PID                figures of the scheduler; --prometheus: as Prometheus reads them
  weft trace PID [-o FILE]      records what the scheduler does, for ui.perfetto.dev
       --seconds N              for so long, at most 60; 5 without. FILE: weft-PID.trace, -: stdout
  weft top PID                  the figures, again and again; q or ^C ends it
       --interval S             seconds between two pictures, 1 without
       --once                   one picture
  weft list                     the processes that it can look at
  weft --help, --version

  --timeout S                   how long to wait for an answer, 30 without

A program can be looked at if it runs with WEFT_DEBUG=attach=1, or asks for it (debug::attach), by
its own user and by root.

Exit status: 0; 1 something else; 2 command line; 3 no such process; 4 it is not a weft program, or
attach is off; 5 not permitted; 6 it ended meanwhile; 7 no answer in time; 8 output not written.
)";

namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw failure{status::usage, text + "\nweft --help says what there is"};
}

struct known_command {
  std::string_view name;
  command what;
  bool wants_pid;
  std::initializer_list<std::string_view> options;
};

const known_command commands[] = {
    {"dump", command::dump, true, {"--timeout"}},
    {"stats", command::stats, true, {"--timeout", "--prometheus"}},
    {"trace", command::trace, true, {"--timeout", "-o", "--output", "--seconds"}},
    {"top", command::top, true, {"--timeout", "--interval", "--once"}},
    {"list", command::list, false, {"--timeout"}},
    {"help", command::help, false, {}},
    {"--help", command::help, false, {}},
    {"-h", command::help, false, {}},
    {"version", command::version, false, {}},
    {"--version", command::version, false, {}},
    {"-V", command::version, false, {}},
};

template <class T>
std::optional<T> number(std::string_view text) {
  T v{};
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (err != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

double seconds(std::string_view option, std::string_view text, double least, double most) {
  const std::optional<double> v = number<double>(text);
  if (!v || !(*v >= least && *v <= most)) {
    const auto whole = [](double d) {
      char digits[32];
      return std::string(digits, std::to_chars(digits, digits + sizeof digits, d).ptr);
    };
    refuse(std::string(option) + ' ' + std::string(text) + ": expected " + whole(least) + " to " +
           whole(most) + " seconds");
  }
  return *v;
}

// What stands behind an option: `--seconds 5`, or `--seconds=5`.
class reader {
 public:
  explicit reader(const std::vector<std::string>& words) : words_(words) {}
  bool more() const { return at_ < words_.size(); }
  std::string_view next() { return words_[at_++]; }
  std::string_view value_of(std::string_view word, std::string_view option) {
    if (word.size() > option.size()) return word.substr(option.size() + 1);
    if (!more()) refuse(std::string(option) + ": its value is missing");
    return next();
  }

 private:
  const std::vector<std::string>& words_;
  std::size_t at_ = 1;  // behind the command
};

void set(options& o, std::string_view option, std::string_view word, reader& in) {
  if (option == "--prometheus") {
    o.prometheus = true;
  } else if (option == "--once") {
    o.once = true;
  } else if (option == "-o" || option == "--output") {
    o.output = in.value_of(word, option);
    if (o.output.empty()) refuse("-o: its value is empty");
  } else if (option == "--seconds") {
    o.seconds = seconds(option, in.value_of(word, option), 0.001, 60);
  } else if (option == "--interval") {
    o.interval = seconds(option, in.value_of(word, option), 0.05, 3600);
  } else {
    o.timeout = seconds(option, in.value_of(word, option), 0.1, 3600);
  }
}

}  // namespace

options parse(const std::vector<std::string>& words) {
  if (words.empty()) refuse("no command");
  const auto* const c = std::find_if(std::begin(commands), std::end(commands),
                                     [&](const known_command& k) { return k.name == words[0]; });
  if (c == std::end(commands)) refuse("no command '" + words[0] + "'");
  options o;
  o.what = c->what;
  for (reader in(words); in.more();) {
    const std::string_view word = in.next();
    if (word == "--help" || word == "-h") return {};
    if (word.starts_with("-")) {
      const std::string_view option = word.substr(0, word.find('='));
      const bool takes_none = option == "--prometheus" || option == "--once";
      if (std::find(c->options.begin(), c->options.end(), option) == c->options.end() ||
          (takes_none && word != option))
        refuse("weft " + words[0] + ": no option '" + std::string(word) + "'");
      set(o, option, word, in);
      continue;
    }
    if (!c->wants_pid || o.pid != 0)
      refuse("weft " + words[0] + ": one word too many: '" + std::string(word) + "'");
    const std::optional<std::int32_t> pid = number<std::int32_t>(word);
    if (!pid || *pid <= 0) refuse("'" + std::string(word) + "' is not a PID");
    o.pid = *pid;
  }
  if (c->wants_pid && o.pid == 0) refuse("weft " + words[0] + ": which process? A PID is missing");
  if (o.what == command::trace && o.output.empty())
    o.output = "weft-" + std::to_string(o.pid) + ".trace";
  return o;
}

}  // namespace weft::tool
