/* The engine inside: what residency.c and plan.c share. */
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
  uint64_t born;  /* launches before it last became live or dead; BORN_LONG_AGO: not known */
  uint64_t left;  /* copy out: launches before it began */
  uint64_t stale; /* arriving or staged: the first launch that may have written to its host page */
  uint64_t touched; /* the last launch that named it, small touches included */
  uint8_t place;    /* unit_place */
  bool leaving;     /* in vram: its copy out is under way */
  bool host_valid;  /* in vram: the host page equals it, as far as launches tell */
  bool host_once;   /* the host page has held its contents before: worth a check */
  bool seen;        /* some launch named it */
  bool hidden;      /* written unseen: moves only with the gate closed */
  bool in_place;    /* left on the host on purpose */
  bool wanted;      /* in the list of what is missing next */
} unit_state;

typedef struct victim {
  uint64_t next_use;
  uint32_t unit;
} victim;

enum { WANTED_MAX = 256, TIMES = 1 << 15, FUNCTIONS = 1024 };

/* Nanoseconds of a launch on the device, with all of its units in vram and with some on the host;
 * 0: not known. */
typedef struct launch_time {
  uint64_t id;
  uint32_t near_ns, far_ns;
} launch_time;

typedef struct function_time {
  uint64_t function;
  double far_ns_per_byte; /* what reading in place adds */
} function_time;

typedef struct worth_sums {
  double near, far, host, calls;
  double bus; /* copies in */
} worth_sums;

struct residency {
  space space;
  history history;
  residency_card card;
  uint64_t capacity_bytes, stage_bytes;
  uint64_t vram_bytes, staged_bytes; /* staged: arriving too */
  uint64_t unit_bytes;               /* the largest */
  bool stay;
  unit_state *units;
  uint32_t unit_capacity; /* of every list below */
  uint64_t seq;           /* launches so far */
  uint64_t units_changed; /* from this position of the history on the units are today's */
  uint32_t *named;
  uint32_t named_count;
  uint32_t parked_live; /* parked units in which a block lives */
  bool demand;          /* the last launch names a unit that is not in vram */
  uint64_t jumps_seen;
  /* The plan. */
  residency_move *out, *in;
  uint32_t out_count, in_count;
  /* Units in vram with the farthest next use, farthest first. */
  victim *victims;
  uint32_t victim_count;
  uint64_t victims_seq;
  /* Units not in vram that the forecast names next, in order, up to position `ahead`. */
  struct {
    uint32_t unit;
    uint64_t position;
  } wanted[WANTED_MAX];
  uint32_t wanted_first, wanted_count; /* a ring */
  uint64_t ahead;
  /* Worth (worth.c). */
  launch_time *times;       /* TIMES of them */
  function_time *functions; /* FUNCTIONS of them */
  worth_sums sums;
  double exchange_ns_per_byte; /* as measured, both ways; 0: not yet */
  bool moving;
  uint64_t still_since;          /* not moving: the launch from which on */
  uint32_t spread_left;          /* exchanges that may still spread what stays on the host */
  uint64_t function;             /* of the last launch */
  uint64_t id;                   /* of it: its function and words */
  uint64_t far_bytes, all_bytes; /* of the units it names */
  double *costs;                 /* per unit, of a round in place */
  uint64_t in_place_bytes;
  residency_stats stats;
};

/* Adds the launch to the sums. Returns whether its missing units are worth an exchange. */
bool worth_launch(residency *r, const residency_launch_info *l, bool missing);
/* Nanoseconds on the device of a launch in vram (0: not known), and what far bytes add to it. */
uint64_t worth_near_ns(residency *r, uint64_t id);
double worth_far_ns(residency *r, uint64_t id, uint64_t near_ns, uint64_t far, uint64_t all);
/* What exchanging so many bytes takes, both ways. */
double worth_calls_ns(const residency *r, uint64_t bytes);

/* The forecast changed: what was worked out from it is dropped. */
void forecast_reset(residency *r);

static inline bool unit_is_empty(const residency *r, uint32_t unit) {
  /* Nothing live in it, or nothing was started since the first block in it began to live. */
  return r->space.units[unit].live == 0 ||
         (r->units[unit].born == r->seq - 1 && r->space.units[unit].live > 0);
}

#endif
