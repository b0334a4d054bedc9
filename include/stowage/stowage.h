/* Stowage. Includes every public header except those for backend authors. */
#ifndef STOWAGE_H
#define STOWAGE_H

#include <stowage/array.h>
#include <stowage/arrow.h>
#include <stowage/batches.h>
#include <stowage/device.h>
#include <stowage/events.h>
#include <stowage/explain.h>
#include <stowage/heap.h>
#include <stowage/inspect.h>
#include <stowage/log.h>
#include <stowage/model.h>
#include <stowage/recording.h>
#include <stowage/replay.h>
#include <stowage/report.h>
#include <stowage/shrink.h>
#include <stowage/size.h>
#include <stowage/status.h>
#include <stowage/tag.h>
#include <stowage/text.h>
#include <stowage/trace.h>
#include <stowage/tune.h>
#include <stowage/values.h>
#include <stowage/version.h>
#include <stowage/watch.h>

#endif
