/* Host line: what the current line of a Python program shows about what it was doing. Called only
 * by host.
 */
#ifndef ADVISE_HOST_LINE_H
#define ADVISE_HOST_LINE_H

#include "run/host_record.h"

/* Returns the program's own innermost line, "train.py:7 in load"; "" if unknown. */
void host_line_place(const host_record *r, char *place, size_t size);

/* Returns the same line for a sentence, "line 7 of train.py"; "" if unknown. */
void host_line_where(const host_record *r, char *out, size_t size);

/* The same of any frame. */
void host_line_say(const host_frame *f, char *out, size_t size);
/* Returns whether the frame is the program's own, not a library's. */
bool host_line_is_own(const host_frame *f);

/* Returns the text of that line; NULL if unknown. */
const char *host_line_own(const host_record *r);

/* Returns what the line assigns to: "x" of "x = f(y)", "xx, yy" of "xx, yy = f(y)", "df[…]"; "" for
 * none.
 */
void host_line_target(const char *source, char *out, size_t size);

/* The same; for a line that returns a value, what the line that called its function assigns to. */
void host_line_result(const host_record *r, const char *source, char *out, size_t size);

/* Returns whether the line assigns a new value to a name, or returns one, rather than change one in
 * place. */
bool host_line_target_is_new(const char *source);

/* Returns whether what the line assigns is a number, as "x = f(y).sum()" and "x += f(y)" do, or
 * nothing: what it makes is temporary. */
bool host_line_makes_temporaries(const char *source);

/* Returns whether the line calls a function of that name. A method's name may begin with its dot.
 */
bool host_line_calls(const char *source, const char *name);

/* Returns whether the line contains that name as a whole word. */
bool host_line_has(const char *source, const char *name);

/* Returns the function it is in that copies arrays, or that reads whole files; NULL if there is
 * none. */
const char *host_line_copies(const host_record *r);
const char *host_line_reads(const host_record *r);

typedef enum host_making {
  HOST_MAKES_NOTHING,
  HOST_MAKES_BY_CALL,
  HOST_MAKES_BY_OPERATOR
} host_making;

/* Returns whether the program's own line makes a value of that array's size from it. "x = x / 255"
 * and "np.log(x)" do; "x /= 255" and "x.T @ x" do not. */
host_making host_line_makes_another(const host_record *r, const char *name);

/* Returns whether it joins something to a text or bytes of that name, as "body = body + part" does.
 */
bool host_line_joins(const host_record *r, const char *name);

#endif
