// SPDX-License-Identifier: Apache-2.0
// weft_switch and its kin for aarch64, AAPCS64. The contract is in context.h; the layout of what is stored
// here is switch_frame there. The CFI remarks of switch_x86_64.S hold here too.
        // Onto this stack, as switch_frame; fpcr is then in x9 too: writing it is slow, and it is nearly always
        // the same.
        .macro  save_context
        sub     sp, sp, #176
        .cfi_adjust_cfa_offset 176
        stp     x19, x20, [sp, #0]
        .cfi_rel_offset x19, 0
        .cfi_rel_offset x20, 8
        stp     x21, x22, [sp, #16]
        .cfi_rel_offset x21, 16
        .cfi_rel_offset x22, 24
        stp     x23, x24, [sp, #32]
        .cfi_rel_offset x23, 32
        .cfi_rel_offset x24, 40
        stp     x25, x26, [sp, #48]
        .cfi_rel_offset x25, 48
        .cfi_rel_offset x26, 56
        stp     x27, x28, [sp, #64]
        .cfi_rel_offset x27, 64
        .cfi_rel_offset x28, 72
        stp     x29, x30, [sp, #80]
        .cfi_rel_offset x29, 80
        .cfi_rel_offset x30, 88
        stp     d8, d9, [sp, #96]
        .cfi_rel_offset d8, 96
        .cfi_rel_offset d9, 104
        stp     d10, d11, [sp, #112]
        .cfi_rel_offset d10, 112
        .cfi_rel_offset d11, 120
        stp     d12, d13, [sp, #128]
        .cfi_rel_offset d12, 128
        .cfi_rel_offset d13, 136
        stp     d14, d15, [sp, #144]
        .cfi_rel_offset d14, 144
        .cfi_rel_offset d15, 152
        mrs     x9, fpcr
        str     x9, [sp, #160]
        .endm

        .text
        .globl  weft_switch
        .hidden weft_switch
        .type   weft_switch, %function
        .p2align 4
weft_switch:                            // x0 = from, x1 = to, x2 = commit, x3 = a, x4 = b
        .cfi_startproc
        hint    #34                     // bti c
        save_context
        mov     x10, sp
        str     x10, [x0]
        mov     sp, x1                  // from here on we stand on the other stack
.Larrive:
        ldr     x10, [sp, #160]
        cmp     x10, x9
        b.eq    1f
        msr     fpcr, x10
1:      ldp     x19, x20, [sp, #0]
        ldp     x21, x22, [sp, #16]
        ldp     x23, x24, [sp, #32]
        ldp     x25, x26, [sp, #48]
        ldp     x27, x28, [sp, #64]
        ldp     x29, x30, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        .cfi_restore x19
        .cfi_restore x20
        .cfi_restore x21
        .cfi_restore x22
        .cfi_restore x23
        .cfi_restore x24
        .cfi_restore x25
        .cfi_restore x26
        .cfi_restore x27
        .cfi_restore x28
        .cfi_restore x29
        .cfi_restore x30
        .cfi_restore d8
        .cfi_restore d9
        .cfi_restore d10
        .cfi_restore d11
        .cfi_restore d12
        .cfi_restore d13
        .cfi_restore d14
        .cfi_restore d15
        add     sp, sp, #176
        .cfi_adjust_cfa_offset -176
        cbz     x2, 2f
        mov     x16, x2
        mov     x0, x3
        mov     x1, x4
        br      x16                     // commit returns for us
2:      ret
        .cfi_endproc
        .size   weft_switch, .-weft_switch

        .globl  weft_start
        .hidden weft_start
        .type   weft_start, %function
        .p2align 4
weft_start:                             // x0 = from, x1 = top, x2 = commit, x3 = a, x4 = b, x5 = fn, x6 = arg
        .cfi_startproc
        hint    #34                     // bti c
        save_context
        mov     x10, sp
        str     x10, [x0]
        mov     sp, x1                  // from here on we stand on the new stack, on which nobody returns
        .cfi_undefined x30
        mov     x19, x5
        mov     x20, x6
        mov     x21, xzr                // what the starter had in its registers is not to lie in our frames:
        mov     x22, xzr                // the leak finder would take it for something that we know
        mov     x23, xzr
        mov     x24, xzr
        mov     x25, xzr
        mov     x26, xzr
        mov     x27, xzr
        mov     x28, xzr
        mov     x29, xzr
        fmov    d8, xzr
        fmov    d9, xzr
        fmov    d10, xzr
        fmov    d11, xzr
        fmov    d12, xzr
        fmov    d13, xzr
        fmov    d14, xzr
        fmov    d15, xzr
        cbz     x9, 1f
        msr     fpcr, xzr
1:      cbz     x2, 2f
        mov     x16, x2
        mov     x0, x3
        mov     x1, x4
        blr     x16
2:      mov     x0, x20
        mov     x1, xzr
        mov     x2, xzr
        adr     x30, .Lended
        br      x19
        .cfi_endproc
        .size   weft_start, .-weft_start

        .globl  weft_leave
        .hidden weft_leave
        .type   weft_leave, %function
        .p2align 4
weft_leave:                             // x1 = to, x2 = commit, x3 = a, x4 = b; jumped to
        .cfi_startproc
        .cfi_undefined x30
        mrs     x9, fpcr
        mov     sp, x1
        b       .Larrive
        .cfi_endproc
        .size   weft_leave, .-weft_leave

        .globl  weft_call_on
        .hidden weft_call_on
        .type   weft_call_on, %function
        .p2align 4
weft_call_on:                           // x0 = top of the other stack, x1 = fn, x2 = arg
        .cfi_startproc
        hint    #34                     // bti c
        stp     x29, x30, [sp, #-16]!
        .cfi_adjust_cfa_offset 16
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        mov     x29, sp
        .cfi_def_cfa x29, 16            // so that the unwinder comes back to this stack
        and     x0, x0, #-16
        mov     sp, x0
        mov     x0, x2
        blr     x1
        mov     sp, x29
        .cfi_def_cfa sp, 16
        ldp     x29, x30, [sp], #16
        .cfi_adjust_cfa_offset -16
        .cfi_restore x29
        .cfi_restore x30
        ret
        .cfi_endproc
        .size   weft_call_on, .-weft_call_on

        .globl  weft_entry
        .hidden weft_entry
        .type   weft_entry, %function
        .p2align 4
weft_entry:                             // x19 = fn, x20 = a, x21 = b, x22 = c
        .cfi_startproc
        .cfi_undefined x30
        hint    #36                     // bti j
        mov     x29, xzr
        mov     x30, xzr
        mov     x0, x20
        mov     x1, x21
        mov     x2, x22
        blr     x19
.Lended:
        brk     #1                      // fn never returns
        .cfi_endproc
        .size   weft_entry, .-weft_entry

        .globl  weft_guarded_call
        .hidden weft_guarded_call
        .hidden weft_uncaught
        .type   weft_guarded_call, %function
        .p2align 4
weft_guarded_call:                      // x0 = fn, x1 = arg
        .cfi_startproc
        .cfi_personality 0x1b, weft_uncaught
        hint    #34                     // bti c
        stp     x29, x30, [sp, #-16]!
        .cfi_adjust_cfa_offset 16
        .cfi_rel_offset x29, 0
        .cfi_rel_offset x30, 8
        mov     x29, sp
        mov     x9, x0
        mov     x0, x1
        blr     x9
        ldp     x29, x30, [sp], #16
        .cfi_adjust_cfa_offset -16
        .cfi_restore x29
        .cfi_restore x30
        ret
        .cfi_endproc
        .size   weft_guarded_call, .-weft_guarded_call

        .section .note.GNU-stack, "", %progbits
