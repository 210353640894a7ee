// SPDX-License-Identifier: Apache-2.0
// weft_switch and its kin for x86-64, System V ABI. The contract is in context.h; the layout of what is
// pushed here is switch_frame there.
//
// The CFI is true at every instruction on both stacks: they hold the same frame at the same distance from the
// CFA, so the unwinder may stop anywhere in between. weft_entry marks its return address undefined: gdb and
// the C++ unwinder end there.
        // Onto this stack, as switch_frame: 56 bytes, with the return address 64. The control words are then
        // in eax and r9d too: as a rule they are equal, and loading them is slow.
        .macro  save_context
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r13, 0
        pushq   %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r14, 0
        pushq   %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r15, 0
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        stmxcsr (%rsp)
        fnstcw  4(%rsp)
        movl    (%rsp), %eax
        movzwl  4(%rsp), %r9d
        .endm

        .text
        .globl  weft_switch
        .hidden weft_switch
        .type   weft_switch, @function
        .p2align 4
weft_switch:                            // rdi = from, rsi = to, rdx = commit, rcx = a, r8 = b
        .cfi_startproc
        endbr64
        save_context
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp              // from here on we stand on the other stack
.Larrive:
        xorl    (%rsp), %eax
        testl   $~0x3f, %eax            // the flags of what has happened belong to nobody over a call
        jne     2f
        cmpw    4(%rsp), %r9w
        jne     2f
        .cfi_remember_state
3:      addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %r15
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r15
        popq    %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r14
        popq    %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r13
        popq    %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        testq   %rdx, %rdx
        jz      1f
        movq    %rcx, %rdi
        movq    %r8, %rsi
        jmp     *%rdx                   // commit returns for us
1:      ret
        .cfi_restore_state
2:      ldmxcsr (%rsp)
        fldcw   4(%rsp)
        jmp     3b
        .cfi_endproc
        .size   weft_switch, .-weft_switch

        .globl  weft_start
        .hidden weft_start
        .type   weft_start, @function
        .p2align 4
weft_start:                             // rdi = from, rsi = top, rdx = commit, rcx = a, r8 = b, r9 = fn, (rsp + 8) = arg
        .cfi_startproc
        endbr64
        movq    8(%rsp), %r10
        movq    %r9, %r11
        save_context
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp              // from here on we stand on the new stack, on which nobody returns
        .cfi_undefined %rip
        movq    %r10, %rbx
        movq    %r11, %r12
        xorl    %r13d, %r13d            // what the starter had in its registers is not to lie in our frames:
        xorl    %r14d, %r14d            // the leak finder would take it for something that we know
        xorl    %r15d, %r15d
        xorl    $0x1f80, %eax
        testl   $~0x3f, %eax
        jne     2f
        cmpw    $0x037f, %r9w
        jne     2f
3:      xorl    %ebp, %ebp
        testq   %rdx, %rdx
        jz      1f
        movq    %rcx, %rdi
        movq    %r8, %rsi
        callq   *%rdx
1:      movq    %rbx, %rdi
        xorl    %esi, %esi
        xorl    %edx, %edx
        leaq    .Lended(%rip), %rax
        pushq   %rax
        jmp     *%r12
2:      pushq   $0x1f80
        ldmxcsr (%rsp)
        movl    $0x037f, (%rsp)
        fldcw   (%rsp)
        popq    %rax
        jmp     3b
        .cfi_endproc
        .size   weft_start, .-weft_start

        .globl  weft_leave
        .hidden weft_leave
        .type   weft_leave, @function
        .p2align 4
weft_leave:                             // rsi = to, rdx = commit, rcx = a, r8 = b; jumped to
        .cfi_startproc
        .cfi_undefined %rip
        stmxcsr -4(%rsp)
        fnstcw  -8(%rsp)
        movl    -4(%rsp), %eax
        movzwl  -8(%rsp), %r9d
        movq    %rsi, %rsp
        jmp     .Larrive
        .cfi_endproc
        .size   weft_leave, .-weft_leave

        .globl  weft_call_on
        .hidden weft_call_on
        .type   weft_call_on, @function
        .p2align 4
weft_call_on:                           // rdi = top of the other stack, rsi = fn, rdx = arg
        .cfi_startproc
        endbr64
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp      // so that the unwinder comes back to this stack
        movq    %rdi, %rsp
        andq    $-16, %rsp
        movq    %rdx, %rdi
        callq   *%rsi
        leave
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   weft_call_on, .-weft_call_on

        .globl  weft_entry
        .hidden weft_entry
        .type   weft_entry, @function
        .p2align 4
weft_entry:                             // r13 = fn, r12 = a, rbx = b, r14 = c, rsp 16-byte aligned
        .cfi_startproc
        .cfi_undefined %rip
        .cfi_undefined %rbp
        endbr64
        xorl    %ebp, %ebp
        movq    %r12, %rdi
        movq    %rbx, %rsi
        movq    %r14, %rdx
        callq   *%r13
.Lended:
        ud2                             // fn never returns
        .cfi_endproc
        .size   weft_entry, .-weft_entry

        .globl  weft_guarded_call
        .hidden weft_guarded_call
        .hidden weft_uncaught
        .type   weft_guarded_call, @function
        .p2align 4
weft_guarded_call:                      // rdi = fn, rsi = arg
        .cfi_startproc
        .cfi_personality 0x1b, weft_uncaught
        endbr64
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        movq    %rdi, %rax
        movq    %rsi, %rdi
        callq   *%rax
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   weft_guarded_call, .-weft_guarded_call

        // Entered by debug/fault.cc from a signal, in the middle of whatever the goroutine did: rsp points at its pc
        // and its rsp. The other registers that a handler may count on are as they were. rdi, rsi, rdx: arguments.
        .globl  weft_fault_landing
        .hidden weft_fault_landing
        .type   weft_fault_landing, @function
        .p2align 4
weft_fault_landing:
        .cfi_startproc
        .cfi_signal_frame
        .cfi_escape 0x0f, 0x03, 0x77, 0x08, 0x06  // the CFA is *(rsp + 8)
        .cfi_escape 0x10, 0x10, 0x02, 0x77, 0x00  // the return address is at rsp
        call    weft_fault_throw
        ud2
        .cfi_endproc
        .size   weft_fault_landing, .-weft_fault_landing

        // Where a library returns to, or an exception that it throws comes to, when the run of the goroutine that called
        // it is over (sched/preempt.cc). Nobody goes on from here. The nop: unwinders look at the byte before.
        .globl  weft_left_landing
        .hidden weft_left_landing
        .hidden weft_left
        .hidden weft_left_unwind
        .type   weft_left_landing, @function
        .p2align 4
        .cfi_startproc
        .cfi_personality 0x1b, weft_left_unwind
        .cfi_undefined %rip
        nop
weft_left_landing:
        andq    $-16, %rsp
        xorl    %ebp, %ebp
        call    weft_left
        ud2
        .cfi_endproc
        .size   weft_left_landing, .-weft_left_landing

        .section .note.GNU-stack, "", @progbits
