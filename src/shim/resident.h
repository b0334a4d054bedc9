/* Resident: keeps the pages that kernels use next in vram, by the plans of src/residency.
 *
 * Begins when a page has to be on the host for the first time. From then on every launch is shown
 * to the engine before it goes; where the engine asks for an exchange, the launching thread closes
 * the gate, lets the device come to rest, and changes what is behind the program's addresses. A
 * thread of our own copies pages ahead beside kernels.
 *
 * What keeps results right:
 *   - An address is remapped only with the gate closed and all streams of the program at rest.
 *   - A page leaves vram only if its fingerprint equals that of its host copy, else it is copied
 *     then. A copy ahead is made of a snapshot, and the fingerprint is the snapshot's.
 *   - A copy in begins only when every launch that named the page has ended, and is made again if a
 *     launch names it before the page is exchanged.
 *   - Pages that were shared, exported or captured in a graph are not moved.
 *
 * All calls are made with pages_lock held, except where it says otherwise. */
#ifndef SHIM_RESIDENT_H
#define SHIM_RESIDENT_H

#include "shim/page_table.h"

/* A page of this class has to be on the host. Returns whether pages of its device are moved. */
bool resident_begin(page_class *class);
/* Returns whether pages of a device are moved. Needs no lock. */
bool resident_on(unsigned device);
/* The same of any device. */
bool resident_anywhere(void);

/* A token was mapped; its page may move from now on. */
void resident_add(token *t);
/* It is about to be unmapped, or must not move any more. Waits for copies of it. */
void resident_remove(token *t);

/* The program destroys a stream, or unloads functions. These take the lock. */
void resident_stream_destroyed(cu_stream stream);
void resident_functions_gone(void);
/* Nothing of ours is under way in any stream when it returns: a capture begins. Takes the lock. */
void resident_capture_begins(void);
/* A context ended (NULL: one that is not known). */
void resident_context_ended(unsigned device, cu_context context);

#endif
