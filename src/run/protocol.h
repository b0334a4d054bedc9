/* Protocol: the names of the files in a run's folder and of the lines in them. Shared by `stowage
 * run`, the libraries it preloads, their Python scripts and the Python package.
 *
 * This file is the only place in src/ and python/ that spells these names; the environment
 * variables are in base/variables.h. tools/run_names makes python/stowage/_run_names.py from both,
 * so keep one #define per line with a plain string.
 *
 *   runs/last                     link to the newest run
 *   runs/DATE-TIME-PID/           one run
 *     ledger                      who holds how much (ledger.h)
 *     end                         how the run ended (folder.h)
 *     watch                       requests to processes (request.h)
 *     host                        host memory of the run (host_record.h)
 *     PROCESS.ring, PROCESS.stow  trace of a process
 *     PROCESS.pickle              PyTorch's own view when it ran out of memory
 *     PROCESS.error               text of the exception that ended it
 *     PROCESS.profile             its host memory by line (profile.h)
 *     PID.objects                 its answer to a request (host_record.h)
 *     PID.frames                  where it is, if it does not answer
 *     rankN/                      the same files of one rank, if several ranks share the run
 *
 * PROCESS is PID, or rankN-PID in a job of several ranks. */
#ifndef RUN_PROTOCOL_H
#define RUN_PROTOCOL_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* ---- files of the folder ---- */

#define RUN_LAST   "last"
#define RUN_LEDGER "ledger"
#define RUN_END    "end"
#define RUN_WATCH  "watch"
#define RUN_HOST   "host"
#define RUN_RANK   "rank" /* prefix of a rank's number */

/* ---- extensions of a process's files ---- */

#define RUN_RING    ".ring"
#define RUN_STOW    ".stow"
#define RUN_PICKLE  ".pickle"
#define RUN_ERROR   ".error"
#define RUN_OBJECTS ".objects"
#define RUN_FRAMES  ".frames"
#define RUN_PROFILE ".profile"
#define RUN_PART    ".part" /* appended while a file is being written */

/* ---- first words of the lines in PID.objects ---- */

/* number of the request, bytes held, 1 if complete, us, turns, modules imported */
#define RUN_LINE_ASKED  "asked"
#define RUN_LINE_OBJECT "object" /* the fields of a host_object, in the order of _holders.py */
#define RUN_LINE_FRAME  "frame"  /* file, line, function, text of the line */
/* tensors of PyTorch among the variables of the functions that run, and those of them that are in
 * an autograd graph */
#define RUN_LINE_TENSORS "tensors"

/* the limit on the address space of the process (ulimit -v), and the most of it that it used */
#define RUN_LINE_SPACE "space"

/* The first word of the first line in PID.frames, before the number of the request. */
#define RUN_LINE_SILENT "silent"

/* What `stowage run --spill` adds to PyTorch's allocator settings. */
#define RUN_TORCH_SETTING "expandable_segments:True"
/* What the shim adds to XLA_FLAGS: an empty list, so that XLA makes no command buffers. */
#define RUN_XLA_FLAG "--xla_gpu_enable_command_buffer="

/* The second one, followed by a number: the percentage of the reported memory that results may
 * take; XLA recomputes the others instead of keeping them. */
#define RUN_XLA_PART "--xla_gpu_memory_limit_slop_factor="

/* The name of the thread that waits for requests, if a process has one. */
#define RUN_LISTENER "stowage-host"

/* ---- paths ---- */

/* Writes folder/name. Returns false and a truncated `path` if it is too long. */
bool run_path(char path[PATH_MAX], const char *folder, const char *name);

/* Writes folder/process + extension: run_process_path(p, folder, "rank3-4711", RUN_RING). */
bool run_process_path(char path[PATH_MAX], const char *folder, const char *process,
                      const char *ending);

/* Writes the PROCESS name of the calling process. */
#define RUN_PROCESS_MAX 48
void run_process_name(char name[RUN_PROCESS_MAX]);

/* Returns the process ID in a name such as "4711", "rank3-4711" or "rank3-4711.ring". */
int run_process_pid(const char *name);

/* Returns whether a file name has that extension and something before it. */
bool run_has_ending(const char *name, const char *ending);

#endif
