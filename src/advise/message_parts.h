/* The readers that message.c calls in order. Each fills `m` and returns true if it recognizes the
 * text; `where` receives the position of the first failure. None calls another. */
#ifndef ADVISE_MESSAGE_PARTS_H
#define ADVISE_MESSAGE_PARTS_H

#include "advise/message.h"

bool message_torch(message *m, scan_text t, const char **where);
bool message_xla(message *m, scan_text t, const char **where);
bool message_serve(message *m, scan_text t, const char **where);
bool message_device(message *m, scan_text t, const char **where);
/* `sure`: only texts that are unambiguous; otherwise only the others ("Killed"). */
bool message_host_memory(message *m, scan_text t, bool sure, const char **where);
bool message_foreign(message *m, scan_text t);
/* Recognizes those texts that other readers would claim. */
bool message_lookalike(message *m, scan_text t);
bool message_hint(message *m, scan_text t, const char **where);
/* Counts the dump of a BFC allocator in `raw`, the original text. */
void message_bfc(message *m, scan_text raw);

#endif
