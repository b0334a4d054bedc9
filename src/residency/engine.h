/* Engine: internal definitions that residency.c, plan.c and worth.c share. */
#ifndef RESIDENCY_ENGINE_H
#define RESIDENCY_ENGINE_H

#include "residency/history.h"
#include "residency/residency.h"
#include "residency/space.h"

typedef enum unit_place {
  PLACE_HOST = 0,
  PLACE_ARRIVING,
  PLACE_STAGED,
  PLACE_VRAM,
  PLACE_PARKED
} unit_place;

#define BORN_LONG_AGO (UINT64_MAX - 1)

typedef struct unit_state {
  uint64_t born;  /* number of launches before it last became live or dead; BORN_LONG_AGO:
                   * unknown */
  uint64_t left;  /* number of launches before its copy out began */
  uint64_t stale; /* arriving or staged: the first launch that may have written to its host page */
  uint64_t touched; /* the last launch that named it, small touches included */
  uint64_t used;    /* the last of them that is neither a copy nor a fill */
  uint64_t written; /* the last launch that may have written to it */
  uint64_t copied;  /* the last copy or fill that did */
  uint64_t passed;  /* bytes of it that were copied for kernels since passed_since */
  uint64_t whole;   /* size of the largest of these copies */
  uint8_t place;    /* a unit_place */
  bool leaving;     /* in vram: its copy out is running */
  bool host_valid;  /* in vram: the host page has the same contents, as far as launches show */
  bool host_once;   /* the host page has held its contents before, so a check is worthwhile */
  bool seen;        /* some launch has named it */
  bool hidden;      /* something writes to it unseen: moves only with the gate closed */
  bool in_place;    /* left on the host on purpose */
  bool kept;        /* belongs in vram, although nothing but copies may use it */
  bool wanted;      /* in the list of units that are missing next */
  bool needed;      /* counted in stats.needed_bytes */
} unit_state;

typedef struct victim {
  uint64_t next_use;
  uint32_t unit;
} victim;

/* A visit of a unit ends when so many launches in a row do not name it. */
#define VISIT_LAUNCHES 256
enum { WANTED_MAX = 256, TIMES = 1 << 15, FUNCTIONS = 1024, WIDE_TRIALS = 256 };

/* Duration of a launch on the device in nanoseconds, with all units in vram and with some on the
 * host; 0: unknown. */
typedef struct launch_time {
  uint64_t id;
  uint32_t near_ns, far_ns;
  uint64_t far_bytes; /* on the host when far_ns was measured */
  uint32_t nears;     /* how often near_ns was measured; it is the least of them */
  uint32_t last_ns;   /* measured last */
} launch_time;

/* Launches of one function and size that may use more of an arena than their words name: whether
 * naming the ranges `beyond` (space.h) makes them faster. Those with a range that is larger than
 * most have a trial of their own, which begins when all words are known: before, a launch may take
 * long because it names too little of a buffer, and such a range may be most of the arena. */
typedef enum wide_state { WIDE_UNKNOWN = 0, WIDE_TRIED, WIDE_YES, WIDE_NO } wide_state;

typedef struct wide_trial {
  uint64_t trial;     /* identifies it */
  uint32_t launches;  /* so far, before the trial */
  uint32_t narrow_ns; /* the least of the long times before the trial */
  uint8_t state;      /* a wide_state */
  uint8_t slow, fast; /* launches: before the trial, those that took long; then those that still do,
                       * and those that do not */
  uint8_t timed;      /* launches that were timed in this state */
} wide_trial;

/* A function that was timed in place. */
typedef struct function_time {
  uint64_t function;
  bool uses; /* it took as long as reading at least half of the bytes on the host that it named */
} function_time;

typedef struct worth_sums {
  double near, far, host, calls;
  double bus;           /* time of copies in */
  double names, visits; /* units that launches in arenas name, and visits that begin with them */
} worth_sums;

struct residency {
  space space;
  history history;
  residency_costs cost;
  uint64_t capacity_bytes, stage_bytes;
  uint64_t vram_bytes, staged_bytes; /* staged_bytes includes arriving units */
  uint64_t unit_bytes;               /* size of the largest unit */
  bool stay;
  unit_state *units;
  uint32_t unit_capacity; /* capacity of every list below */
  uint64_t seq;           /* launches so far */
  uint64_t units_changed; /* history positions from here on name the current units */
  uint64_t writes_since;  /* since which launch blocks that are written are noted; 0: not noted */
  uint32_t *named;
  uint32_t named_count;
  uint32_t parked_live; /* parked units that contain a live block */
  bool demand;          /* the last launch names a unit that is not in vram */
  bool once;            /* it is a copy or fill */
  uint64_t jumps_seen;
  /* The plan. */
  residency_move *out, *in;
  uint32_t out_count, in_count;
  uint64_t unwritten_bytes;         /* of what leaves: needed no copy after all */
  double left_bytes, written_bytes; /* what left in the last exchanges; of these, copied then */
  /* Units in vram whose next use is farthest away, the farthest first. */
  victim *victims;
  uint32_t victim_count;
  uint64_t victims_seq;
  /* Units outside vram that the forecast names next, in order, up to position `ahead`. */
  struct {
    uint32_t unit;
    uint64_t position;
  } wanted[WANTED_MAX];
  uint32_t wanted_first, wanted_count; /* a ring buffer */
  uint64_t ahead;
  /* For worth.c. */
  launch_time *times;       /* TIMES entries */
  uint64_t samples;         /* launches that were timed */
  uint64_t waits;           /* of them, those that others waited for */
  uint32_t lates;           /* launches whose times others waited for too long */
  function_time *functions; /* FUNCTIONS entries: those that were timed in place */
  wide_trial *trials;       /* WIDE_TRIALS entries */
  worth_sums sums;
  double exchange_ns_per_byte; /* measured, both directions; 0: not measured yet */
  bool moving;
  uint64_t still_since;          /* since which launch nothing moves */
  uint64_t chosen_at;            /* from which launch on to choose again what stays on the host */
  uint64_t missed;               /* launches since then that used a host page not chosen to stay */
  uint32_t spread_left;          /* exchanges that may still redistribute the units that stay on the
                                  * host */
  uint64_t function;             /* function of the last launch */
  uint64_t shape;                /* identifies its function and size */
  uint64_t id;                   /* hash of the last launch's function and words */
  uint64_t far_bytes, all_bytes; /* bytes of its units: on the host, and all */
  uint64_t visits;               /* visits (VISIT_LAUNCHES) of units in arenas that begin with it */
  uint64_t passed_since;         /* since which launch copies for kernels are counted */
  double *costs;                 /* per unit: cost per round of leaving it on the host */
  uint64_t in_place_bytes;
  residency_stats stats;
};

/* Adds the launch to the sums. Returns whether its missing units are worth an exchange. */
bool worth_launch(residency *r, const residency_launch_info *l, bool missing);
/* Returns which ranges beyond their words launches of this function and size name. */
space_width worth_width(const residency *r, uint64_t shape);
/* Returns the device time in nanoseconds of a launch in vram (0: unknown), and what bytes on the
 * host add to it. */
uint64_t worth_near_ns(residency *r);
double worth_far_ns(residency *r, uint64_t id, uint64_t near_ns, uint64_t far, uint64_t all);
/* Returns the time to exchange `bytes` in both directions. */
double worth_calls_ns(const residency *r, uint64_t bytes);

/* Drops everything derived from the forecast, because the forecast changed. */
void forecast_reset(residency *r);

static inline bool unit_is_empty(const residency *r, uint32_t unit) {
  /* Nothing in it is live, or no launch started since its first block was allocated. */
  return r->space.units[unit].live == 0 ||
         (r->units[unit].born == r->seq - 1 && r->space.units[unit].live > 0);
}

#endif
