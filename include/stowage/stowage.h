/* Stowage: fits programs into the memory there is. Includes every public header but those for
 * backend authors. */
#ifndef STOWAGE_H
#define STOWAGE_H

#include <stowage/array.h>
#include <stowage/batches.h>
#include <stowage/device.h>
#include <stowage/events.h>
#include <stowage/heap.h>
#include <stowage/log.h>
#include <stowage/recording.h>
#include <stowage/size.h>
#include <stowage/status.h>
#include <stowage/tag.h>
#include <stowage/text.h>
#include <stowage/trace.h>
#include <stowage/values.h>
#include <stowage/version.h>
#include <stowage/watch.h>

#endif
