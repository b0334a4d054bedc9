/* dlopen: programs that open the driver by its path (open.c), which the shim's name does not cover. It checks the name and jumps to the loader's own dlopen instead of calling it: the loader derives the search path and the namespace from the return address, which must be the program's. */
#if defined(__x86_64__)

        .text
        .hidden shim_open_name
        .hidden shim_open_real
        .globl  dlopen
        .type   dlopen, @function
        .p2align 4
dlopen:
        .cfi_startproc
        endbr64
        pushq   %rsi
        .cfi_def_cfa_offset 16
        movq    8(%rsp), %rsi
        call    shim_open_name
        popq    %rsi
        .cfi_def_cfa_offset 8
        movq    %rax, %rdi
        movq    shim_open_real(%rip), %r11
        jmp     *%r11
        .cfi_endproc
        .size   dlopen, .-dlopen

#elif defined(__aarch64__)

        .text
        .hidden shim_open_name
        .hidden shim_open_real
        .globl  dlopen
        .type   dlopen, %function
        .p2align 4
dlopen:
        .cfi_startproc
        hint    #34 /* bti c */
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        str     x1, [sp, #16]
        mov     x1, x30
        bl      shim_open_name
        ldr     x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        adrp    x16, shim_open_real
        ldr     x16, [x16, #:lo12:shim_open_real]
        br      x16
        .cfi_endproc
        .size   dlopen, .-dlopen

#else
#error "the shim's dlopen is written for x86-64 and AArch64"
#endif

        .section .note.GNU-stack, "", %progbits
#include "shim/property.inc"
