/* Says to the linker that an assembly file keeps to the rules of branch protection: endbr64 or bti
 * at each address that is jumped to. The linker marks a library only if every object in it says so.
 */
#if defined(__x86_64__) && defined(__CET__)
.pushsection.note.gnu.property, "a", @note.p2align 3.long 4, 16,
    5 /* sizes of the name and of the property; NT_GNU_PROPERTY_TYPE_0 */
        .asciz "GNU".long 0xc0000002,
    4, __CET__ & 3,
    0 /* GNU_PROPERTY_X86_FEATURE_1_AND: IBT 1, SHSTK 2; padding */
        .popsection
#elif defined(__aarch64__) && defined(__ARM_FEATURE_BTI_DEFAULT)
.pushsection.note.gnu.property, "a", % note.p2align 3.word 4, 16, 5.asciz "GNU".word 0xc0000000, 4,
    1,
    0 /* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI */
        .popsection
#endif
