// SPDX-License-Identifier: Apache-2.0
// What check_tls.py must catch, and twins that it must let pass. Compiled by its self-test only.
#include <cerrno>

extern "C" void weft_switch();
extern void unknown();  // defined elsewhere, does not switch
extern void eat(void*);
extern int* fresh_pointer();  // opaque accessor: returns an ordinary pointer
extern thread_local int counter __attribute__((tls_model("initial-exec")));
thread_local int table[64];

// A park in the middle: the switch is two calls away from the offenders.
__attribute__((noinline)) void park() {
  weft_switch();
  unknown();
}
__attribute__((noinline)) int* address_of_table() {
  asm volatile("");
  return table;
}
__attribute__((noinline)) void bump_counter() { ++counter; }

// Hides where a pointer comes from: else the compiler may compute it anew after the call, which is
// right by luck.
__attribute__((always_inline)) inline int* keep(int* p) {
  asm("" : "+r"(p));
  return p;
}

// Keeps a value in the frame: every register that a callee saves is taken away.
#if defined(__x86_64__)
#define WEFT_SPILL() asm volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "memory")
#else
#define WEFT_SPILL()                                                                       \
  asm volatile("" ::                                                                       \
                   : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", \
                     "memory")
#endif

void offender_register() {
  int* p = keep(&table[3]);
  eat(p);
  park();
  *p = 1;
}
void offender_slot() {
  int* p = keep(&table[3]);
  eat(p);
  WEFT_SPILL();
  park();
  WEFT_SPILL();
  *p = 1;
}
void offender_errno() {
  errno = 0;
  park();
  errno = 1;  // the compiler asks for the address once: __errno_location is declared const
}
void offender_loop(int n) {
  int* p = keep(table);
  for (int i = 0; i < n; ++i) {
    p[i & 63] = i;
    park();
  }
}
void offender_returned() {
  int* p = address_of_table();
  eat(p);
  park();
  eat(p);
}
int offender_branch(int n) {
  int* p = keep(&table[5]);
  eat(p);
  if (n > 3) park();
  return *p;
}
void offender_landing_pad() {
  int* p = keep(&table[7]);
  eat(p);
  try {
    park();
  } catch (...) {
    eat(p);
  }
}
void offender_callback(void (*f)()) {
  int* p = keep(&table[9]);
  eat(p);
  f();
  eat(p);
}

void clean_reread() {
  bump_counter();
  park();
  bump_counter();
}
void clean_before() {
  int* p = keep(&table[3]);
  eat(p);
  *p = 1;
  park();
}
void clean_other_call() {
  int* p = keep(&table[3]);
  eat(p);
  unknown();
  *p = 1;
}
void clean_pointer() {
  int* p = fresh_pointer();
  eat(p);
  park();
  *p = 1;
}
void clean_either(int n) {
  int* p = keep(&table[3]);
  eat(p);
  if (n > 3) {
    park();
    return;
  }
  *p = 1;
}
int clean_value() {
  int v = counter;
  eat(&v);
  park();
  return v;
}
