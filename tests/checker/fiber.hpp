// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || defined(PENSTOCK_CHECKER_UCONTEXT)
#include <ucontext.h>
#endif

namespace penstock::checker {

/// Where a suspended thread of control goes on. All of its state but this lies on its stack above `lowest()`, so that
/// copying both away and back sets it back to this point.
#if defined(__x86_64__) && !defined(PENSTOCK_CHECKER_UCONTEXT)

struct context {
  std::byte* stack_pointer = nullptr;
  std::byte* lowest() const { return stack_pointer; }
};

// ucontext would make two system calls per switch, and there are millions of switches a second.
[[gnu::naked, gnu::noinline]] inline void switch_context(context& /*from: rdi*/, context& /*to: rsi*/) {
  asm("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
      "movq %rsp, (%rdi)\n\tmovq (%rsi), %rsp\n\t"
      "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

/// `entry` must never return. `size` is a multiple of 16, `stack` aligned so.
inline void make_context(context& made, std::byte* stack, std::size_t size, void (*entry)()) {
  auto* top = reinterpret_cast<std::uintptr_t*>(stack + size);
  *--top = 0;  // where entry would return to; keeps the alignment that a call leaves
  *--top = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  made.stack_pointer = reinterpret_cast<std::byte*>(top);
}

#else

struct context {
  ucontext_t registers{};
  std::byte* frame = nullptr;
  std::byte* lowest() const { return frame; }
};

[[gnu::noinline]] inline void switch_context(context& from, context& to) {
  // What swapcontext itself keeps on the stack lies within the margin.
  from.frame = static_cast<std::byte*>(__builtin_frame_address(0)) - 1024;
  swapcontext(&from.registers, &to.registers);
}

inline void make_context(context& made, std::byte* stack, std::size_t size, void (*entry)()) {
  getcontext(&made.registers);
  made.registers.uc_stack.ss_sp = stack;
  made.registers.uc_stack.ss_size = size;
  made.registers.uc_link = nullptr;
  makecontext(&made.registers, entry, 0);
  made.frame = stack + size - 2048;
}

#endif

}  // namespace penstock::checker
