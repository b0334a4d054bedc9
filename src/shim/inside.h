/* Inside: runs inside.py in a Python process once it uses CUDA. The script reports what only Python
 * knows: optimizer steps, named ranges, out-of-memory errors and what was live. */
#ifndef SHIM_INSIDE_H
#define SHIM_INSIDE_H

/* Makes the main thread run inside.py soon. Called at each event, it runs the script at growing
 * intervals (a framework may be imported later), until everything is set up. */
void inside_schedule(void);

#endif
