/* Host line: what the line that a Python program stood at says it was doing. Called by host alone.
 */
#ifndef ADVISE_HOST_LINE_H
#define ADVISE_HOST_LINE_H

#include "run/host_record.h"

/* The program's own innermost line, "train.py:7 in load"; "" where it is not known. */
void host_line_place(const host_record *r, char *place, size_t size);

/* The same line for a sentence, "line 7 of train.py"; "" where it is not known. */
void host_line_where(const host_record *r, char *out, size_t size);

/* The same of any frame. */
void host_line_say(const host_frame *f, char *out, size_t size);
/* Is the frame the program's own, not a library's? */
bool host_line_is_own(const host_frame *f);

/* The text of that line; NULL if it is not known. */
const char *host_line_own(const host_record *r);

/* What the line assigns to: "x" of "x = f(y)", "xx, yy" of "xx, yy = f(y)", "df[…]"; "" for none.
 */
void host_line_target(const char *source, char *out, size_t size);

/* Does the line give a new value to a name, or return one, and not change one in place? */
bool host_line_target_is_new(const char *source);

/* Does the line call a function of that name? A method's may begin with its dot. */
bool host_line_calls(const char *source, const char *name);

/* Does the line have that name as a whole word? */
bool host_line_has(const char *source, const char *name);

/* The function it is in that copies arrays, or that reads files whole; NULL if it is in none. */
const char *host_line_copies(const host_record *r);
const char *host_line_reads(const host_record *r);

typedef enum host_making {
  HOST_MAKES_NOTHING,
  HOST_MAKES_BY_CALL,
  HOST_MAKES_BY_OPERATOR
} host_making;

/* Does the program's own line make a value of that array's size from it, as "x = x / 255" and
 * "np.log(x)" do, and "x /= 255" and "x.T @ x" do not? */
host_making host_line_makes_another(const host_record *r, const char *name);

/* Does it join something to a text or bytes of that name, as "body = body + part" does? */
bool host_line_joins(const host_record *r, const char *name);

#endif
