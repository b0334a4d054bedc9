/* Recipes: tables of fixes for a text, and of commands that find out more.
 *
 * The tables are searched in the order below, each from its first row, so the cheapest change for a
 * cause comes first. A field that is zero imposes no condition. */
#ifndef ADVISE_RECIPES_H
#define ADVISE_RECIPES_H

#include <stddef.h>
#include <stdint.h>

enum {
  DERIVED_TRAINS = 1 << 0,
  DERIVED_INFERS = 1 << 1,
  DERIVED_IMAGES = 1 << 2,  /* makes pictures or video */
  DERIVED_SPILLS = 1 << 3,  /* an NVIDIA device, and no sign of a system other than Linux */
  DERIVED_EXPANDS = 1 << 4, /* PyTorch 2.1 and newer, not on Windows */
  DERIVED_SPLITS = 1 << 5,  /* PyTorch knows max_split_size_mb */
  DERIVED_ROOM = 1 << 6,    /* more was free than requested */
  DERIVED_ABSURD = 1 << 7,
  DERIVED_GROUPED = 1 << 8,
  DERIVED_LISTED = 1 << 9, /* the text names the other processes */
  DERIVED_START = 1 << 10,
  DERIVED_KV_CACHE = 1 << 11,
  DERIVED_COMPUTE = 1 << 12,
  DERIVED_INIT = 1 << 13,
  DERIVED_POOL = 1 << 14,
  DERIVED_MIG = 1 << 15,
  DERIVED_STATUS = 1 << 16,
  DERIVED_WORKSPACE = 1 << 17,
  DERIVED_OWN_LIMIT = 1 << 18, /* the process has its own limit on host memory */
  DERIVED_NO_SIGN = 1 << 19,   /* a worker ended, and nothing mentions memory */
  DERIVED_EXECUTOR = 1 << 20,  /* a worker of joblib or of a process pool */
  DERIVED_BATCH = 1 << 21,     /* a fix already names a smaller batch in numbers … */
  DERIVED_ONE = 1 << 22,       /* … or the text says that the batch is 1 */
  DERIVED_HOLDS = 1 << 23,     /* the program's own data fills much of the device */
  DERIVED_NAMED = 1 << 24,     /* a fix has the settings of the killed program */
  DERIVED_SHARE = 1 << 25,     /* the server's text gives its share of the device */
  DERIVED_ENABLED = 1 << 26,   /* stowage.limit(ram=…) set the limit on host memory … */
  DERIVED_BEYOND = 1 << 27,    /* … and the machine has enough for the request */
  DERIVED_WEIGHTS = 1 << 28,   /* the failed request was for a model's weights */
  DERIVED_INPUT = 1 << 29,     /* the failed request was for a whole array of the program */
  DERIVED_TIMEOUT = 1 << 30,   /* killed after a timeout */
};
/* Not in the enum: an int has no bit 31. */
#define DERIVED_MEASURED (UINT64_C(1) << 31) /* memory was freed while a server measured itself */
#define DERIVED_LARGER   (UINT64_C(1) << 32) /* the request is larger than the device */
#define DERIVED_OTHER    (UINT64_C(1) << 33) /* the killed program is named, and is not Python */
#define DERIVED_PYTHON   (UINT64_C(1) << 34) /* the text shows that the program is in Python */
#define DERIVED_OWNED    (UINT64_C(1) << 35) /* a trainer owns the loop, not the user */
#define DERIVED_HUGE     (UINT64_C(1) << 36) /* far more host memory than machines have */
/* The request is too large whatever is free: more than the device, a buffer or a machine has. */
#define DERIVED_HOPELESS (UINT64_C(1) << 37)
#define DERIVED_DOCKER   (UINT64_C(1) << 39) /* what runs the container: Docker … */
#define DERIVED_PODS     (UINT64_C(1) << 40) /* … Kubernetes, or the text does not show it */
#define DERIVED_ASYNC    (UINT64_C(1) << 41) /* the framework uses the driver's pool */
#define DERIVED_FA_VALUE (UINT64_C(1) << 42) /* llama.cpp: -fa takes a value … */
#define DERIVED_FA_BARE  (UINT64_C(1) << 43) /* … or it does not, yet */
#define DERIVED_OOMD     (UINT64_C(1) << 44) /* systemd-oomd killed a unit */
#define DERIVED_SERVICE  (UINT64_C(1) << 45) /* … which is a service of the system */
#define DERIVED_TOGETHER (UINT64_C(1) << 50) /* free and cached memory together are enough */
#define DERIVED_REST     (UINT64_C(1) << 51) /* more is unaccounted for than a process needs */
#define DERIVED_NO_SWAP  (UINT64_C(1) << 52) /* one request of the host; swap cannot serve it */
#define DERIVED_TENSOR   (UINT64_C(1) << 53) /* one large tensor on the host */
#define DERIVED_CARVED   (UINT64_C(1) << 54) /* an integrated GPU with little of the RAM */
#define DERIVED_SPARED   (UINT64_C(1) << 55) /* a container was killed, not by its own limit */
#define DERIVED_TOKENS   (UINT64_C(1) << 56) /* the server's text gives the tokens that fit */
#define DERIVED_FAR      (UINT64_C(1) << 57) /* a model needs several times the RAM that is free */
#define DERIVED_DRAWS    (UINT64_C(1) << 58) /* a web interface that makes pictures */
#define DERIVED_VAST     (UINT64_C(1) << 59) /* the killed program held far more than swap relieves */
#define DERIVED_FREED    (UINT64_C(1) << 38) /* the request alone is within the limit */

#define RECIPE_HALF_BATCH                                                                          \
  "half the batch, and step every second time: (loss / 2).backward(); if i % 2: "                  \
  "optimizer.step(); "                                                                             \
  "optimizer.zero_grad()"

typedef struct recipe {
  uint32_t causes;         /* bits of cause_id */
  uint32_t kinds, hosts;   /* bits of message_kind, message_host */
  uint64_t need, never;    /* marks of the context: all of `need`, none of `never` */
  uint64_t with, without;  /* TRAIT_…: all of `with`, none of `without` */
  uint64_t program, other; /* PROGRAM_…: one of `program`, none of `other` */
  uint64_t must, mustnot;  /* DERIVED_… */
  uint16_t from, to;       /* versions of PyTorch: not known to be older than `from`, nor newer than
                            * `to` */
  const char *change, *cost;
} recipe;

typedef struct recipe_table {
  const recipe *rows;
  size_t count;
} recipe_table;

extern const recipe_table recipes_place; /* other processes, limits, fragments */
extern const recipe_table recipes_serve; /* servers and runtimes of models */
extern const recipe_table recipes_model; /* weights, the optimizer, one huge tensor */
extern const recipe_table recipes_full;  /* a device that is simply full */
extern const recipe_table recipes_host;
extern const recipe_table recipes_tools;    /* libraries and tools with settings of their own */
extern const recipe_table recipes_own;      /* programs with settings of their own */
extern const recipe_table recipes_platform; /* devices, after the program's own settings */
extern const recipe_table recipes_find;     /* used if the others gave fewer than two */
extern const recipe_table recipes_questions;

#endif
