/* The readers that message.c asks in order. Each fills `m` and returns true if the text is of its
 * kind; `where` receives the place of the first failure. */
#ifndef ADVISE_MESSAGE_PARTS_H
#define ADVISE_MESSAGE_PARTS_H

#include "advise/message.h"

bool message_torch(message *m, scan_text t, const char **where);
bool message_xla(message *m, scan_text t, const char **where);
bool message_serve(message *m, scan_text t, const char **where);
/* Sets the share of the device that a server was started with, if the text has its command. */
void message_share(message *m, scan_text t);
bool message_device(message *m, scan_text t, const char **where);
/* `sure`: only texts that are unambiguous; otherwise only the others ("Killed"). */
bool message_host_memory(message *m, scan_text t, bool sure, const char **where);
/* Reads the limit on host memory that the text names, and what was used of it. */
void message_limits(message *m, scan_text t);
bool message_foreign(message *m, scan_text t, const char **where);
/* Recognizes those texts that other readers would claim. */
bool message_lookalike(message *m, scan_text t);
/* `shortages`: only lines that report one; otherwise also the end of a process that was killed. */
bool message_hint(message *m, scan_text t, bool shortages, const char **where);
/* Counts the dump of a BFC allocator in `raw`, the original text. */
void message_bfc(message *m, scan_text raw);

#endif
