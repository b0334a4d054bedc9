/* Patch: installs the hooks in a running process (Python's stowage.profile) in which nothing was
 * preloaded.
 *
 * Every loaded library calls malloc through a slot that the loader has filled. This writes the
 * hooks into those slots. Libraries that are loaded later keep the allocator's own functions until
 * the next call; their blocks are not counted before it, and may be freed through a hook. The slots
 * are not restored afterwards: a hook that samples nothing forwards every request. */
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/profile/patch.h"

#if defined(__x86_64__)
#define IS_CALL_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_CALL_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_CALL_SLOT(type) false
#endif

typedef struct object {
  ElfW(Addr) base;
  const ElfW(Sym) * symbols;
  const char *names;
  uintptr_t relro_begin, relro_end;
  void *(*find)(const char *name);
} object;

static void write_slot(const object *o, uintptr_t at, void *hook) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = at & ~(page - 1);
  bool sealed = at >= o->relro_begin && at < o->relro_end;
  void *now;
  memcpy(&now, (void *)at, sizeof now);
  if (now == hook) return;
  if (sealed && mprotect((void *)first, page, PROT_READ | PROT_WRITE) != 0) return;
  __atomic_store_n((void **)at, hook, __ATOMIC_RELEASE); /* other threads call through it */
  if (sealed) mprotect((void *)first, page, PROT_READ);
}

static void patch_list(const object *o, const ElfW(Rela) * list, size_t bytes) {
  for (size_t i = 0; list != NULL && i < bytes / sizeof *list; i++) {
    if (!IS_CALL_SLOT(ELF64_R_TYPE(list[i].r_info))) continue;
    const ElfW(Sym) *symbol = &o->symbols[ELF64_R_SYM(list[i].r_info)];
    void *hook = o->find(o->names + symbol->st_name);
    if (hook != NULL) write_slot(o, o->base + list[i].r_offset, hook);
  }
}

static bool is_allocator(const char *path) {
  static const char *const NAMES[] = {"/libc.so",      "/libc-",     "/ld-linux",         "/ld-",
                                      "linux-vdso.so", "linux-gate", "libstowage-profile"};
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
    if (strstr(path, NAMES[i]) != NULL) return true;
  return false;
}

/* The libraries that were patched, so that a later call reads only the relocations of new ones.
 * Guarded by the interpreter's lock. */
#define PATCHED_MAX 4096
static const ElfW(Dyn) * patched[PATCHED_MAX];
static size_t patched_count;

static bool is_patched(const ElfW(Dyn) * dynamic) {
  for (size_t i = 0; i < patched_count; i++)
    if (patched[i] == dynamic) return true;
  if (patched_count < PATCHED_MAX) patched[patched_count++] = dynamic;
  return false;
}

static int patch_object(struct dl_phdr_info *info, size_t size, void *user) {
  const ElfW(Dyn) *dynamic = NULL;
  object o = {.base = info->dlpi_addr};
  uintptr_t plt = 0, rela = 0;
  size_t plt_bytes = 0, rela_bytes = 0;
  (void)size;
  memcpy(&o.find, user, sizeof o.find);
  if (is_allocator(info->dlpi_name)) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(o.base + p->p_vaddr);
    if (p->p_type == PT_GNU_RELRO) {
      o.relro_begin = o.base + p->p_vaddr;
      o.relro_end = o.relro_begin + p->p_memsz;
    }
  }
  if (dynamic != NULL && is_patched(dynamic)) return 0;
  for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
    uintptr_t value = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_JMPREL) plt = value;
    if (dynamic->d_tag == DT_PLTRELSZ) plt_bytes = value;
    if (dynamic->d_tag == DT_RELA) rela = value;
    if (dynamic->d_tag == DT_RELASZ) rela_bytes = value;
    if (dynamic->d_tag == DT_SYMTAB) o.symbols = (const ElfW(Sym) *)value;
    if (dynamic->d_tag == DT_STRTAB) o.names = (const char *)value;
  }
  /* glibc makes these absolute when it loads; a C library that does not is left alone. */
  if (o.symbols == NULL || o.names == NULL || (uintptr_t)o.names < o.base) return 0;
  patch_list(&o, (const ElfW(Rela) *)plt, plt_bytes);
  patch_list(&o, (const ElfW(Rela) *)rela, rela_bytes);
  return 0;
}

void patch_all(void *(*find)(const char *name)) {
  dl_iterate_phdr(patch_object, &find);
}
