/* Stubs: one for each driver function that is not hooked. A stub is a tail jump through shim_slots, every register that
 * may carry an argument untouched; while its slot is empty it first asks shim_stub_resolve (real.c) for the function.
 * Programs that never call into the driver never open it. */
#if defined(__x86_64__)

        .text
        .hidden shim_slots
        .hidden shim_stub_resolve

        .type   resolve, @function
        .p2align 4
/* In: %r11d the number of the stub, all else as at the call of the driver's function. */
resolve:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq    $192, %rsp
        movq    %rdi, (%rsp)
        movq    %rsi, 8(%rsp)
        movq    %rdx, 16(%rsp)
        movq    %rcx, 24(%rsp)
        movq    %r8, 32(%rsp)
        movq    %r9, 40(%rsp)
        movq    %rax, 48(%rsp)
        movq    %r10, 56(%rsp)
        movaps  %xmm0, 64(%rsp)
        movaps  %xmm1, 80(%rsp)
        movaps  %xmm2, 96(%rsp)
        movaps  %xmm3, 112(%rsp)
        movaps  %xmm4, 128(%rsp)
        movaps  %xmm5, 144(%rsp)
        movaps  %xmm6, 160(%rsp)
        movaps  %xmm7, 176(%rsp)
        movl    %r11d, %edi
        call    shim_stub_resolve
        movq    %rax, %r11
        movq    (%rsp), %rdi
        movq    8(%rsp), %rsi
        movq    16(%rsp), %rdx
        movq    24(%rsp), %rcx
        movq    32(%rsp), %r8
        movq    40(%rsp), %r9
        movq    48(%rsp), %rax
        movq    56(%rsp), %r10
        movaps  64(%rsp), %xmm0
        movaps  80(%rsp), %xmm1
        movaps  96(%rsp), %xmm2
        movaps  112(%rsp), %xmm3
        movaps  128(%rsp), %xmm4
        movaps  144(%rsp), %xmm5
        movaps  160(%rsp), %xmm6
        movaps  176(%rsp), %xmm7
        leave
        .cfi_def_cfa %rsp, 8
        jmp     *%r11
        .cfi_endproc
        .size   resolve, .-resolve

        .macro  stub name, number
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        movq    shim_slots+8*\number(%rip), %r11
        testq   %r11, %r11
        je      1f
        jmp     *%r11
1:      movl    $\number, %r11d
        jmp     resolve
        .cfi_endproc
        .size   \name, .-\name
        .endm

#ifdef SHIM_GATE
/* In: %r11d the number of a stub whose call submits device work. While the gate is off it is a stub like any other. Otherwise it calls the function instead of jumping to it, to know when the call has ended: with the words its caller left on the stack (the
 * longest list of parameters has five there) and every register that may carry an argument. */
        .hidden shim_gate_on
        .hidden shim_gate_enter
        .hidden shim_gate_leave
        .type   gated_call, @function
        .p2align 4
gated_call:
        .cfi_startproc
        cmpl    $0, shim_gate_on(%rip)
        jne     1f
        leaq    shim_slots(%rip), %r10
        movq    (%r10,%r11,8), %r10
        testq   %r10, %r10
        je      resolve
        jmp     *%r10
1:      pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq    $192, %rsp
        movq    %rdi, (%rsp)
        movq    %rsi, 8(%rsp)
        movq    %rdx, 16(%rsp)
        movq    %rcx, 24(%rsp)
        movq    %r8, 32(%rsp)
        movq    %r9, 40(%rsp)
        movq    %rax, 48(%rsp)
        movaps  %xmm0, 64(%rsp)
        movaps  %xmm1, 80(%rsp)
        movaps  %xmm2, 96(%rsp)
        movaps  %xmm3, 112(%rsp)
        movaps  %xmm4, 128(%rsp)
        movaps  %xmm5, 144(%rsp)
        movaps  %xmm6, 160(%rsp)
        movaps  %xmm7, 176(%rsp)
        movl    %r11d, %edi
        movq    %rsp, %rsi
        leaq    16(%rbp), %rdx
        call    shim_gate_enter
        movq    %rax, %r10
        movq    (%rsp), %rdi
        movq    8(%rsp), %rsi
        movq    16(%rsp), %rdx
        movq    24(%rsp), %rcx
        movq    32(%rsp), %r8
        movq    40(%rsp), %r9
        movq    48(%rsp), %rax
        movaps  64(%rsp), %xmm0
        movaps  80(%rsp), %xmm1
        movaps  96(%rsp), %xmm2
        movaps  112(%rsp), %xmm3
        movaps  128(%rsp), %xmm4
        movaps  144(%rsp), %xmm5
        movaps  160(%rsp), %xmm6
        movaps  176(%rsp), %xmm7
        pushq   72(%rbp)
        pushq   64(%rbp)
        pushq   56(%rbp)
        pushq   48(%rbp)
        pushq   40(%rbp)
        pushq   32(%rbp)
        pushq   24(%rbp)
        pushq   16(%rbp)
        call    *%r10
        movq    %rax, (%rsp)
        call    shim_gate_leave
        movq    (%rsp), %rax
        leave
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   gated_call, .-gated_call

        .macro  gated name, number
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        movl    $\number, %r11d
        jmp     gated_call
        .cfi_endproc
        .size   \name, .-\name
        .endm
#endif

#elif defined(__aarch64__)

        .text
        .hidden shim_slots
        .hidden shim_stub_resolve

        .type   resolve, %function
        .p2align 4
/* In: w17 the number of the stub, all else as at the call of the driver's function. */
resolve:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      shim_stub_resolve
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x2, x3, [sp, #32]
        ldp     x4, x5, [sp, #48]
        ldp     x6, x7, [sp, #64]
        ldr     x8, [sp, #80]
        ldp     q0, q1, [sp, #96]
        ldp     q2, q3, [sp, #128]
        ldp     q4, q5, [sp, #160]
        ldp     q6, q7, [sp, #192]
        ldp     x29, x30, [sp], #224
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   resolve, .-resolve

        .macro  stub name, number
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
        .cfi_startproc
        hint    #34 /* bti c */
        adrp    x16, shim_slots+8*\number
        ldr     x16, [x16, #:lo12:shim_slots+8*\number]
        cbz     x16, 1f
        br      x16
1:      mov     w17, #\number
        b       resolve
        .cfi_endproc
        .size   \name, .-\name
        .endm

#ifdef SHIM_GATE
/* In: w17 the number; as on the other machine. */
        .hidden shim_gate_on
        .hidden shim_gate_enter
        .hidden shim_gate_leave
        .type   gated_call, %function
        .p2align 4
gated_call:
        .cfi_startproc
        adrp    x16, shim_gate_on
        ldr     w16, [x16, #:lo12:shim_gate_on]
        cbnz    w16, 1f
        adrp    x16, shim_slots
        add     x16, x16, #:lo12:shim_slots
        ldr     x16, [x16, w17, uxtw #3]
        cbz     x16, resolve
        br      x16
1:      stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        .cfi_def_cfa_register 29
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        add     x1, sp, #16
        add     x2, x29, #224
        bl      shim_gate_enter
        mov     x16, x0
        ldp     x0, x1, [x29, #224]
        ldp     x2, x3, [x29, #240]
        ldp     x4, x5, [x29, #256]
        ldp     x6, x7, [x29, #272]
        sub     sp, sp, #64
        stp     x0, x1, [sp]
        stp     x2, x3, [sp, #16]
        stp     x4, x5, [sp, #32]
        stp     x6, x7, [sp, #48]
        ldp     x0, x1, [x29, #16]
        ldp     x2, x3, [x29, #32]
        ldp     x4, x5, [x29, #48]
        ldp     x6, x7, [x29, #64]
        ldr     x8, [x29, #80]
        ldp     q0, q1, [x29, #96]
        ldp     q2, q3, [x29, #128]
        ldp     q4, q5, [x29, #160]
        ldp     q6, q7, [x29, #192]
        blr     x16
        str     x0, [x29, #16]
        bl      shim_gate_leave
        ldr     x0, [x29, #16]
        mov     sp, x29
        ldp     x29, x30, [sp], #224
        .cfi_def_cfa sp, 0
        ret
        .cfi_endproc
        .size   gated_call, .-gated_call

        .macro  gated name, number
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
        .cfi_startproc
        hint    #34 /* bti c */
        mov     w17, #\number
        b       gated_call
        .cfi_endproc
        .size   \name, .-\name
        .endm
#endif

#else
#error "the shim's stubs are written for x86-64 and AArch64"
#endif

#define STUB(name, number)  stub name, number
#define GATED(name, number) gated name, number
#include <shim-stubs.inc>

        .section .note.GNU-stack, "", %progbits
#include "shim/property.inc"
