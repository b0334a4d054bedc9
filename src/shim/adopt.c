/* Adopt: installs the shim in a process that has loaded the driver but not started it: a notebook
 * that imported its framework first. Called once by the Python package, before any other call.
 *
 * In a process that loads the shim first, the shim's name is enough. Here two steps replace that.
 * First, the driver's own symbol table in memory is changed to our functions: every later lookup,
 * with an old or a new handle or through linking, gets ours. Second, loaded libraries already hold
 * addresses of the driver's functions, in their import tables and in tables they filled themselves
 * (cuBLASLt and cuSPARSELt do this when they are loaded, also for launches); these are replaced. An
 * address kept on the heap is not found.
 *
 * Guarantees: nothing is changed if the driver has started (it has returned its functions by then)
 * or if its symbol table cannot be written. Once that table is written, the other objects of the
 * process follow one by one. An object whose tables cannot be read or written is skipped and
 * logged: its calls keep going to the driver, uncounted. */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "shim/hooks.h"
#include "shim/shim.h"

#if defined(__x86_64__)
#define IS_IMPORT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_IMPORT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

/* A function of the driver, and our function of the same name. */
typedef struct twin {
  const char *name;
  void *ours, *real;
} twin;

typedef struct range {
  uintptr_t begin, end;
} range;

typedef struct adoption {
  struct link_map *shim, *driver;
  range driver_range;
  const twin *by_name, *by_real; /* sorted so */
  size_t count;
  size_t patched;
  int pipe[2];
  const char *reason; /* the reason for a failure; NULL: none so far */
} adoption;

static bool holds(range r, uintptr_t address) {
  return address >= r.begin && address < r.end;
}

/* Returns whether these bytes can be written. Asks the kernel, which returns an error instead of
 * ending the process. */
static bool is_writable(const adoption *a, void *bytes, size_t size) {
  ASSERT(size > 0 && a->pipe[0] != a->pipe[1]);
  return write(a->pipe[1], bytes, size) == (ssize_t)size &&
         read(a->pipe[0], bytes, size) == (ssize_t)size;
}

/* ---- tables of a loaded library ---- */

static int by_name(const void *a, const void *b) {
  return strcmp(((const twin *)a)->name, ((const twin *)b)->name);
}

static int by_real(const void *a, const void *b) {
  uintptr_t one = (uintptr_t)((const twin *)a)->real, other = (uintptr_t)((const twin *)b)->real;
  return one < other ? -1 : one > other;
}

static range object_range(const struct dl_phdr_info *info) {
  range all = {UINTPTR_MAX, 0};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD) continue;
    uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (begin < all.begin) all.begin = begin;
    if (begin + part->p_memsz > all.end) all.end = begin + part->p_memsz;
  }
  return all;
}

/* Returns the range that the loader made read-only after it had filled the tables, rounded as the
 * loader does. */
static range sealed_range(const struct dl_phdr_info *info) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_GNU_RELRO) continue;
    uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    return (range){begin & ~(page - 1), (begin + part->p_memsz) & ~(page - 1)};
  }
  return (range){0, 0};
}

typedef struct tables {
  const ElfW(Sym) * symbols;
  const char *names;
  const ElfW(Rela) * imports[2]; /* those of calls, and the others */
  size_t counts[2];
  const uint32_t *hash, *gnu_hash; /* the tables for symbol lookup */
} tables;

/* Returns an address from a table. The loader has turned offsets into addresses, except in a table
 * that it may not write (the kernel's own library). */
static const void *address_in(const struct dl_phdr_info *info, uintptr_t value) {
  return (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

static bool find_tables(tables *found, const struct dl_phdr_info *info) {
  const ElfW(Dyn) *entry = NULL;
  *found = (tables){0};
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
    uintptr_t value = entry->d_un.d_val;
    switch (entry->d_tag) {
    case DT_SYMTAB: found->symbols = address_in(info, value); break;
    case DT_STRTAB: found->names = address_in(info, value); break;
    case DT_HASH: found->hash = address_in(info, value); break;
    case DT_GNU_HASH: found->gnu_hash = address_in(info, value); break;
    case DT_JMPREL: found->imports[0] = address_in(info, value); break;
    case DT_PLTRELSZ: found->counts[0] = value / sizeof(ElfW(Rela)); break;
    case DT_RELA: found->imports[1] = address_in(info, value); break;
    case DT_RELASZ: found->counts[1] = value / sizeof(ElfW(Rela)); break;
    default: break;
    }
  }
  return found->symbols != NULL && found->names != NULL;
}

/* ---- the driver's table of symbols ---- */

/* Returns the number of symbols, which only the lookup tables show. */
static size_t symbol_count(const tables *t) {
  if (t->hash != NULL) return t->hash[1];
  if (t->gnu_hash == NULL) return 0;
  uint32_t buckets = t->gnu_hash[0], first = t->gnu_hash[1], words = t->gnu_hash[2], last = 0;
  const uint32_t *bucket = t->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; i++)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return 0;
  while ((chain[last - first] & 1) == 0) last++;
  return last + 1;
}

/* Returns how the loader mapped the part of a library that contains an address; 0: not mapped. */
static int protection_at(const struct dl_phdr_info *info, uintptr_t address) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && holds((range){begin, begin + part->p_memsz}, address))
      return ((part->p_flags & PF_R) != 0 ? PROT_READ : 0) |
             ((part->p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
             ((part->p_flags & PF_X) != 0 ? PROT_EXEC : 0);
  }
  return 0;
}

static const char *write_symbols(adoption *a, const struct dl_phdr_info *info) {
  tables t;
  size_t count = find_tables(&t, info) ? symbol_count(&t) : 0;
  if (count == 0) return "the driver's table of symbols is not found";
  ElfW(Sym) *symbols = (ElfW(Sym) *)(uintptr_t)t.symbols;
  uintptr_t begin = (uintptr_t)symbols & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
  size_t bytes = (uintptr_t)(symbols + count) - begin;
  int was = protection_at(info, (uintptr_t)symbols);
  if (was == 0 || mprotect((void *)begin, bytes, was | PROT_WRITE) != 0)
    return "the driver's table of symbols cannot be written here";
  for (size_t i = 1; i < count; i++) {
    twin key = {.name = t.names + symbols[i].st_name};
    if (symbols[i].st_shndx == SHN_UNDEF || key.name[0] != 'c' || key.name[1] != 'u') continue;
    const twin *found = bsearch(&key, a->by_name, a->count, sizeof key, by_name);
    if (found == NULL) continue;
    /* The loader adds the library's base address and wraps around. */
    symbols[i].st_value = (uintptr_t)found->ours - info->dlpi_addr;
    a->patched++;
  }
  mprotect((void *)begin, bytes, was);
  return NULL;
}

/* ---- tables of imports ---- */

/* Returns our function for an import that is the driver's, or is not yet resolved; NULL
 * otherwise. */
static void *ours_for(const adoption *a, const tables *t, const ElfW(Rela) * import, range own,
                      uintptr_t slot) {
  const ElfW(Sym) *symbol = &t->symbols[ELF64_R_SYM(import->r_info)];
  const char *name = t->names + symbol->st_name;
  if (symbol->st_shndx != SHN_UNDEF || name[0] != 'c' || name[1] != 'u') return NULL;
  uintptr_t now = *(const uintptr_t *)slot;
  if (!holds(a->driver_range, now) && !holds(own, now)) return NULL;
  twin key = {.name = name};
  const twin *found = bsearch(&key, a->by_name, a->count, sizeof key, by_name);
  return found == NULL ? NULL : found->ours;
}

static void patch_imports(adoption *a, const struct dl_phdr_info *info, const tables *t,
                          range sealed) {
  range own = object_range(info);
  bool open = false;
  for (int k = 0; k < 2; k++) {
    for (size_t i = 0; t->imports[k] != NULL && i < t->counts[k]; i++) {
      const ElfW(Rela) *import = &t->imports[k][i];
      uintptr_t slot = info->dlpi_addr + import->r_offset;
      if (!IS_IMPORT(ELF64_R_TYPE(import->r_info)) || !holds(own, slot)) continue;
      void *ours = ours_for(a, t, import, own, slot);
      if (ours == NULL) continue;
      if (!open && holds(sealed, slot)) {
        size_t bytes = sealed.end - sealed.begin;
        /* If this is forbidden, the object keeps calling the driver; lookups by name still get our
         * functions. */
        if (mprotect((void *)sealed.begin, bytes, PROT_READ | PROT_WRITE) != 0) return;
        open = true;
      }
      atomic_store_explicit((void *_Atomic *)slot, ours, memory_order_release);
      a->patched++;
    }
  }
  if (open) mprotect((void *)sealed.begin, sealed.end - sealed.begin, PROT_READ);
}

/* ---- tables that libraries filled themselves ---- */

/* Replaces the driver's functions in these bytes. They are read through a pipe, piece by piece: a
 * library may have made some of them unreadable; those are skipped. */
static void patch_words(adoption *a, range bytes) {
  ASSERT(bytes.begin % sizeof(uintptr_t) == 0);
  enum { PIECE = 16384 };
  static uintptr_t piece[PIECE / sizeof(uintptr_t)];
  for (uintptr_t at = bytes.begin; at < bytes.end; at += PIECE) {
    size_t size = bytes.end - at < PIECE ? bytes.end - at : PIECE;
    ssize_t wrote = write(a->pipe[1], (const void *)at, size);
    if (wrote <= 0 || read(a->pipe[0], piece, (size_t)wrote) != wrote) continue;
    for (size_t i = 0; i < (size_t)wrote / sizeof piece[0]; i++) {
      if (!holds(a->driver_range, piece[i])) continue;
      twin key = {.real = (void *)piece[i]};
      const twin *found = bsearch(&key, a->by_real, a->count, sizeof key, by_real);
      void *_Atomic *word = (void *_Atomic *)at + i;
      if (found == NULL || !is_writable(a, (void *)word, sizeof *word)) continue;
      atomic_store_explicit(word, found->ours, memory_order_release);
      a->patched++;
    }
  }
}

/* Replaces addresses in the writable data of a library, except in what the loader sealed, whose
 * addresses are imports. */
static void patch_data(adoption *a, const struct dl_phdr_info *info, range sealed) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_W) == 0) continue;
    uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    range all = {(begin + 7) & ~(uintptr_t)7, begin + part->p_memsz};
    if (sealed.end > all.begin && sealed.begin < all.end) {
      if (sealed.begin > all.begin) patch_words(a, (range){all.begin, sealed.begin});
      all.begin = sealed.end;
    }
    patch_words(a, all);
  }
}

/* ---- all of it ---- */

/* Returns whether it is the driver or one of its helpers, which must keep their addresses. */
static bool is_driver_file(const char *path) {
  static const char *const NAMES[] = {"libcuda.so", "libcudadebugger.so", "libnvidia-"};
  const char *slash = strrchr(path, '/'), *file = slash == NULL ? path : slash + 1;
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
    if (strncmp(file, NAMES[i], strlen(NAMES[i])) == 0) return true;
  return false;
}

/* A dl_iterate_phdr callback: replaces every address of the driver in this library with ours. */
static int patch(struct dl_phdr_info *info, size_t size, void *user) {
  adoption *a = user;
  tables t;
  (void)size;
  if (info->dlpi_addr == a->shim->l_addr || is_driver_file(info->dlpi_name) ||
      !find_tables(&t, info))
    return 0;
  range sealed = sealed_range(info);
  size_t before = a->patched;
  patch_imports(a, info, &t, sealed);
  patch_data(a, info, sealed);
  if (a->patched > before) shim_log("adopted: %zu of %s", a->patched - before, info->dlpi_name);
  return 0;
}

static int patch_driver(struct dl_phdr_info *info, size_t size, void *user) {
  adoption *a = user;
  (void)size;
  if (info->dlpi_addr != a->driver->l_addr) return 0;
  a->driver_range = object_range(info);
  a->reason = write_symbols(a, info);
  return 1;
}

static bool is_started(void) {
  int count;
  const cuda_driver *driver = shim_driver();
  return driver->cuDeviceGetCount == NULL ||
         driver->cuDeviceGetCount(&count) != CU_ERROR_NOT_INITIALIZED;
}

/* Done before the loader's list is locked, because looking up a name takes a lock that comes
 * first. */
static size_t list_twins(twin *twins, void *shim) {
  size_t count = 0;
  for (int i = 0; i < SYMBOL_COUNT; i++) {
    const char *name = shim_symbol_name((shim_symbol)i);
    twin t = {name, dlsym(shim, name), shim_real((shim_symbol)i)}; /* while it is the driver's */
    if (t.ours != NULL && t.real != NULL) twins[count++] = t;
  }
  return count;
}

static const char *adopt(adoption *a, void *shim) {
  static twin names[SYMBOL_COUNT], reals[SYMBOL_COUNT];
  ASSERT(shim != NULL);
  a->count = list_twins(names, shim);
  ASSERT(a->count <= SYMBOL_COUNT);
  memcpy(reals, names, sizeof reals);
  qsort(names, a->count, sizeof names[0], by_name);
  qsort(reals, a->count, sizeof reals[0], by_real);
  a->by_name = names;
  a->by_real = reals;
  a->reason = "the loader does not know the driver";
  dl_iterate_phdr(patch_driver, a);
  if (a->reason == NULL) dl_iterate_phdr(patch, a);
  return a->reason;
}

const char *stow_shim_adopt(const char *driver_path) {
  adoption a = {0};
  Dl_info self;
  void *map = NULL;
  if (dladdr1((void *)(uintptr_t)stow_shim_adopt, &self, &map, RTLD_DL_LINKMAP) == 0 || map == NULL)
    return "the shim does not find itself in this process";
  a.shim = map;
  void *shim = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  void *driver = shim_open_loaded(driver_path);
  if (shim == NULL || driver == NULL || dlinfo(driver, RTLD_DI_LINKMAP, &a.driver) != 0)
    return "the driver in this process is not the one that was named";
  if (is_started()) return "CUDA has started";
  if (pipe2(a.pipe, O_CLOEXEC) != 0) return "no pipe can be opened";
  const char *reason = adopt(&a, shim);
  close(a.pipe[0]);
  close(a.pipe[1]);
  if (reason == NULL) shim_log("adopted: %s, %zu addresses in all", driver_path, a.patched);
  return reason;
}
