// SPDX-License-Identifier: Apache-2.0
// What a context refers to: a node of a tree, counted. A node holds its parent; a parent knows of
// its children but does not hold them. Nodes that can be cancelled are made in src/context_tree,
// those with a value here.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <weft/detail/event.hpp>
#include <weft/detail/spawn.hpp>

namespace weft::detail {

class context_node {
 public:
  struct type {
    void (*destroy)(context_node*) noexcept;  // frees the node, not its parent; null: it is static
    // Whether it has this key; then *value is its value, or null if that is of another type.
    bool (*find)(const context_node*, const std::type_info& key_type, const void* key,
                 const std::type_info& value_type, const void** value) noexcept;  // null: never
  };

  constexpr explicit context_node(const type& t) noexcept : type_(&t) {}  // a static root
  context_node(const type& t, context_node* parent, context_node* canceller, int refs) noexcept
      : type_(&t), refs_(refs), parent_(parent), canceller_(canceller) {
    parent->retain();
  }
  context_node(const context_node&) = delete;
  context_node& operator=(const context_node&) = delete;

  void retain() noexcept {
    if (type_->destroy != nullptr) refs_.fetch_add(1, std::memory_order_relaxed);
  }
  // Not if it is being destroyed: then that somebody came is noted (revive).
  bool try_retain() noexcept {
    int n = refs_.load(std::memory_order_relaxed);
    while (n != missed) {
      if (refs_.compare_exchange_weak(n, n > 0 ? n + 1 : missed, std::memory_order_relaxed))
        return n > 0;
    }
    return false;
  }
  void release() noexcept {
    if (drop()) destroy(this);
  }

  context_node* parent() const noexcept { return parent_; }
  // Whose cancellation is ours: this node itself or the nearest above it; null: nobody's.
  context_node* canceller() const noexcept { return canceller_; }
  // None before the cancellation that took it has taken all it takes: so a whole tree is cancelled
  // at one moment. Nor before done is closed, here and above: one who asks in between waits, which
  // is never long.
  int error() const noexcept {
    const int e = error_.load(std::memory_order_acquire);  // with the canceller's release
    return e >= 0 ? e : error_soon();
  }

 protected:
  ~context_node() = default;
  // In destroy: lives on, with so many references. False: so it does, but a try_retain came too
  // early. Relaxed: what others shall find is written under a lock that they take after theirs.
  bool revive(int refs) noexcept {
    return refs_.exchange(refs, std::memory_order_relaxed) != missed;
  }
  void free_alone() noexcept { type_->destroy(this); }  // its parent is not its any more
  // -- of a canceller.
  std::atomic<int> error_{0};          // an errc; negative until done is closed
  std::atomic<bool> visible_{false};   // of the top of a cancellation
  const context_node* top_ = nullptr;  // where that began, here or above us; set before error_

 private:
  WEFT_API int error_soon() const noexcept;
  bool drop() noexcept {
    // With the others' release: what they did happened before the node's end.
    return type_->destroy != nullptr && refs_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  WEFT_API static void destroy(context_node* n) noexcept;  // and what only n held, upwards
  friend WEFT_API const void* find_value(const context_node*, const std::type_info&, const void*,
                                         const std::type_info&) noexcept;

  static constexpr int missed = -1;  // being destroyed, and one who wanted a reference got none
  const type* type_;
  std::atomic<int> refs_{0};
  context_node* parent_ = nullptr;
  context_node* canceller_ = nullptr;
};

WEFT_API const void* find_value(const context_node* n, const std::type_info& key_type,
                                const void* key, const std::type_info& value_type) noexcept;

// -- keys: strings of all kinds are one type and compared by their characters

template <class K>
inline constexpr bool is_string_key =
    std::is_same_v<K, std::string> || std::is_same_v<K, std::string_view> ||
    std::is_same_v<K, const char*> || std::is_same_v<K, char*>;
template <class K>
using stored_key = std::conditional_t<is_string_key<K>, std::string, K>;
template <class K>  // what `find` gets a pointer to
using looked_up_key = std::conditional_t<is_string_key<K>, std::string_view, K>;

template <class K>
bool is_nil_key(const K& k) noexcept {
  if constexpr (std::is_null_pointer_v<K>) {
    return true;
  } else if constexpr (std::is_pointer_v<K> || std::is_member_pointer_v<K>) {
    return k == nullptr;
  } else {
    return false;
  }
}

template <class K, class V>  // K is stored_key<…>
class value_node final : public context_node {
 public:
  template <class K2, class V2>
  value_node(context_node* parent, context_node* canceller, K2&& k, V2&& v)
      : value_node(std::in_place, K(std::forward<K2>(k)), V(std::forward<V2>(v)), parent,
                   canceller) {}

 private:
  // Key and value first: if they throw, the parent has not been counted yet.
  value_node(std::in_place_t, K&& k, V&& v, context_node* parent, context_node* canceller)
      : context_node(type_of_this, parent, canceller, 1),
        key_(std::move(k)),
        value_(std::move(v)) {}
  static void destroy_this(context_node* n) noexcept { delete static_cast<value_node*>(n); }
  static bool find(const context_node* n, const std::type_info& key_type, const void* key,
                   const std::type_info& value_type, const void** value) noexcept {
    const auto* self = static_cast<const value_node*>(n);
    if (key_type != typeid(K)) return false;
    if (!static_cast<bool>(self->key_ == *static_cast<const looked_up_key<K>*>(key))) return false;
    *value = !std::is_null_pointer_v<V> && value_type == typeid(V) ? std::addressof(self->value_)
                                                                   : nullptr;
    return true;
  }
  static constexpr type type_of_this{&destroy_this, &find};

  K key_;
  V value_;
};

// -- what stands in a node's list: child nodes, what is left of them, functions of after_cancel,
// waiters

struct tree_link {
  enum class kind : std::uint8_t { node, orphan, after, watch };
  constexpr explicit tree_link(kind k) noexcept : what(k) {}
  tree_link* next = nullptr;
  tree_link** back = nullptr;  // what points at us; null: in no list. Under the lock of the list
  kind what;
};

// A function of after_cancel. Held by the list it stands in, by stop_fns, and by its goroutine.
class after_entry : public tree_link {
 public:
  struct type {
    void (*call)(after_entry*);           // runs f and destroys it
    void (*drop)(after_entry*) noexcept;  // destroys f
    void (*destroy)(after_entry*) noexcept;
  };
  explicit after_entry(const type& t) noexcept : tree_link(kind::after), type_(&t) {}
  after_entry(const after_entry&) = delete;
  after_entry& operator=(const after_entry&) = delete;

  void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) type_->destroy(this);
  }
  bool claim(bool to_start) noexcept {  // of a start and a stop, one
    int is = pending;
    return state_.compare_exchange_strong(is, to_start ? started : stopped,
                                          std::memory_order_acq_rel);
  }
  bool has_started() const noexcept { return state_.load(std::memory_order_acquire) == started; }
  void call() { type_->call(this); }
  void drop() noexcept { type_->drop(this); }

  event finished;

 protected:
  ~after_entry() = default;

 private:
  static constexpr int pending = 0, started = 1, stopped = 2;
  const type* type_;
  std::atomic<int> refs_{1};
  std::atomic<int> state_{pending};
};

template <class F>
class after_call final : public after_entry {
 public:
  template <class F2>
  explicit after_call(std::in_place_t, F2&& f)
      : after_entry(type_of_this), f_(std::in_place, std::forward<F2>(f)) {}

 private:
  static void call_this(after_entry* e) {
    struct guard {
      std::optional<F>& f;
      ~guard() { f.reset(); }  // on goexit too
    } g{static_cast<after_call*>(e)->f_};
    if (is_nil(*g.f)) go_of_nil();
    std::invoke(std::move(*g.f));
  }
  static void drop_this(after_entry* e) noexcept { static_cast<after_call*>(e)->f_.reset(); }
  static void destroy_this(after_entry* e) noexcept { delete static_cast<after_call*>(e); }
  static constexpr type type_of_this{&call_this, &drop_this, &destroy_this};
  std::optional<F> f_;
};

}  // namespace weft::detail
