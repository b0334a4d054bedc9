/* Report code: keeps the compiled report.py in the user's cache (base/cache.h), as
 * python-report-311.
 *
 * Compiling report.py takes a process 10 ms of CPU time and several MB of memory, at a moment when
 * it may be short of memory. Loading the compiled form takes less than 1 ms. The file holds a hash
 * of the script and of the interpreter's version and build, a hash of the code, and the code as
 * Python's marshal writes it. A file that belongs to another user, is damaged or has another hash
 * is ignored and replaced. */
#ifndef SHIM_HOST_REPORT_CODE_H
#define SHIM_HOST_REPORT_CODE_H

#include "shim/python.h"

extern const python_store report_code_store;

#endif
