// SPDX-License-Identifier: Apache-2.0
// Reads the CPU limit of this process. See os/cgroup.h for the contract and the stack it runs on.
// Long because it is two versions of cgroups, each with its files, mounts and ways to be wrong.
//
// Rejected:
//   - Keeping the limit files open. Cheaper by two system calls, but a program that closes every
//     descriptor after fork, or counts them, trips over ours, and a descriptor of a removed cgroup
//     hides the removal.
//   - A buffer for a whole line of mountinfo. Two escaped paths and an overlay's list of layers
//     make lines of any length. The parsers take one byte at a time instead and keep only what
//     they need: the mount point, decoded as it comes, and how far the mount's root agrees with
//     our cgroup.
//   - Only the limit of our own cgroup. In v2 an ancestor may be tighter, and the ancestor wins.
//   - Floating point for the comparison: quota/period of two levels may differ by less than a
//     double can tell.
//
// Algorithm: /proc/self/cgroup names our cgroup, mountinfo where it can be seen; both are kept as
// one directory and a number of levels. A read opens that directory, reads its limit, steps to
// `..`, and so on up to the root of the mount, where what we can see ends.
//
// Invariants:
//   C1  levels_ != 0 means dir_, own_ and version_ come from one successful search.
//   C2  a search that could not be made (`again`) changes nothing; one that fails for good after
//       we were moved or our directory vanished forgets the old place, so that nobody else's
//       limit is applied to us.
//   C3  no function returns with a descriptor open.
//
// Past 500 lines because the parsers share their fields (lists, escapes, words), which nobody
// else wants.
#include "os/cgroup.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::rt {

// ---- system calls ----

namespace {

// Raw, so that nothing put in front of libc's wrappers comes between. The result, or minus the
// error number.
template <class... Args>
long sys(long number, Args... args) noexcept {
  const int saved = errno;
  long r;
  do {
    r = ::syscall(number, args...);
  } while (r < 0 && errno == EINTR);
  if (r < 0) r = -errno;
  errno = saved;
  return r;
}

cgroup_error error_of(long r) noexcept {
  switch (-r) {
    case ENOENT:
    case ENOTDIR:
    case ENODEV:  // a file of a cgroup that was removed while we held it open
      return cgroup_error::no_cgroup;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      return cgroup_error::again;
    case ENAMETOOLONG:
      return cgroup_error::too_long;
    default:
      return cgroup_error::unreadable;
  }
}

class descriptor {
 public:
  descriptor(int dir, const char* path, int flags) noexcept
      : r_(sys(SYS_openat, dir, path, flags | O_RDONLY | O_CLOEXEC, 0)) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    // Not repeated on EINTR: Linux has released the number by then. `sys` would, so call it bare.
    if (!ok()) return;
    const int saved = errno;
    ::syscall(SYS_close, fd());
    errno = saved;
  }
  bool ok() const noexcept { return r_ >= 0; }
  int fd() const noexcept { return static_cast<int>(r_); }
  cgroup_error error() const noexcept { return ok() ? cgroup_error::none : error_of(r_); }
  void swap(descriptor& other) noexcept {
    const long r = r_;
    r_ = other.r_;
    other.r_ = r;
  }

 private:
  long r_;
};

}  // namespace

bool byte_reader::refill() noexcept {
  if (fd_ < 0 || error_ != cgroup_error::none) return false;
  const long n = sys(SYS_read, fd_, buffer_, size_);
  if (n < 0) error_ = error_of(n);
  if (n <= 0) return false;
  next_ = buffer_;
  end_ = buffer_ + n;
  return true;
}

bool path_buffer::append(std::string_view s) noexcept {
  if (s.size() >= capacity - size_) return false;
  if (s.empty()) return true;  // its data may be null, which memcpy refuses
  std::memcpy(bytes_ + size_, s.data(), s.size());
  truncate(size_ + s.size());
  return true;
}

// ---- the limit files ----

namespace {

parsed<std::int64_t> parse_number(std::string_view digits) noexcept {
  parsed<std::int64_t> r;
  const char* const end = digits.data() + digits.size();
  const auto [stop, ec] = std::from_chars(digits.data(), end, r.value);
  if (ec != std::errc{} || stop != end) return {0, cgroup_error::malformed};
  return r;
}

// Exactly one line: a newline at the end and nowhere else (parse_number refuses one in the middle).
bool drop_newline(std::string_view& text) noexcept {
  if (text.empty() || text.back() != '\n') return false;
  text.remove_suffix(1);
  return true;
}

}  // namespace

parsed<std::int64_t> parse_v1_number(std::string_view text) noexcept {
  if (!drop_newline(text)) return {0, cgroup_error::malformed};
  return parse_number(text);
}

parsed<cpu_quota> parse_v2_limit(std::string_view text) noexcept {
  constexpr parsed<cpu_quota> malformed{{}, cgroup_error::malformed};
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos || !drop_newline(text)) return malformed;
  const std::string_view quota(text.data(), blank);
  text.remove_prefix(blank + 1);
  const parsed<std::int64_t> period = parse_number(text);
  if (!period.ok() || period.value <= 0) return malformed;
  if (quota == "max") return {};
  const parsed<std::int64_t> number = parse_number(quota);
  if (!number.ok() || number.value < 0) return malformed;
  return {{number.value, period.value}};
}

// ---- lists, escapes and fields, one byte at a time ----

namespace {

// Looks for the item `cpu` in a comma-separated list.
class cpu_item {
 public:
  void feed(char c) noexcept {
    if (c == ',') {
      seen_ = found();
      same_ = true;
      length_ = 0;
      return;
    }
    same_ = same_ && length_ < name.size() && c == name[length_];
    ++length_;
  }
  bool found() const noexcept { return seen_ || (same_ && length_ == name.size()); }

 private:
  static constexpr std::string_view name = "cpu";
  bool seen_ = false;  // in an item that has ended
  bool same_ = true;   // the current item agrees so far
  std::size_t length_ = 0;
};

// Undoes the kernel's `\ooo`. feed() says whether a decoded byte is ready in `out`.
class unescaper {
 public:
  bool feed(char c, char& out) noexcept {
    if (digits_ == 0) {
      if (c != '\\') {
        out = c;
        return true;
      }
      digits_ = 3;
      code_ = 0;
      return false;
    }
    if (c < '0' || c > '7') bad_ = true;
    code_ = code_ * 8 + (static_cast<unsigned char>(c) & 7u);
    if (--digits_ != 0) return false;
    if (code_ == 0 || code_ > 0xff) bad_ = true;  // no path holds a zero byte
    out = static_cast<char>(code_);
    return !bad_;
  }
  bool good() const noexcept { return !bad_ && digits_ == 0; }

 private:
  int digits_ = 0;  // still to come in this escape
  unsigned code_ = 0;
  bool bad_ = false;
};

// Compares the (escaped) root of a mount with our cgroup as it streams by.
class root_match {
 public:
  explicit root_match(std::string_view cgroup) noexcept : cgroup_(cgroup) {}
  void feed(char c) noexcept {
    char out;
    if (!decode_.feed(c, out)) return;
    if (length_ == 0) absolute_ = out == '/';
    same_ = same_ && length_ < cgroup_.size() && out == cgroup_[length_];
    ++length_;
  }
  cgroup_error error() const noexcept {
    if (!absolute_) return cgroup_error::malformed;
    return decode_.good() ? cgroup_error::none : cgroup_error::bad_escape;
  }
  // Whether the mount reaches our cgroup, and by which path below the mount point ("" or "/…").
  //
  // In a cgroup namespace both paths may begin with `/..`: relative to the namespace's root, which
  // need not be an ancestor of ours. As long as our path goes on downwards behind the mount's root
  // it is plain; if it goes on with another `..`, the name of the directory to step down into is
  // hidden from us.
  bool reaches(std::string_view& below) const noexcept {
    if (!same_) return false;
    below = cgroup_;
    if (length_ > 1) below.remove_prefix(length_);  // "/" is the only root that ends in a slash
    if (below == "/") below = {};
    if (!below.empty() && below[0] != '/') return false;  // /sand is no ancestor of /sandbox
    return !(below.starts_with("/..") && (below.size() == 3 || below[3] == '/'));
  }

 private:
  std::string_view cgroup_;
  unescaper decode_;
  bool absolute_ = false;
  bool same_ = true;
  std::size_t length_ = 0;  // decoded
};

// Appends the (escaped) mount point to a path.
class mount_point {
 public:
  explicit mount_point(path_buffer& out) noexcept : out_(out) {}
  void feed(char c) noexcept {
    char decoded;
    if (!decode_.feed(c, decoded)) return;
    if (length_++ == 0) absolute_ = decoded == '/';
    if (!out_.push(decoded)) fits_ = false;
  }
  cgroup_error error() const noexcept {
    if (!absolute_) return cgroup_error::malformed;
    if (!decode_.good()) return cgroup_error::bad_escape;
    return fits_ ? cgroup_error::none : cgroup_error::too_long;
  }

 private:
  path_buffer& out_;
  unescaper decode_;
  bool absolute_ = false;
  bool fits_ = true;
  std::size_t length_ = 0;
};

// A short word, to be compared; what is longer equals nothing we look for.
class word {
 public:
  void feed(char c) noexcept {
    if (length_ < sizeof text_) text_[length_] = c;
    ++length_;
  }
  bool operator==(std::string_view s) const noexcept {
    return length_ == s.size() && length_ <= sizeof text_ &&
           std::memcmp(text_, s.data(), length_) == 0;
  }
  bool empty() const noexcept { return length_ == 0; }

 private:
  char text_[8];
  std::size_t length_ = 0;
};

struct ignore {
  void feed(char) noexcept {}
};

// Hands the bytes up to `separator` to `field`; false if the line or the file ends before it.
template <class Field>
bool read_field(byte_reader& in, char separator, Field& field) noexcept {
  for (;;) {
    const int c = in.get();
    if (c == static_cast<unsigned char>(separator)) return true;
    if (c == '\n' || c == byte_reader::eof) return false;
    field.feed(static_cast<char>(c));
  }
}

// The error of a line that ended too soon: the read may be to blame rather than the text.
cgroup_error cut_short(const byte_reader& in) noexcept {
  return in.error() != cgroup_error::none ? in.error() : cgroup_error::malformed;
}

// The path that ends a line of /proc/self/cgroup. Checked in any case, stored if it is ours.
struct cgroup_path {
  path_buffer* out;
  bool absolute = false;
  std::size_t length = 0;

  void feed(char c) noexcept {
    if (length++ == 0) absolute = c == '/';
    if (out != nullptr) out->push(c);
  }
  cgroup_error error() const noexcept {
    if (!absolute) return cgroup_error::malformed;
    return length < path_buffer::capacity ? cgroup_error::none : cgroup_error::too_long;
  }
};

}  // namespace

bool contains_cpu(std::string_view list) noexcept {
  cpu_item item;
  for (const char c : list) item.feed(c);
  return item.found();
}

parsed<std::size_t> unescape_path(std::string_view in, char* out, std::size_t capacity) noexcept {
  unescaper decode;
  std::size_t n = 0;
  for (const char c : in) {
    char decoded;
    if (!decode.feed(c, decoded)) continue;
    if (n == capacity) return {0, cgroup_error::too_long};
    out[n++] = decoded;
  }
  if (!decode.good()) return {0, cgroup_error::bad_escape};
  return {n};
}

// ---- /proc/self/cgroup ----

// Each line is `hierarchy:controllers:path`; hierarchy 0 is v2 and has no list of controllers. The
// path is not escaped and may hold colons.
parsed<cgroup_version> parse_cpu_cgroup(byte_reader& in, path_buffer& out) noexcept {
  out.clear();
  parsed<cgroup_version> best{cgroup_version::unknown, cgroup_error::no_cgroup};
  while (in.peek() != byte_reader::eof) {
    word hierarchy;
    cpu_item controllers;
    if (!read_field(in, ':', hierarchy) || hierarchy.empty()) return {{}, cut_short(in)};
    if (!read_field(in, ':', controllers)) return {{}, cut_short(in)};

    const bool v2 = hierarchy == "0";
    const bool v1 = !v2 && controllers.found();
    if (v1 || v2) out.clear();
    cgroup_path path{v1 || v2 ? &out : nullptr};
    if (!read_field(in, '\n', path)) return {{}, cut_short(in)};
    if (path.error() != cgroup_error::none) return {{}, path.error()};

    if (v1) return {cgroup_version::v1};
    if (v2) best = {cgroup_version::v2};
  }
  if (in.error() != cgroup_error::none) return {{}, in.error()};
  return best;
}

// ---- /proc/self/mountinfo ----

namespace {

// One line, read to its end whatever it holds:
//
//   36 35 98:0 /root /mount/point rw,noatime shared:1 - cgroup2 source rw,options
//
// Between the mount's options and the `-` stand any number of tags. `out` starts as the prefix and
// gets the whole path; the result is no_cgroup if this is not the mount we look for. Text that
// breaks the form is refused on every line, but a root or mount point only where it is ours: those
// of a namespace file, for example, are no paths at all.
parsed<std::size_t> parse_mount_line(byte_reader& in, std::string_view cgroup,
                                     cgroup_version version, path_buffer& out) noexcept {
  constexpr parsed<std::size_t> other{0, cgroup_error::no_cgroup};
  root_match root(cgroup);
  mount_point mount(out);
  word type;
  cpu_item options;

  ignore skip;
  const bool head = read_field(in, ' ', skip) && read_field(in, ' ', skip) &&
                    read_field(in, ' ', skip) && read_field(in, ' ', root) &&
                    read_field(in, ' ', mount) && read_field(in, ' ', skip);
  if (!head) return {0, cut_short(in)};
  for (;;) {
    word tag;
    if (!read_field(in, ' ', tag)) return {0, cut_short(in)};
    if (tag == "-") break;
  }
  if (!read_field(in, ' ', type) || type.empty()) return {0, cut_short(in)};
  if (!read_field(in, ' ', skip)) return {0, cut_short(in)};  // the source, which may be empty
  if (!read_field(in, '\n', options) && in.error() != cgroup_error::none) return {0, in.error()};

  const bool ours =
      version == cgroup_version::v1 ? type == "cgroup" && options.found() : type == "cgroup2";
  if (!ours) return other;
  if (root.error() != cgroup_error::none) return {0, root.error()};
  std::string_view below;
  if (!root.reaches(below)) return other;
  if (mount.error() != cgroup_error::none) return {0, mount.error()};
  const std::size_t top = out.size();
  if (!out.append(below)) return {0, cgroup_error::too_long};
  return {top};
}

}  // namespace

parsed<std::size_t> parse_cpu_mount(byte_reader& in, std::string_view cgroup,
                                    cgroup_version version, path_buffer& out,
                                    std::string_view prefix) noexcept {
  while (in.peek() != byte_reader::eof) {
    if (!out.assign(prefix)) return {0, cgroup_error::too_long};
    const parsed<std::size_t> line = parse_mount_line(in, cgroup, version, out);
    if (line.error != cgroup_error::no_cgroup) return line;
  }
  return {0, in.error() != cgroup_error::none ? in.error() : cgroup_error::no_cgroup};
}

// ---- the limit of this process ----

namespace {

// Two numbers of 19 digits, a blank and a newline make 40 bytes.
constexpr std::size_t limit_file_max = 64;

// The whole of a small file; what fills the buffer is no limit file.
parsed<std::string_view> read_file(int dir, const char* name,
                                   char (&buffer)[limit_file_max]) noexcept {
  const descriptor file(dir, name, 0);
  if (!file.ok()) return {{}, file.error()};
  std::size_t n = 0;
  for (;;) {
    const long r = sys(SYS_read, file.fd(), buffer + n, sizeof buffer - n);
    if (r < 0) return {{}, error_of(r)};
    if (r == 0) return {std::string_view(buffer, n)};
    n += static_cast<std::size_t>(r);
    if (n == sizeof buffer) return {{}, cgroup_error::malformed};
  }
}

// The limit of one cgroup. Without a file there is none: the root has no limit, and a v2 cgroup has
// the file only where the controller is switched on.
parsed<cpu_quota> read_level_v2(int dir) noexcept {
  char buffer[limit_file_max];
  const parsed<std::string_view> max = read_file(dir, "cpu.max", buffer);
  if (max.error == cgroup_error::no_cgroup) return {};
  if (!max.ok()) return {{}, max.error};
  return parse_v2_limit(max.value);
}

parsed<cpu_quota> read_level_v1(int dir) noexcept {
  char buffer[limit_file_max];
  const parsed<std::string_view> quota_text = read_file(dir, "cpu.cfs_quota_us", buffer);
  if (quota_text.error == cgroup_error::no_cgroup) return {};
  if (!quota_text.ok()) return {{}, quota_text.error};
  const parsed<std::int64_t> quota = parse_v1_number(quota_text.value);
  if (!quota.ok()) return {{}, quota.error};
  if (quota.value < 0) return {};

  const parsed<std::string_view> period_text = read_file(dir, "cpu.cfs_period_us", buffer);
  if (!period_text.ok()) {
    const bool missing = period_text.error == cgroup_error::no_cgroup;
    return {{}, missing ? cgroup_error::unreadable : period_text.error};
  }
  const parsed<std::int64_t> period = parse_v1_number(period_text.value);
  if (!period.ok()) return {{}, period.error};
  if (period.value <= 0) return {{}, cgroup_error::malformed};
  return {{quota.value, period.value}};
}

}  // namespace

// A level that cannot be read says nothing about the others: its error is reported, the rest still
// counts. no_cgroup means that our own directory is gone.
parsed<cpu_quota> cpu_limit::read_levels() const noexcept {
  constexpr int dir_flags = O_PATH | O_DIRECTORY;
  descriptor dir(AT_FDCWD, dir_.c_str(), dir_flags);
  if (!dir.ok()) return {{}, dir.error()};
  parsed<cpu_quota> best;
  for (int left = levels_;;) {
    const parsed<cpu_quota> here =
        version_ == cgroup_version::v1 ? read_level_v1(dir.fd()) : read_level_v2(dir.fd());
    if (here.error == cgroup_error::again) return here;
    if (best.ok()) best.error = here.error;
    best.value = tighter(best.value, here.value);
    if (--left == 0) return best;

    descriptor parent(dir.fd(), "..", dir_flags);
    if (parent.error() == cgroup_error::again) return {{}, cgroup_error::again};
    if (!parent.ok()) {
      if (best.ok()) best.error = cgroup_error::unreadable;
      return best;
    }
    dir.swap(parent);
  }
}

// Not inlined: its 10 KiB of buffers belong on the stack only while it runs.
__attribute__((noinline)) cgroup_error cpu_limit::find(bool even_if_unmoved) noexcept {
  char chunk[2048];
  path_buffer own;
  parsed<cgroup_version> version;
  {
    const descriptor file(AT_FDCWD, roots_.proc_cgroup, 0);
    if (!file.ok()) return file.error();
    byte_reader in(file.fd(), chunk, sizeof chunk);
    version = parse_cpu_cgroup(in, own);
    if (!version.ok()) return version.error;
  }
  const bool unmoved = levels_ != 0 && version.value == version_ && own.view() == own_.view();
  if (unmoved && !even_if_unmoved) return cgroup_error::none;

  path_buffer dir;
  parsed<std::size_t> top;
  {
    const descriptor file(AT_FDCWD, roots_.mountinfo, 0);
    if (file.error() == cgroup_error::again) return cgroup_error::again;  // keeps C2
    if (file.ok()) {
      byte_reader in(file.fd(), chunk, sizeof chunk);
      top = parse_cpu_mount(in, own.view(), version.value, dir, roots_.mount_prefix);
      if (top.error == cgroup_error::again) return cgroup_error::again;
    } else {
      top.error = file.error();
    }
  }
  if (!top.ok()) {
    forget();  // keeps C2: the old place is not ours any more
    return top.error;
  }

  own_.assign(own.view());
  dir_.assign(dir.view());
  version_ = version.value;
  levels_ = 1;
  for (std::size_t i = top.value; i < dir.size(); ++i) levels_ += dir.view()[i] == '/';
  return cgroup_error::none;
}

parsed<cpu_quota> cpu_limit::read() noexcept {
  if (until_check_ == 0) {
    found_ = find(false);
    until_check_ = found_ == cgroup_error::again ? 1 : reads_per_check;
  }
  --until_check_;
  if (levels_ == 0) return {last_, found_};

  parsed<cpu_quota> now = read_levels();
  if (now.error == cgroup_error::no_cgroup) {
    found_ = find(true);
    now = found_ == cgroup_error::none ? read_levels() : parsed<cpu_quota>{{}, found_};
    const bool settled = now.error != cgroup_error::again;
    if (settled && (found_ != cgroup_error::none || now.error == cgroup_error::no_cgroup)) {
      forget();  // keeps C2
      found_ = now.error;
    }
  }
  if (now.error == cgroup_error::again) now.value = last_;
  last_ = now.value;
  return now;
}

// ---- the number of Ps ----

cpu_quota tighter(cpu_quota a, cpu_quota b) noexcept {
  if (!a.limited()) return b;
  if (!b.limited()) return a;
  __extension__ typedef unsigned __int128 wide;
  const wide left = static_cast<wide>(a.quota_us) * static_cast<wide>(b.period_us);
  const wide right = static_cast<wide>(b.quota_us) * static_cast<wide>(a.period_us);
  return right < left ? b : a;
}

int default_procs(int cpus, cpu_quota limit) noexcept {
  if (cpus < 1) cpus = 1;
  if (!limit.limited() || limit.period_us <= 0) return cpus;
  const std::int64_t whole = limit.quota_us / limit.period_us;
  std::int64_t procs = whole + (limit.quota_us % limit.period_us != 0 ? 1 : 0);
  if (procs < 2) procs = 2;
  return procs < cpus ? static_cast<int>(procs) : cpus;
}

}  // namespace weft::rt
