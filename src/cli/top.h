/* Top: a live view of devices, host memory and the processes that hold them.
 *
 *   top_read one sample: devices (NVML), runs of `stowage run` (their ledgers), processes (/proc)
 *   top_note    keeps history: rates and sparklines
 *   top_holders what the chosen process holds, by line or tag, from its trace
 *   top_draw the sample as lines of text with our colours; top_json as JSON
 *   top_screen  shows the lines with ncurses, which is found at run time, and reads keys
 *
 * All tables are bounded; what does not fit is counted. Names from outside are cleaned where they
 * are read. */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/hostmem.h"
#include "watch/nvml.h"

enum {
  TOP_DEVICES_MAX = 32,
  TOP_PROCESSES_MAX = 512,
  TOP_RUNS_MAX = 32,
  TOP_HOLDERS_MAX = 64,
  TOP_HISTORY = 240, /* samples */
};

typedef struct top_device {
  char name[64]; /* "NVIDIA H100", or "device 0 of run 4711" if the device is unknown */
  char uuid[96];
  int index;  /* index of the device; -1: unknown */
  bool known; /* total and used are known */
  uint64_t total_bytes, used_bytes;
  uint64_t limit_bytes;       /* lowest limit of the runs on it; 0: none */
  uint64_t held_bytes;        /* held by processes of runs */
  uint64_t spilled_bytes;     /* spilled from it to the host */
  uint64_t spill_limit_bytes; /* spill limit of the runs on it; 0: no spill */
} top_device;

typedef struct top_run {
  char folder[PATH_MAX];
  pid_t pid; /* PID of `stowage run` or of the launcher */
} top_run;

typedef struct top_process {
  pid_t pid;
  uint64_t start; /* start time; pid and start identify the process */
  int run;        /* index of its run; -1: none */
  int device;     /* the device on which it holds most; -1: none */
  uint64_t held_bytes, cached_bytes, spilled_bytes, pinned_bytes;
  bool held_known;     /* false: it uses a device, but the driver does not report how much */
  uint64_t host_bytes; /* resident anonymous and shared memory */
  double rate_bytes_s; /* change of everything it holds */
  bool rate_known;
  char name[32];
  char command[200];
  char trace[64]; /* prefix of its files in the folder of the run; "": none */
  const float *history;
  int history_count;
} top_process;

typedef struct top_look {
  uint64_t time_ns, wall_ns;
  char machine[64];
  hostmem host;
  bool host_known;
  uint64_t host_peak_bytes;
  char no_device[200]; /* why there is no device */
  top_device devices[TOP_DEVICES_MAX];
  int device_count;
  top_run runs[TOP_RUNS_MAX];
  int run_count;
  top_process processes[TOP_PROCESSES_MAX];
  int process_count, left_out;
} top_look;

/* Takes one sample. If `n` is NULL, leaves `no_device` unchanged. With `all`, lists every process
 * of this user that holds memory; otherwise those of runs and devices, or all if there are none. */
void top_read(top_look *t, nvml *n, bool all);

/* ---- history ---- */

typedef struct top_series {
  pid_t pid;
  uint64_t start;
  bool used;
  int count;
  float values[TOP_HISTORY]; /* in MiB, oldest first */
} top_series;

typedef struct top_history {
  top_series processes[TOP_PROCESSES_MAX];
  top_series devices[TOP_DEVICES_MAX];
  top_series host;
  uint64_t times_ns[TOP_HISTORY];
  int looks;
} top_history;

/* Adds a sample, and fills in its rates and histories. */
void top_note(top_history *h, top_look *t);

/* ---- the selected process ---- */

typedef enum top_by { TOP_BY_LINE, TOP_BY_TAG } top_by;

typedef struct top_holder {
  char label[160];
  uint64_t bytes;
  uint32_t count;
} top_holder;

typedef struct top_chosen {
  pid_t pid; /* 0: none */
  top_by by;
  top_holder list[TOP_HOLDERS_MAX];
  int count, left_out;
  uint64_t live_bytes;
  bool host;        /* about host memory: the objects that a Python process reported */
  char note[160];   /* why the list is empty; "" otherwise */
  uint64_t next_ns; /* earliest time of the next read, so that reading takes at most a twentieth of
                     * the time */
} top_chosen;

/* Reads the holders again if another process is selected, or if that is due. */
void top_holders(top_chosen *c, const top_look *t, const top_process *p, top_by by);

/* ---- showing ---- */

typedef enum top_sort {
  TOP_SORT_HELD,
  TOP_SORT_CACHED,
  TOP_SORT_SPILLED,
  TOP_SORT_HOST,
  TOP_SORT_RATE,
  TOP_SORT_PID,
  TOP_SORT_COUNT
} top_sort;
extern const char *const top_sort_names[TOP_SORT_COUNT + 1];

typedef struct top_view {
  int width, height; /* height 0: no limit */
  top_sort sort;
  bool reverse;
  char filter[64]; /* "": show all */
  pid_t chosen;    /* 0: the first one */
  top_by by;
  bool utf8, color, help, typing, all;
  double interval_s;
  const char *note; /* a line above everything; NULL: none */
} top_view;

/* Sorts and filters the processes in place. Returns the selected one; NULL if there is none. */
top_process *top_arrange(top_look *t, top_view *v);
/* Writes lines, each ended by '\n', none wider than the view, with the colours of cli/output.h. */
void top_draw(buffer *out, const top_look *t, const top_history *h, const top_chosen *c,
              const top_view *v);
void top_json(buffer *out, const top_look *t, const top_chosen *c);

/* ---- ncurses ---- */

enum {
  TOP_KEY_NONE = -1,
  TOP_KEY_DOWN = 0402, /* values as in curses.h */
  TOP_KEY_UP = 0403,
  TOP_KEY_HOME = 0406,
  TOP_KEY_BACKSPACE = 0407,
  TOP_KEY_NEXT = 0522,
  TOP_KEY_PREVIOUS = 0523,
  TOP_KEY_END = 0550,
  TOP_KEY_RESIZE = 0632,
};

/* Takes over the terminal. Returns false if there is no ncurses or it does not know the terminal;
 * `why` then has the reason. */
bool top_screen_open(char why[200]);
void top_screen_size(int *width, int *height);
void top_screen_show(const char *lines, bool color);
/* Waits at most `ms` for a key. TOP_KEY_NONE: no key was pressed. */
int top_screen_key(int ms);
void top_screen_close(void);

#endif
