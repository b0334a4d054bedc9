/* Explain message: the explanation of an error text alone. It is apart from explain.c because
 * told.c, which it calls, calls explain.c. */
#include "advise/told.h"

stow_status explain_message(explanation *x, const char *text, size_t count) {
  *x = (explanation){.from_message = true, .headline = BUFFER_INIT, .notes = BUFFER_INIT};
  message_read(&x->evidence.told, text, count);
  told_explain(x);
  return explanation_status(x);
}
