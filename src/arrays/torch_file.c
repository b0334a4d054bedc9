/* PyTorch files: a zip with data.pkl, which names the tensors, and one stored member for the bytes
 * of each storage.
 *
 *   archive/data.pkl    pickle of {"w": _rebuild_tensor_v2(storage, offset, shape, stride, …), …}
 *   archive/data/0      the bytes of storage "0"
 *
 * PyTorch before 1.6, and later on request, wrote five pickles and the storages one after the
 * other:
 *
 *   magic number | 1001 | {"little_endian": True, …} | the same pickle as above | ["0", …] |
 *   for each key of that list: u64 number of values, the values
 *
 * The pickle is interpreted by the small machine below. It knows a dict, a list, a tuple, numbers,
 * strings, and the few names in `names`; every other name and opcode is refused with its offset.
 * Nothing is imported or called. Memory is bounded by the caller. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arrays/tensors.h"
#include "base/checked.h"
#include "base/list.h"
#include "files/source_view.h"
#include "files/zip.h"

#define PICKLE_MAX (UINT64_C(256) << 20)

typedef enum tag {
  TAG_NONE,
  TAG_MARK,
  TAG_INT,    /* i */
  TAG_STRING, /* i: offset in `strings` */
  TAG_GLOBAL, /* i: which of `names` */
  TAG_TUPLE,  /* i: which container */
  TAG_DICT,
  TAG_LIST,
  TAG_STORAGE, /* i: which storage */
  TAG_TENSOR,  /* i: which tensor */
  TAG_OTHER    /* a value that no tensor needs: a float, a bool, … */
} tag;

typedef struct value {
  tag tag;
  int64_t i;
} value;

typedef struct container {
  value *items; /* for a dict: key, value, key, value … */
  size_t count, capacity;
} container;

typedef struct storage {
  tensor_type type;
  size_t key; /* offset in `strings` */
  uint64_t count;
  bool placed;            /* the next two are known */
  uint64_t offset, bytes; /* where its values are in the file */
} storage;

typedef struct torch_tensor {
  size_t storage;
  uint64_t offset, shape[TENSOR_DIMS_MAX], stride[TENSOR_DIMS_MAX];
  uint32_t dims;
  bool strided;       /* its values do not follow one another */
  const char *lazily; /* what torch does to the stored values when it reads them; NULL: nothing */
  tensor_type type;
} torch_tensor;

typedef struct machine {
  const source *from;
  const uint8_t *at, *start, *end;
  value *stack, *memo;
  size_t stack_count, stack_capacity, memo_count, memo_capacity;
  container *containers;
  size_t container_count, container_capacity;
  storage *storages;
  size_t storage_count, storage_capacity;
  torch_tensor *made;
  size_t made_count, made_capacity;
  buffer strings;
  uint64_t used_bytes, max_bytes;
  bool data; /* a tensor, or a list of tensors, is accepted too */
} machine;

typedef enum name_kind {
  NAME_ORDERED_DICT,
  NAME_REBUILD,      /* storage, offset, shape, stride, … */
  NAME_REBUILD_TYPE, /* the same with a dtype as argument 6 */
  NAME_PARAMETER,    /* tensor, … */
  NAME_STORAGE,
  NAME_UNTYPED,
  NAME_DTYPE
} name_kind;

static const struct {
  const char *name;
  name_kind kind;
  tensor_type type;
} names[] = {
    {"collections OrderedDict", NAME_ORDERED_DICT, TENSOR_NONE},
    {"torch._utils _rebuild_tensor", NAME_REBUILD, TENSOR_NONE}, /* before PyTorch 0.4 */
    {"torch._utils _rebuild_tensor_v2", NAME_REBUILD, TENSOR_NONE},
    {"torch._utils _rebuild_tensor_v3", NAME_REBUILD_TYPE, TENSOR_NONE},
    {"torch._utils _rebuild_parameter", NAME_PARAMETER, TENSOR_NONE},
    {"torch.storage UntypedStorage", NAME_UNTYPED, TENSOR_U8},
    {"torch FloatStorage", NAME_STORAGE, TENSOR_F32},
    {"torch DoubleStorage", NAME_STORAGE, TENSOR_F64},
    {"torch HalfStorage", NAME_STORAGE, TENSOR_F16},
    {"torch BFloat16Storage", NAME_STORAGE, TENSOR_BF16},
    {"torch LongStorage", NAME_STORAGE, TENSOR_I64},
    {"torch IntStorage", NAME_STORAGE, TENSOR_I32},
    {"torch ShortStorage", NAME_STORAGE, TENSOR_I16},
    {"torch CharStorage", NAME_STORAGE, TENSOR_I8},
    {"torch ByteStorage", NAME_STORAGE, TENSOR_U8},
    {"torch BoolStorage", NAME_STORAGE, TENSOR_BOOL},
    {"torch float8_e4m3fn", NAME_DTYPE, TENSOR_F8_E4M3},
    {"torch float8_e5m2", NAME_DTYPE, TENSOR_F8_E5M2},
    {"torch float8_e8m0fnu", NAME_DTYPE, TENSOR_F8_E8M0},
    {"torch float8_e4m3fnuz", NAME_DTYPE, TENSOR_F8_E4M3FNUZ},
    {"torch float8_e5m2fnuz", NAME_DTYPE, TENSOR_F8_E5M2FNUZ},
    {"torch uint16", NAME_DTYPE, TENSOR_U16},
    {"torch uint32", NAME_DTYPE, TENSOR_U32},
    {"torch uint64", NAME_DTYPE, TENSOR_U64},
};

static stow_status refuse(const machine *m, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: at byte %zu of its pickle: %s", m->from->name,
                   (size_t)(m->at - m->start), why);
}

static stow_status charge(machine *m, uint64_t bytes) {
  m->used_bytes += bytes;
  if (m->used_bytes <= m->max_bytes) return STOW_OK;
  return stow_fail(STOW_ERR_BUDGET,
                   "%s: its pickle needs more than %" PRIu64 " KiB of memory; raise --memory",
                   m->from->name, m->max_bytes >> 10);
}

/* ---- the stack ---- */

static stow_status push(machine *m, tag t, int64_t i) {
  STOW_TRY(charge(m, m->stack_count == m->stack_capacity ? sizeof(value) * (m->stack_capacity + 64)
                                                         : 0));
  STOW_TRY(LIST_ROOM(m->stack, m->stack_count, m->stack_capacity, 64, "pickle values"));
  m->stack[m->stack_count++] = (value){t, i};
  return STOW_OK;
}

static stow_status pop(machine *m, value *v) {
  if (m->stack_count == 0 || m->stack[m->stack_count - 1].tag == TAG_MARK)
    return refuse(m, "a value is missing");
  *v = m->stack[--m->stack_count];
  return STOW_OK;
}

/* Returns the place behind the topmost mark. */
static stow_status find_mark(const machine *m, size_t *first) {
  for (size_t i = m->stack_count; i-- > 0;)
    if (m->stack[i].tag == TAG_MARK) return *first = i + 1, STOW_OK;
  return refuse(m, "a mark is missing");
}

static stow_status remember(machine *m, size_t place) {
  if (m->stack_count == 0) return refuse(m, "a value is missing");
  if (place > (size_t)(m->end - m->start)) return refuse(m, "a memo number past the file's size");
  while (m->memo_count <= place) {
    STOW_TRY(
        charge(m, m->memo_count == m->memo_capacity ? sizeof(value) * (m->memo_capacity + 64) : 0));
    STOW_TRY(LIST_ROOM(m->memo, m->memo_count, m->memo_capacity, 64, "pickle values"));
    m->memo[m->memo_count++] = (value){TAG_MARK, 0};
  }
  m->memo[place] = m->stack[m->stack_count - 1];
  return STOW_OK;
}

static stow_status recall(machine *m, size_t place) {
  if (place >= m->memo_count || m->memo[place].tag == TAG_MARK)
    return refuse(m, "a memo number that was not set");
  return push(m, m->memo[place].tag, m->memo[place].i);
}

/* ---- containers ---- */

static stow_status new_container(machine *m, tag t) {
  STOW_TRY(charge(m, 2 * sizeof(container)));
  STOW_TRY(LIST_ROOM(m->containers, m->container_count, m->container_capacity, 64, "containers"));
  m->containers[m->container_count++] = (container){0};
  return push(m, t, (int64_t)m->container_count - 1);
}

static stow_status add_items(machine *m, value to, const value *items, size_t count) {
  container *c = &m->containers[to.i];
  STOW_TRY(charge(m, 2 * count * sizeof *items));
  for (size_t i = 0; i < count; i++) {
    STOW_TRY(LIST_ROOM(c->items, c->count, c->capacity, 4, "pickle values"));
    c->items[c->count++] = items[i];
  }
  return STOW_OK;
}

/* Takes the values behind the mark (or the last `fixed` of them) into a new tuple. */
static stow_status make_tuple(machine *m, size_t fixed, bool marked) {
  size_t first = 0;
  if (marked) {
    STOW_TRY(find_mark(m, &first));
  } else {
    if (m->stack_count < fixed) return refuse(m, "a value is missing");
    first = m->stack_count - fixed;
    for (size_t i = first; i < m->stack_count; i++)
      if (m->stack[i].tag == TAG_MARK) return refuse(m, "a value is missing");
  }
  size_t count = m->stack_count - first;
  STOW_TRY(new_container(m, TAG_TUPLE));
  value made = m->stack[m->stack_count - 1];
  STOW_TRY(add_items(m, made, m->stack + first, count));
  m->stack_count = first - (marked ? 1 : 0);
  return push(m, made.tag, made.i);
}

/* Adds what is behind the mark (or the last `fixed` values) to the dict or list below. */
static stow_status extend(machine *m, tag wanted, size_t fixed, bool marked) {
  size_t first = 0;
  if (marked)
    STOW_TRY(find_mark(m, &first));
  else if (m->stack_count < fixed + 1)
    return refuse(m, "a value is missing");
  else
    first = m->stack_count - fixed;
  size_t below = first - (marked ? 1 : 0);
  if (below == 0 || m->stack[below - 1].tag != wanted)
    return refuse(m, "items for something that is no dict or list");
  size_t count = m->stack_count - first;
  if (wanted == TAG_DICT && count % 2 != 0) return refuse(m, "a key without a value");
  STOW_TRY(add_items(m, m->stack[below - 1], m->stack + first, count));
  m->stack_count = below;
  return STOW_OK;
}

/* ---- names, storages and tensors ---- */

/* Returns whether it is the name of a type of torch that is not among `names`: "quint8", "int4". */
static bool is_type_name(const char *name, size_t length) {
  static const char *const kinds[] = {"float", "bfloat", "int", "uint", "qint", "quint", "bits"};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    size_t kind = strlen(kinds[i]);
    if (length > kind && memcmp(name, kinds[i], kind) == 0 && name[kind] >= '0' &&
        name[kind] <= '9')
      return true;
  }
  return false;
}

static stow_status push_name(machine *m, const char *module, size_t module_length, const char *name,
                             size_t length) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strlen(names[i].name) == module_length + 1 + length &&
        memcmp(names[i].name, module, module_length) == 0 && names[i].name[module_length] == ' ' &&
        memcmp(names[i].name + module_length + 1, name, length) == 0)
      return push(m, TAG_GLOBAL, (int64_t)i);
  bool torch = module_length == 5 && memcmp(module, "torch", 5) == 0;
  int shown = (int)(length < 80 ? length : 80);
  if (torch && length > 7 && strncasecmp(name, "complex", 7) == 0)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: has complex tensors (%.*s), which are not read; save "
                     "torch.view_as_real(x) instead",
                     m->from->name, shown, name);
  if (torch && is_type_name(name, length))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: has tensors of type torch.%.*s, which are not read; convert them to "
                     "another type and save again",
                     m->from->name, shown, name);
  return stow_fail(
      STOW_ERR_UNSUPPORTED,
      "%s: at byte %zu of its pickle: %.*s.%.*s is not one of the names that a dict of "
      "tensors needs; it could run code, and is refused. Save model.state_dict() with "
      "safetensors",
      m->from->name, (size_t)(m->at - m->start), (int)(module_length < 80 ? module_length : 80),
      module, (int)(length < 80 ? length : 80), name);
}

static const container *tuple_of(const machine *m, value v) {
  return v.tag == TAG_TUPLE || v.tag == TAG_LIST ? &m->containers[v.i] : NULL;
}

/* Reads ("storage", torch.FloatStorage, "0", "cpu", 12). */
static stow_status push_storage(machine *m) {
  value id = {0};
  STOW_TRY(pop(m, &id));
  const container *c = tuple_of(m, id);
  if (c == NULL || c->count < 5 || c->items[0].tag != TAG_STRING || c->items[1].tag != TAG_GLOBAL ||
      c->items[2].tag != TAG_STRING || c->items[4].tag != TAG_INT || c->items[4].i < 0 ||
      (names[c->items[1].i].kind != NAME_STORAGE && names[c->items[1].i].kind != NAME_UNTYPED))
    return refuse(m, "a storage that is not one of torch.save");
  if (c->count > 5 && c->items[5].tag != TAG_OTHER)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: a storage that is part of another; load it with torch.load and save it "
                     "again",
                     m->from->name);
  STOW_TRY(charge(m, 2 * sizeof(storage)));
  STOW_TRY(LIST_ROOM(m->storages, m->storage_count, m->storage_capacity, 64, "storages"));
  m->storages[m->storage_count++] = (storage){.type = names[c->items[1].i].type,
                                              .key = (size_t)c->items[2].i,
                                              .count = (uint64_t)c->items[4].i};
  return push(m, TAG_STORAGE, (int64_t)m->storage_count - 1);
}

static stow_status take_shape(const machine *m, const container *shape, const container *stride,
                              torch_tensor *to) {
  uint64_t step = 1;
  bool empty = false;
  if (shape == NULL || stride == NULL || shape->count != stride->count ||
      shape->count > TENSOR_DIMS_MAX)
    return refuse(m, "a tensor without a shape");
  to->dims = (uint32_t)shape->count;
  for (size_t i = 0; i < shape->count; i++) {
    if (shape->items[i].tag != TAG_INT || stride->items[i].tag != TAG_INT ||
        shape->items[i].i < 0 || stride->items[i].i < 0)
      return refuse(m, "a tensor without a shape");
    to->shape[i] = (uint64_t)shape->items[i].i;
    to->stride[i] = (uint64_t)stride->items[i].i;
    empty = empty || to->shape[i] == 0;
  }
  for (size_t i = shape->count; i-- > 0 && !empty;) {
    to->strided = to->strided || (to->shape[i] != 1 && to->stride[i] != step);
    if (!checked_mul(&step, step, to->shape[i])) return refuse(m, "a tensor past 64 bits");
  }
  return STOW_OK;
}

/* Returns what the metadata of a tensor, {"neg": True, "conj": True}, says about its values: torch
 * negates and conjugates only when it reads them. */
static const char *lazily(const machine *m, value metadata) {
  const container *c = metadata.tag == TAG_DICT ? &m->containers[metadata.i] : NULL;
  for (size_t i = 0; c != NULL && i + 1 < c->count; i += 2) {
    const char *key = c->items[i].tag == TAG_STRING ? m->strings.data + c->items[i].i : "";
    if (c->items[i + 1].tag != TAG_OTHER || c->items[i + 1].i == 0) continue; /* False */
    if (strcmp(key, "neg") == 0) return "negation";
    if (strcmp(key, "conj") == 0) return "conjugation";
  }
  return NULL;
}

static stow_status push_tensor(machine *m, const container *arguments, bool typed) {
  torch_tensor made = {0};
  if (arguments->count < (typed ? 7u : 4u) || arguments->items[0].tag != TAG_STORAGE ||
      arguments->items[1].tag != TAG_INT || arguments->items[1].i < 0)
    return refuse(m, "a tensor that is not one of torch.save");
  made.storage = (size_t)arguments->items[0].i;
  made.offset = (uint64_t)arguments->items[1].i;
  made.type = m->storages[made.storage].type;
  if (typed) {
    value type = arguments->items[6];
    if (type.tag != TAG_GLOBAL || names[type.i].kind != NAME_DTYPE)
      return refuse(m, "a tensor of an unknown type");
    made.type = names[type.i].type;
  }
  if (arguments->count > (typed ? 7u : 6u))
    made.lazily = lazily(m, arguments->items[typed ? 7 : 6]);
  STOW_TRY(
      take_shape(m, tuple_of(m, arguments->items[2]), tuple_of(m, arguments->items[3]), &made));
  STOW_TRY(charge(m, 2 * sizeof made));
  STOW_TRY(LIST_ROOM(m->made, m->made_count, m->made_capacity, 64, "tensors"));
  m->made[m->made_count++] = made;
  return push(m, TAG_TENSOR, (int64_t)m->made_count - 1);
}

static stow_status reduce(machine *m) {
  value arguments = {0}, function = {0};
  STOW_TRY(pop(m, &arguments));
  STOW_TRY(pop(m, &function));
  if (function.tag != TAG_GLOBAL || arguments.tag != TAG_TUPLE)
    return refuse(m, "a call of something that is no known name");
  const container *c = &m->containers[arguments.i];
  switch (names[function.i].kind) {
  case NAME_ORDERED_DICT:
    if (c->count > 0) return refuse(m, "an OrderedDict with its items as an argument");
    return new_container(m, TAG_DICT);
  case NAME_REBUILD: return push_tensor(m, c, false);
  case NAME_REBUILD_TYPE: return push_tensor(m, c, true);
  case NAME_PARAMETER:
    if (c->count == 0 || c->items[0].tag != TAG_TENSOR)
      return refuse(m, "a parameter without data");
    return push(m, TAG_TENSOR, c->items[0].i);
  default: return refuse(m, "a call of something that cannot be called");
  }
}

/* ---- opcodes ---- */

static stow_status check_left(const machine *m, uint64_t count) {
  return count <= (uint64_t)(m->end - m->at) ? STOW_OK : refuse(m, "the pickle ends in an opcode");
}

static stow_status take_number(machine *m, size_t bytes, uint64_t *number) {
  STOW_TRY(check_left(m, bytes));
  *number = 0;
  for (size_t i = 0; i < bytes; i++) *number |= (uint64_t)m->at[i] << (8 * i);
  m->at += bytes;
  return STOW_OK;
}

static stow_status push_string(machine *m, size_t length_bytes) {
  uint64_t length = 0;
  STOW_TRY(take_number(m, length_bytes, &length));
  STOW_TRY(check_left(m, length));
  if (memchr(m->at, '\0', (size_t)length) != NULL) return refuse(m, "a string with a NUL in it");
  STOW_TRY(charge(m, 2 * length + 2));
  size_t place = m->strings.length;
  STOW_TRY(buffer_append(&m->strings, m->at, (size_t)length));
  STOW_TRY(buffer_char(&m->strings, '\0'));
  m->at += length;
  return push(m, TAG_STRING, (int64_t)place);
}

static stow_status push_long(machine *m, size_t length_bytes) {
  uint64_t length = 0, number = 0;
  STOW_TRY(take_number(m, length_bytes, &length));
  if (length > 8) { /* the state of a random generator: no tensor needs it */
    STOW_TRY(check_left(m, length));
    m->at += length;
    return push(m, TAG_OTHER, 0);
  }
  STOW_TRY(take_number(m, (size_t)length, &number));
  if (length > 0 && length < 8 && (number >> (8 * length - 1)) != 0)
    number |= UINT64_MAX << (8 * length);
  return push(m, TAG_INT, (int64_t)number);
}

/* Protocols 0 and 1 write integers and bools as text: "I12\n", "I01\n" (True), "L12L\n". */
static stow_status push_text_number(machine *m, uint8_t op) {
  const uint8_t *start = m->at, *end = memchr(start, '\n', (size_t)(m->end - start));
  if (end == NULL) return refuse(m, "a number that does not end");
  size_t length = (size_t)(end - start);
  m->at = end + 1;
  if (op == 'I' && length == 2 && start[0] == '0') return push(m, TAG_OTHER, start[1] == '1');
  if (op == 'L' && length > 0 && start[length - 1] == 'L') length--;
  int64_t number = 0;
  size_t i = length > 0 && start[0] == '-' ? 1 : 0;
  if (i == length) return refuse(m, "a number without digits");
  for (bool minus = i > 0; i < length; i++) {
    if (start[i] < '0' || start[i] > '9') return refuse(m, "a number with other letters");
    int64_t digit = minus ? '0' - start[i] : start[i] - '0';
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, digit, &number))
      return push(m, TAG_OTHER, 0);
  }
  return push(m, TAG_INT, number);
}

/* "cmodule\nname\n" */
static stow_status push_global(machine *m) {
  const uint8_t *module = m->at, *first = memchr(module, '\n', (size_t)(m->end - module));
  const uint8_t *second =
      first != NULL ? memchr(first + 1, '\n', (size_t)(m->end - first - 1)) : NULL;
  if (second == NULL) return refuse(m, "a name that does not end");
  m->at = second + 1;
  return push_name(m, (const char *)module, (size_t)(first - module), (const char *)first + 1,
                   (size_t)(second - first - 1));
}

static stow_status push_stack_global(machine *m) {
  value name = {0}, module = {0};
  STOW_TRY(pop(m, &name));
  STOW_TRY(pop(m, &module));
  if (name.tag != TAG_STRING || module.tag != TAG_STRING)
    return refuse(m, "a name that is no text");
  const char *a = m->strings.data + module.i, *b = m->strings.data + name.i;
  return push_name(m, a, strlen(a), b, strlen(b));
}

/* Sets attributes of the object below, such as _metadata of a state dict. They are dropped. */
static stow_status build(machine *m) {
  value state = {0};
  STOW_TRY(pop(m, &state));
  if (m->stack_count == 0 || m->stack[m->stack_count - 1].tag == TAG_MARK)
    return refuse(m, "a value is missing");
  return STOW_OK;
}

static stow_status execute(machine *m, uint8_t op) {
  uint64_t n = 0;
  switch (op) {
  case 0x80: return take_number(m, 1, &n); /* PROTO */
  case 0x95: return take_number(m, 8, &n); /* FRAME */
  case '}': return new_container(m, TAG_DICT);
  case ']': return new_container(m, TAG_LIST);
  case ')': return new_container(m, TAG_TUPLE);
  case '(': return push(m, TAG_MARK, 0);
  case 't': return make_tuple(m, 0, true);
  case 0x85: return make_tuple(m, 1, false);
  case 0x86: return make_tuple(m, 2, false);
  case 0x87: return make_tuple(m, 3, false);
  case 'u': return extend(m, TAG_DICT, 0, true);
  case 's': return extend(m, TAG_DICT, 2, false);
  case 'e': return extend(m, TAG_LIST, 0, true);
  case 'a': return extend(m, TAG_LIST, 1, false);
  case 'X': return push_string(m, 4);
  case 0x8c: return push_string(m, 1);
  case 'K': STOW_TRY(take_number(m, 1, &n)); return push(m, TAG_INT, (int64_t)n);
  case 'M': STOW_TRY(take_number(m, 2, &n)); return push(m, TAG_INT, (int64_t)n);
  case 'J': STOW_TRY(take_number(m, 4, &n)); return push(m, TAG_INT, (int32_t)(uint32_t)n);
  case 0x8a: return push_long(m, 1);
  case 0x8b: return push_long(m, 4);
  case 'I':
  case 'L': return push_text_number(m, op);
  case 'G': STOW_TRY(take_number(m, 8, &n)); return push(m, TAG_OTHER, 0);
  case 'N':
  case 0x89: return push(m, TAG_OTHER, 0);
  case 0x88: return push(m, TAG_OTHER, 1); /* True */
  case 'q': STOW_TRY(take_number(m, 1, &n)); return remember(m, (size_t)n);
  case 'r': STOW_TRY(take_number(m, 4, &n)); return remember(m, (size_t)n);
  case 0x94: return remember(m, m->memo_count);
  case 'h': STOW_TRY(take_number(m, 1, &n)); return recall(m, (size_t)n);
  case 'j': STOW_TRY(take_number(m, 4, &n)); return recall(m, (size_t)n);
  case 'c': return push_global(m);
  case 0x93: return push_stack_global(m);
  case 'Q': return push_storage(m);
  case 'R': return reduce(m);
  case 'b': return build(m);
  default:
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: at byte %zu of its pickle: opcode 0x%02x, which a dict of tensors does "
                     "not need, is refused. Save model.state_dict() with safetensors",
                     m->from->name, (size_t)(m->at - m->start), op);
  }
}

/* Runs one pickle from m->at on; the machine is then ready for the next one. */
static stow_status run(machine *m, value *result) {
  m->stack_count = m->memo_count = 0;
  while (m->at < m->end) {
    uint8_t op = *m->at++;
    if (op == '.') return pop(m, result);
    STOW_TRY(execute(m, op));
  }
  return refuse(m, "no end");
}

/* ---- the archive ---- */

typedef struct members {
  zip archive;
  const zip_entry *pickle;
  size_t prefix; /* length of "archive/" */
} members;

static stow_status find_pickle(members *a) {
  for (size_t i = 0; i < a->archive.count; i++) {
    const char *name = a->archive.entries[i].name;
    size_t length = strlen(name);
    if (length < 9 || strcmp(name + length - 9, "/data.pkl") != 0) continue;
    if (strchr(name, '/') != name + length - 9) continue;
    a->pickle = &a->archive.entries[i];
    a->prefix = length - 8;
    return STOW_OK;
  }
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: a zip without data.pkl: not a file of torch.save (an .npz needs that "
                   "ending; TorchScript is not read)",
                   a->archive.from->name);
}

/* A program that compressed the zip again: tensors are read from their place in the file. */
static stow_status refuse_compressed(const char *file, const char *name) {
  return stow_fail(
      STOW_ERR_UNSUPPORTED,
      "%s: its member %.200s is compressed, which torch.save does not do; unzip it and "
      "zip it again with zip -0, or save it again",
      file, name);
}

/* Finds the members with the bytes of the storages. */
static stow_status place_members(const members *a, machine *m) {
  for (size_t i = 0; i < m->storage_count; i++) {
    storage *s = &m->storages[i];
    char name[ZIP_NAME_MAX * 2];
    snprintf(name, sizeof name, "%.*sdata/%.500s", (int)a->prefix, a->pickle->name,
             m->strings.data + s->key);
    const zip_entry *found = zip_find(&a->archive, name);
    if (found == NULL)
      return stow_fail(STOW_ERR_FORMAT, "%s: no member %.200s", m->from->name, name);
    if (found->method != ZIP_STORED) return refuse_compressed(m->from->name, name);
    s->placed = true;
    s->offset = found->offset;
    s->bytes = found->bytes;
  }
  return STOW_OK;
}

/* Checks the byte order. PyTorch before 2.1 writes no byteorder member; then the machine was
 * little-endian. */
static stow_status check_order(const members *a, source *from) {
  char name[ZIP_NAME_MAX + 16], order[8] = {0};
  snprintf(name, sizeof name, "%.*sbyteorder", (int)a->prefix, a->pickle->name);
  const zip_entry *entry = zip_find(&a->archive, name);
  if (entry == NULL) return STOW_OK;
  if (entry->method != ZIP_STORED) return refuse_compressed(from->name, name);
  if (entry->bytes == 6) {
    STOW_TRY(source_read(from, entry->offset, order, 6));
    if (strcmp(order, "little") == 0) return STOW_OK;
  }
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: saved on a big-endian machine; save it again on a "
                   "little-endian one",
                   from->name);
}

/* ---- the list of tensors ---- */

/* Gives a tensor with strides its place as a view. Its values must be in its storage. */
static stow_status place_view(tensor *one, source *from, const torch_tensor *made, uint64_t offset,
                              uint64_t storage_end) {
  source_view view = {.offset = offset, .dims = made->dims};
  uint64_t end = offset, reach;
  view.width = tensor_type_get(made->type)->bytes;
  bool fits = checked_add(&end, end, view.width);
  for (uint32_t i = 0; i < made->dims; i++) {
    view.shape[i] = made->shape[i];
    view.stride[i] = made->stride[i];
    fits = fits && checked_mul(&reach, made->shape[i] - 1, made->stride[i]) &&
           checked_mul(&reach, reach, view.width) && checked_add(&end, end, reach);
  }
  if (!fits || end > storage_end)
    return stow_fail(STOW_ERR_FORMAT, "%s: tensor %.200s reaches past the end of its storage",
                     from->name, one->name);
  return source_add_view(from, &view, &one->offset);
}

static stow_status add_tensor(tensors *t, const machine *m, source *from, const char *name,
                              const torch_tensor *made) {
  tensor *one = NULL;
  const storage *place = &m->storages[made->storage];
  uint64_t skip, need_bytes;
  if (made->lazily != NULL)
    return stow_fail(
        STOW_ERR_UNSUPPORTED,
        "%s: tensor %.200s was saved as a lazy %s; save x.resolve_conj().resolve_neg() "
        "instead",
        from->name, name, made->lazily);
  if (made->strided) t->used_bytes += 2 * sizeof(source_view); /* checked by tensors_add */
  STOW_TRY(tensors_add(t, from, name, strlen(name), &one));
  one->dims = made->dims;
  memcpy(one->shape, made->shape, sizeof one->shape);
  tensors_set_type(one, made->type);
  STOW_TRY(tensors_count(one, from));
  uint64_t width = tensor_type_get(made->type)->bytes;
  if (!checked_mul(&one->bytes, one->count, width) || !checked_mul(&skip, made->offset, width) ||
      !checked_add(&need_bytes, skip, one->bytes))
    return stow_fail(STOW_ERR_FORMAT, "%s: tensor %.200s: its size exceeds 64 bits", from->name,
                     name);
  if (!place->placed)
    return stow_fail(STOW_ERR_FORMAT, "%s: tensor %.200s: its storage is missing", from->name,
                     name);
  if (one->count == 0) return one->offset = place->offset, STOW_OK; /* it may begin anywhere */
  if (made->strided)
    return place_view(one, from, made, place->offset + skip, place->offset + place->bytes);
  if (need_bytes > place->bytes)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: tensor %.200s needs %" PRIu64 " bytes, its storage has %" PRIu64,
                     from->name, name, need_bytes, place->bytes);
  one->offset = place->offset + skip;
  return STOW_OK;
}

/* Adds the tensor "tensor", or the tensors of a list or tuple as "0", "1", … */
static stow_status list_data(tensors *t, const machine *m, source *from, value top) {
  if (top.tag == TAG_TENSOR) return add_tensor(t, m, from, "tensor", &m->made[top.i]);
  const container *c = &m->containers[top.i];
  for (size_t i = 0; i < c->count; i++) {
    char name[24];
    snprintf(name, sizeof name, "%zu", i);
    if (c->items[i].tag != TAG_TENSOR && m->data) continue; /* something about the data */
    if (c->items[i].tag != TAG_TENSOR)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%s: item %zu of its list is not a tensor; save the tensors alone",
                       from->name, i);
    STOW_TRY(add_tensor(t, m, from, name, &m->made[c->items[i].i]));
  }
  if (t->count == 0 && c->count > 0)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: no item of its list is a tensor", from->name);
  return STOW_OK;
}

/* Returns whether a dict of data has tensors of its own, perhaps beside other entries. */
static bool holds_data(const machine *m, value top) {
  const container *c = &m->containers[top.i];
  for (size_t i = 0; m->data && i + 1 < c->count; i += 2)
    if (c->items[i].tag == TAG_STRING && c->items[i + 1].tag == TAG_TENSOR) return true;
  return false;
}

/* Returns whether it is a dict of tensors, with at least one. Takes what it looks at from *left. */
static bool is_state(const machine *m, value v, size_t *left) {
  if (v.tag != TAG_DICT || m->containers[v.i].count > *left) return false;
  const container *c = &m->containers[v.i];
  *left -= c->count;
  for (size_t i = 0; i + 1 < c->count; i += 2)
    if (c->items[i].tag != TAG_STRING || c->items[i + 1].tag != TAG_TENSOR) return false;
  return c->count > 0;
}

/* Returns the model's dict of tensors inside a checkpoint, which also has the state of an optimizer
 * and numbers: the one with a usual name, or the only one if `top` has no data of its own. Returns
 * `top` if there is none. */
static value find_state(const machine *m, value top) {
  static const char *const usual[] = {"state_dict", "model_state_dict", "model", "module"};
  const container *c = &m->containers[top.i];
  size_t found = 0, best = sizeof usual / sizeof *usual, left = 0;
  value state = top;
  /* Each dict once: a hostile file names one dict many times. */
  for (size_t i = 0; i < m->container_count; i++) left += m->containers[i].count;
  for (size_t i = 0; i + 1 < c->count; i += 2) {
    if (c->items[i].tag != TAG_STRING || !is_state(m, c->items[i + 1], &left)) continue;
    size_t rank = 0;
    while (rank < sizeof usual / sizeof *usual &&
           strcmp(usual[rank], m->strings.data + c->items[i].i) != 0)
      rank++;
    if (found++ == 0 || rank < best) state = c->items[i + 1], best = rank;
  }
  bool only = found == 1 && !holds_data(m, top);
  return only || best < sizeof usual / sizeof *usual ? state : top;
}

static stow_status list_tensors(tensors *t, const machine *m, source *from, value top) {
  if (top.tag == TAG_TENSOR || top.tag == TAG_LIST || top.tag == TAG_TUPLE) {
    STOW_TRY(list_data(t, m, from, top));
    return tensors_check_shared(t, from);
  }
  if (top.tag != TAG_DICT)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: not a tensor, nor a dict or list of tensors; save model.state_dict()",
                     from->name);
  size_t all = SIZE_MAX;
  if (!is_state(m, top, &all)) top = find_state(m, top);
  bool data = holds_data(m, top);
  const container *c = &m->containers[top.i];
  for (size_t i = 0; i + 1 < c->count; i += 2) {
    const char *name = c->items[i].tag == TAG_STRING ? m->strings.data + c->items[i].i : NULL;
    bool is_tensor = name != NULL && c->items[i + 1].tag == TAG_TENSOR;
    if (!is_tensor && data) continue; /* something about the data */
    if (!is_tensor)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%s: \"%.100s\" is not a tensor, and it is unclear which entry is "
                       "the model's state_dict(); save that alone",
                       from->name, name != NULL ? name : "a key");
    STOW_TRY(add_tensor(t, m, from, name, &m->made[c->items[i + 1].i]));
  }
  return tensors_check_shared(t, from);
}

static stow_status read_pickle(tensors *t, members *a, source *from, machine *m) {
  zip_member member;
  if (a->pickle->bytes > PICKLE_MAX || a->pickle->bytes > m->max_bytes)
    return stow_fail(STOW_ERR_BUDGET, "%s: a pickle of %" PRIu64 " KiB; raise --memory", from->name,
                     a->pickle->bytes >> 10);
  uint8_t *bytes = malloc((size_t)a->pickle->bytes + 1);
  if (bytes == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  stow_status status = zip_member_open(&member, from, a->pickle);
  if (status == STOW_OK) {
    status = zip_member_read(&member, 0, bytes, (size_t)a->pickle->bytes);
    zip_member_close(&member);
  }
  value top = {TAG_NONE, 0};
  m->at = m->start = bytes;
  m->end = bytes + a->pickle->bytes;
  if (status == STOW_OK) status = run(m, &top);
  if (status == STOW_OK) status = place_members(a, m);
  if (status == STOW_OK) status = list_tensors(t, m, from, top);
  free(bytes);
  return status;
}

/* ---- files of PyTorch before 1.6 ---- */

/* The number 0x1950a86a20f9469cfc6c and the end of its pickle (torch/serialization.py,
 * MAGIC_NUMBER). The protocol comes before it, from protocol 4 on with a frame. */
static const uint8_t old_magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                    0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
#define OLD_VERSION 1001

/* Returns the bytes of the pickle with the number; 0: it does not begin with one. */
static size_t magic_bytes(const uint8_t *start, size_t count) {
  enum { PROTO = 0x80, FRAME = 0x95, FRAMED = 11 };
  size_t at = count > 2 && start[2] == FRAME ? FRAMED : 2;
  bool is = count >= at + sizeof old_magic && start[0] == PROTO && start[1] >= 2 && start[1] <= 5 &&
            memcmp(start + at, old_magic, sizeof old_magic) == 0;
  return is ? at + sizeof old_magic : 0;
}

bool torch_file_is_old(const uint8_t *start, size_t count) {
  return magic_bytes(start, count) > 0;
}

/* Checks the dict that says how the machine stored numbers. */
static stow_status check_machine(const machine *m, value info) {
  if (info.tag != TAG_DICT) return refuse(m, "no description of the machine");
  const container *c = &m->containers[info.i];
  for (size_t i = 0; i + 1 < c->count; i += 2)
    if (c->items[i].tag == TAG_STRING &&
        strcmp(m->strings.data + c->items[i].i, "little_endian") == 0 && c->items[i + 1].i == 1)
      return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: saved on a big-endian machine; save it again on a little-endian one",
                   m->from->name);
}

typedef struct named_storage {
  const char *key;
  storage *place;
} named_storage;

static int by_key(const void *a, const void *b) {
  return strcmp(((const named_storage *)a)->key, ((const named_storage *)b)->key);
}

/* Places the storages of one key: `count` values from byte `at`. Returns their bytes. */
static stow_status place_key(const machine *m, const source *from, named_storage *sorted,
                             const char *key, uint64_t at, uint64_t count, uint64_t *bytes) {
  const named_storage wanted = {.key = key};
  named_storage *end = sorted + m->storage_count;
  named_storage *found = m->storage_count > 0
                             ? bsearch(&wanted, sorted, m->storage_count, sizeof *sorted, by_key)
                             : NULL;
  /* The width of its values is known only from a tensor. */
  if (found == NULL) return refuse(m, "a storage that no tensor has");
  if (found->place->placed) return refuse(m, "the same storage twice");
  while (found > sorted && strcmp(found[-1].key, key) == 0) found--;
  for (; found < end && strcmp(found->key, key) == 0; found++) {
    if (!checked_mul(bytes, count, tensor_type_get(found->place->type)->bytes) ||
        *bytes > from->bytes - at)
      return stow_fail(STOW_ERR_FORMAT, "%s: the file ends before its storages do", from->name);
    found->place->placed = true;
    found->place->offset = at;
    found->place->bytes = *bytes;
  }
  return STOW_OK;
}

/* Finds the storages, which follow one another from byte `at` in the order of the keys. */
static stow_status place_sorted(const machine *m, source *from, named_storage *sorted,
                                const container *keys, uint64_t at) {
  for (size_t i = 0; i < keys->count; i++) {
    uint8_t start[8];
    uint64_t bytes = 0;
    if (keys->items[i].tag != TAG_STRING) return refuse(m, "the key of a storage is no text");
    if (at > from->bytes || from->bytes - at < sizeof start)
      return stow_fail(STOW_ERR_FORMAT, "%s: the file ends before its storages do", from->name);
    STOW_TRY(source_read(from, at, start, sizeof start));
    at += sizeof start;
    STOW_TRY(place_key(m, from, sorted, m->strings.data + keys->items[i].i, at, source_u64(start),
                       &bytes));
    at += bytes;
  }
  return STOW_OK;
}

static stow_status place_old(machine *m, source *from, value keys, uint64_t at) {
  if (keys.tag != TAG_LIST) return refuse(m, "no list of storages");
  STOW_TRY(charge(m, m->storage_count * sizeof(named_storage)));
  named_storage *sorted = malloc((m->storage_count + 1) * sizeof *sorted);
  if (sorted == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  for (size_t i = 0; i < m->storage_count; i++)
    sorted[i] = (named_storage){m->strings.data + m->storages[i].key, &m->storages[i]};
  qsort(sorted, m->storage_count, sizeof *sorted, by_key);
  stow_status status = place_sorted(m, from, sorted, &m->containers[keys.i], at);
  free(sorted);
  return status;
}

static stow_status read_old(tensors *t, source *from, machine *m) {
  size_t length = from->bytes < m->max_bytes ? (size_t)from->bytes : (size_t)m->max_bytes;
  uint8_t *bytes = malloc(length + 1);
  if (bytes == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  value version = {0}, info = {0}, top = {0}, keys = {0};
  stow_status status = source_read(from, 0, bytes, length);
  m->start = bytes;
  m->at = bytes + magic_bytes(bytes, length);
  m->end = bytes + length;
  if (status == STOW_OK) status = run(m, &version);
  if (status == STOW_OK && (version.tag != TAG_INT || version.i != OLD_VERSION))
    status = refuse(m, "another version of the format than 1001");
  if (status == STOW_OK) status = run(m, &info);
  if (status == STOW_OK) status = check_machine(m, info);
  if (status == STOW_OK) status = run(m, &top);
  if (status == STOW_OK) status = run(m, &keys);
  if (status == STOW_ERR_FORMAT && m->at >= m->end && length < from->bytes)
    status = stow_fail(STOW_ERR_BUDGET, "%s: its pickle has more than %zu KiB; raise --memory",
                       from->name, length >> 10);
  if (status == STOW_OK) status = place_old(m, from, keys, (uint64_t)(m->at - m->start));
  if (status == STOW_OK) status = list_tensors(t, m, from, top);
  free(bytes);
  return status;
}

static void machine_free(machine *m) {
  for (size_t i = 0; i < m->container_count; i++) free(m->containers[i].items);
  free(m->containers);
  free(m->storages);
  free(m->made);
  free(m->stack);
  free(m->memo);
  buffer_free(&m->strings);
}

static stow_status read_file(tensors *t, source *from, uint64_t max_bytes, bool data) {
  *t = (tensors){.max_bytes = max_bytes / 4};
  members a = {0};
  machine m = {.from = from, .max_bytes = max_bytes / 4, .strings = BUFFER_INIT, .data = data};
  uint8_t start[TORCH_FILE_START];
  if (from->bytes >= sizeof start) STOW_TRY(source_read(from, 0, start, sizeof start));
  if (from->bytes >= sizeof start && torch_file_is_old(start, sizeof start)) {
    stow_status old = read_old(t, from, &m);
    machine_free(&m);
    if (old != STOW_OK) tensors_free(t);
    return old;
  }
  STOW_TRY(zip_open(&a.archive, from, max_bytes / 4));
  stow_status status = find_pickle(&a);
  if (status == STOW_OK) status = check_order(&a, from);
  if (status == STOW_OK) status = read_pickle(t, &a, from, &m);
  machine_free(&m);
  zip_close(&a.archive);
  if (status != STOW_OK) tensors_free(t);
  return status;
}

stow_status torch_file_read(tensors *t, source *from, uint64_t max_bytes) {
  return read_file(t, from, max_bytes, false);
}

stow_status torch_file_read_data(tensors *t, source *from, uint64_t max_bytes) {
  return read_file(t, from, max_bytes, true);
}
