/* The readers that message.c asks in order. Each fills `m` and returns true if the text is of its
 * kind; `where` receives the place of the first failure. */
#ifndef ADVISE_MESSAGE_PARTS_H
#define ADVISE_MESSAGE_PARTS_H

#include "advise/message.h"

/* Returns a message without any content. */
static inline message message_blank(void) {
  return (message){.asked_bytes = MESSAGE_UNKNOWN,
                   .device_bytes = MESSAGE_UNKNOWN,
                   .free_bytes = MESSAGE_UNKNOWN,
                   .before_bytes = MESSAGE_UNKNOWN,
                   .process_bytes = MESSAGE_UNKNOWN,
                   .limit_bytes = MESSAGE_UNKNOWN,
                   .host_bytes = MESSAGE_UNKNOWN,
                   .live_bytes = MESSAGE_UNKNOWN,
                   .cached_bytes = MESSAGE_UNKNOWN,
                   .reserved_bytes = MESSAGE_UNKNOWN,
                   .graph_bytes = MESSAGE_UNKNOWN,
                   .outside_bytes = MESSAGE_UNKNOWN,
                   .shape_bytes = MESSAGE_UNKNOWN,
                   .temporary_bytes = MESSAGE_UNKNOWN,
                   .given_bytes = MESSAGE_UNKNOWN,
                   .out_bytes = MESSAGE_UNKNOWN,
                   .whole_bytes = MESSAGE_UNKNOWN,
                   .largest_bytes = MESSAGE_UNKNOWN,
                   .wanted_tokens = MESSAGE_UNKNOWN,
                   .cache_tokens = MESSAGE_UNKNOWN,
                   .next_bytes = MESSAGE_UNKNOWN,
                   .held_bytes = MESSAGE_UNKNOWN,
                   .falling_bytes = MESSAGE_UNKNOWN,
                   .least_bytes = MESSAGE_UNKNOWN,
                   .device = UINT32_MAX,
                   .context = {.torch_to = UINT16_MAX}};
}
/* Returns the first size after one of `words`. */
static inline uint64_t message_first_size(scan_text t, const char *const *words, size_t count) {
  uint64_t bytes = MESSAGE_UNKNOWN;
  for (size_t i = 0; i < count && !known(bytes); i++) bytes = scan_size_after(t, words[i]);
  return bytes;
}
#define FIRST_SIZE(t, ...)                                                                         \
  message_first_size(t, (const char *const[]){__VA_ARGS__},                                        \
                     sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
/* Returns the place of words for a kill that launchers also write ("Killed", exit code 137), or
 * NULL. */
const char *message_kill_in(scan_text t);
/* Returns whether a kill, whose words are at `at` in the line, names another program than those of
 * `before`. */
bool message_kills_other(scan_text line, const char *at, scan_text before);
/* Returns whether the text has a container that ended with 137: "worker-1 exited with code 137". */
bool message_ends_container(scan_text t);
/* Returns whether the line says that a program was ended by a signal. */
bool message_names_kill(scan_text line);
/* Return how many different programs the text names as killed, 1 if none: containers of docker
 * compose, processes in the kernel's log. */
uint32_t message_killed_containers(scan_text t);
/* Returns whether the text gives the state OOMKilled of a container as false, and none as true. */
bool message_container_spared(scan_text t);
uint32_t message_killed_processes(scan_text t);
/* Returns the line of the kernel's log with which the kill of a second process begins; NULL if it
 * kills only one. */
const char *message_second_kill(scan_text t);
/* Returns whether the first kill of the kernel's log is by a control group's limit, not because the
 * machine ran out. */
bool message_kill_in_group(scan_text t);
/* Returns whether frameworks of a device use the words of this kind for their own errors as well.
 */
bool message_only_word(message_host host);

/* Overwrites failures after which the program says that it goes on ("skipping batch", "retrying
 * with batch size 8"), with their tracebacks. Returns how many there are. *end receives the end of
 * the last of them, and *retried whether the program tried that one again. */
uint32_t message_blank_caught(char *data, size_t count, const char **end, bool *retried);
/* Returns whether the text has failures of several libraries. Quick, and may be wrong. */
bool message_is_mixed(scan_text t);
/* Removes the next block from `t`: the failures of one library with their circumstances. `own`
 * receives the part of the first of them. Returns false if the rest has no failure. */
bool message_next_block(scan_text *t, scan_text *block, scan_text *own);

#define MESSAGE_HANDLING "During handling of the above exception"
/* Removes the next segment from `t`. Returns false at the end. */
bool message_next_segment(scan_text *t, scan_text *segment);
/* Returns the first line of a segment that is not empty. */
scan_text message_first_line(scan_text segment);
/* Returns whether the line shows a command that starts a program of the user's. */
bool message_starts_program(scan_text line);
/* Recognizes the last line of a traceback: "RuntimeError: …", "MemoryError". */
bool message_is_error(scan_text line);
/* Returns the start of the frames directly before the end of `t`, or its end if there are none. */
const char *message_frames_before(scan_text t);

bool message_torch(message *m, scan_text t, const char **where);
/* Returns what was live at the last failure of PyTorch in the text; MESSAGE_UNKNOWN: unknown. */
uint64_t message_torch_held(scan_text t);
bool message_xla(message *m, scan_text t, const char **where);
bool message_serve(message *m, scan_text t, const char **where);
/* The readers of llama.cpp, and of what Ollama and LM Studio report themselves. */
bool message_llama(message *m, scan_text t);
bool message_llama_ollama(message *m, scan_text t);
bool message_llama_requires(message *m, scan_text t);
bool message_llama_pinned(message *m, scan_text t);
bool message_llama_guardrail(message *m, scan_text t);
bool message_llama_runner(message *m, scan_text t);
/* Returns the line of the second request that a server was refused, in another size than the first
 * one; NULL if it was refused only one. */
const char *message_serve_second(scan_text t);
/* Reads how many tokens a server could not take at once, beside its PyTorch's error. */
void message_serve_tokens(message *m, scan_text t);
/* Returns how many different libraries' signs the text has. */
uint32_t message_serve_kinds(scan_text t);
/* Makes a failure of PyTorch the server's, if the text shows that one runs on it. */
void message_serve_on_torch(message *m);
/* Sets the share of the device that a server was started with, if the text has its command. */
void message_share(message *m, scan_text t);
bool message_device(message *m, scan_text t, const char **where);
/* `sure`: only texts that are unambiguous; otherwise only the others ("Killed"). */
bool message_host_memory(message *m, scan_text t, bool sure, const char **where);
/* Reads the limit on host memory that the text names, and what was used of it. */
void message_limits(message *m, scan_text t);
/* Recognizes texts whose only shortage is a warning: the program went on. */
bool message_warning(message *m, scan_text t);
/* Names errors that are not about memory, in a text without any word of it. */
bool message_other(message *m, scan_text t);
bool message_foreign(message *m, scan_text t, const char **where);
/* Recognizes those texts that other readers would claim. */
bool message_lookalike(message *m, scan_text t);
/* `shortages`: only lines that report one; otherwise also the end of a process that was killed. */
bool message_hint(message *m, scan_text t, bool shortages, const char **where);
/* Returns the part of the text around `where`, the place of the failure in `m`, if it only mentions
 * such failures; an empty one if it reports one. */
scan_text message_mention(scan_text t, const char *where, const message *m);
/* Returns whether a sentence only warns of the shortage whose words begin at `shortage`. */
bool message_only_warns(scan_text line, const char *shortage);
/* Fills the numbers that are still unknown by the words around the sizes near `where`, the place of
 * the failure. */
void message_quantities(message *m, scan_text t, const char *where);
/* Keeps the sentences near `where` whose numbers are still in no field. */
void message_said(message *m, scan_text t, const char *where);
/* Counts the dump of a BFC allocator in `raw`, the original text. */
void message_bfc(message *m, scan_text raw);

#endif
