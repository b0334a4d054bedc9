/* Kept graphs: finds a line of the user's own loop that keeps a tensor with the graph that made it.
 *
 *   feats.append(model(x))      outputs += [net(x)]       a result of every pass
 *   losses.append(loss)         total_loss += loss        the loss of every pass
 *
 * The graph holds what the whole forward pass saved, so every pass adds that much. Lines of a
 * traceback, of a notebook's cell and of pasted source count. A line that takes the number or drops
 * the graph (.item(), .detach(), …) keeps nothing. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/context_parts.h"

#define LINE_MOST 400 /* characters of one line that are examined */

/* Returns whether the line drops the graph. ".cpu()" alone does not. */
static bool drops_graph(scan_text line) {
  static const char *const words[] = {
      ".detach(",       ".item(",  ".numpy(",   ".tolist(", "float(", ".data",
      "inference_mode", "no_grad", ".backward", ".argmax(", ".eq("};
  return scan_has_any(line, words, sizeof words / sizeof *words);
}

/* Returns the name before `end`: letters, digits, '_' and '.'. */
static scan_text name_before(scan_text t, const char *end) {
  while (end > t.at && end[-1] == ' ') end--;
  const char *at = end;
  while (at > t.at && (scan_is_word(at[-1]) || at[-1] == '.')) at--;
  return (scan_text){at, end};
}

/* Returns the name that begins at `at`. */
static scan_text name_at(scan_text t, const char *at) {
  scan_text name = {at, at};
  while (name.end < t.end && (scan_is_word(*name.end) || *name.end == '.')) name.end++;
  return name;
}

/* Returns whether a name is that of a whole model. A layer or a block is called in the same way
 * inside of a model, and so are its own parts ("self.encoder"). */
static bool is_model(scan_text name) {
  static const char *const models[] = {"model", "Model", "net", "Net", "network"};
  static const char *const wholes[] = {"encoder", "bert", "vgg", "backbone", "extractor", "clip"};
  /* Methods that build no graph by themselves, and parts of a model. */
  static const char *const parts[] = {"layer",     "block",    "conv",   "head",
                                      "norm",      "pool",     "module", ".encode(",
                                      ".generate", ".predict", ".step",  ".transform"};
  bool part = scan_starts(name, "self.");
  name.end++; /* the bracket of the call, which the caller has seen */
  return (scan_has_any(name, models, sizeof models / sizeof *models) ||
          (!part && scan_has_any(name, wholes, sizeof wholes / sizeof *wholes))) &&
         !scan_has_any(name, parts, sizeof parts / sizeof *parts);
}

/* Returns whether a name is that of a loss: "loss", "loss_g", "self.loss". */
static bool is_loss(scan_text name) {
  for (const char *at = name.at; at < name.end; at++)
    if (*at == '.') name.at = at + 1;
  return scan_starts(name, "loss") || scan_has(name, "_loss");
}

/* Returns whether the rest of the line after an operand is its end: no further calls on it. A
 * factor ("* x.size(0)", "/ n") keeps the graph. */
static bool ends_there(scan_text line, const char *at, char close) {
  while (at < line.end && *at == ' ') at++;
  if (close != '\0') return at < line.end && *at == close;
  return at >= line.end || *at == '#' || *at == '*' || *at == '/';
}

/* Returns whether the text assigns the result of a model to the name: "out = model(x)". */
static bool is_result(scan_text text, scan_text name) {
  char words[48];
  const char *at, *start = NULL;
  int length = snprintf(words, sizeof words, "%.*s = ", (int)(name.end - name.at), name.at);
  if (length >= (int)sizeof words || name.end - name.at < 1) return false;
  for (; (at = scan_find_at(text, words, &start)) != NULL; text.at = at) {
    if (start > text.at && (scan_is_word(start[-1]) || start[-1] == '.')) continue;
    scan_text line = {at, scan_line(text, at).end}, called = name_at(line, at);
    if (called.end < line.end && *called.end == '(' && is_model(called) && !drops_graph(line))
      return true;
  }
  return false;
}

/* Recognizes what is put into a list: `at` is after ".append(" or "+= [". */
static context_kept element(scan_text text, scan_text line, const char *at, char close) {
  scan_text name = name_at(line, at);
  if (name.at == name.end) return KEPT_NONE;
  if (name.end < line.end && *name.end == '(') return is_model(name) ? KEPT_RESULT : KEPT_NONE;
  if (!ends_there(line, name.end, close)) return KEPT_NONE;
  return is_loss(name) ? KEPT_LOSS : is_result(text, name) ? KEPT_RESULT : KEPT_NONE;
}

/* Recognizes "total_loss += loss" and "total_loss = total_loss + loss": a sum over the passes, by
 * its name. "loss += penalty" adds the parts of one loss. `left` is before the sign, `after` behind
 * it. */
static context_kept sum(scan_text line, scan_text left, const char *after) {
  static const char *const sums[] = {"total", "running", "epoch", "sum", "train_loss", "val_loss",
                                     "avg",   "mean",    "accum", "cum", "test_loss",  "eval_loss"};
  scan_text right = name_at(line, after);
  if (left.at == left.end || right.at == right.end) return KEPT_NONE;
  if (!scan_has_any(left, sums, sizeof sums / sizeof *sums)) return KEPT_NONE;
  bool call = right.end < line.end && *right.end == '(' && line.end[-1] == ')';
  if (call) return is_loss(right) || scan_has(right, "criterion") ? KEPT_SUM : KEPT_NONE;
  return is_loss(right) && ends_there(line, right.end, '\0') ? KEPT_SUM : KEPT_NONE;
}

static context_kept kept_in(scan_text text, scan_text line) {
  const char *start = NULL, *at;
  while (line.end > line.at && isspace((unsigned char)line.end[-1])) line.end--;
  if (drops_graph(line)) return KEPT_NONE;
  if ((at = scan_find_at(line, ".append(", &start)) != NULL) return element(text, line, at, ')');
  if ((at = scan_find_at(line, " += [", &start)) != NULL) return element(text, line, at, ']');
  if ((at = scan_find_at(line, " += ", &start)) != NULL)
    return sum(line, name_before(line, start), at);
  if ((at = scan_find_at(line, " = ", &start)) == NULL) return KEPT_NONE;
  scan_text left = name_before(line, start), first = name_at(line, at);
  bool same = left.at < left.end && left.end - left.at == first.end - first.at &&
              memcmp(left.at, first.at, (size_t)(left.end - left.at)) == 0;
  const char *plus = same ? scan_find((scan_text){first.end, line.end}, "+ ") : NULL;
  return plus != NULL && plus - first.end == 3 ? sum(line, left, plus) : KEPT_NONE;
}

/* Returns whether the sum is the loss that backward() is called on: then it has one pass's parts.
 */
static bool is_trained(scan_text text, scan_text line) {
  const char *plus = NULL;
  if (scan_find_at(line, " += ", &plus) == NULL && scan_find_at(line, " = ", &plus) == NULL)
    return false;
  char call[80];
  scan_text name = name_before(line, plus);
  int length = snprintf(call, sizeof call, "%.*s.backward(",
                        (int)(name.end - name.at < 60 ? name.end - name.at : 0), name.at);
  return length > (int)strlen(".backward(") && scan_has(text, call);
}

/* Removes what a notebook writes before a line of code: "----> 6 ", "6 ". */
static scan_text code_of(scan_text line) {
  const char *at = line.at;
  while (at < line.end && (*at == '-' || *at == ' ' || *at == '>')) at++;
  const char *digits = at;
  while (at < line.end && isdigit((unsigned char)*at)) at++;
  if (at == digits || at >= line.end || *at != ' ') at = digits;
  while (at < line.end && (*at == ' ' || *at == '\t')) at++;
  return (scan_text){at, line.end};
}

/* Writes the place of the frame: "train.py:157 in evaluate". */
static void write_frame(context *c, scan_text frame) {
  const char *path = scan_find(frame, "File \"");
  uint64_t number = scan_number_after(frame, "\", line ");
  if (path == NULL || number > 100000000) return;
  const char *base = path;
  for (const char *at = path; at < frame.end && *at != '"'; at++)
    if (*at == '/' || *at == '\\') base = at + 1;
  char name[100], function[50] = "";
  scan_copy(name, sizeof name, frame, base, "\"");
  const char *in = scan_find(frame, ", in ");
  if (in != NULL) scan_copy(function, sizeof function, frame, in, "(");
  snprintf(c->kept_line, sizeof c->kept_line, "%.90s:%u%s%.45s", name, (unsigned)number,
           function[0] != '\0' ? " in " : "", function);
}

void context_read_kept(context *c, scan_text text) {
  scan_text rest = text, line, frame = {text.at, text.at};
  bool model = false; /* in the source of a model's forward */
  /* The program already says that it builds no graph. */
  if (context_any(c, CONTEXT_BIT(NO_GRAD))) return;
  while (scan_next_line(&rest, &line)) {
    if (line.end - line.at > LINE_MOST) line.end = line.at + LINE_MOST;
    bool own = frame.at < frame.end;
    if (scan_has(line, "File \"")) {
      frame = line;
      continue;
    }
    scan_text code = code_of(line);
    if (scan_starts(code, "def ")) model = scan_has(code, "def forward");
    context_kept kept = kept_in(text, code);
    /* Inside of a model a list of features belongs to one pass. */
    bool forward =
        (!own && model) || (own && (scan_has(frame, "in forward") || scan_has(frame, "-packages")));
    if (kept != KEPT_NONE && !forward && !is_trained(text, code)) {
      c->kept = kept;
      scan_copy(c->kept_code, sizeof c->kept_code, code, code.at, "#");
      for (size_t n = strlen(c->kept_code); n > 0 && c->kept_code[n - 1] == ' ';)
        c->kept_code[--n] = '\0';
      if (own)
        write_frame(c, frame);
      else if (strncmp(c->code, c->kept_code, strlen(c->kept_code)) == 0)
        snprintf(c->kept_line, sizeof c->kept_line, "%s", c->line);
      return;
    }
    frame = (scan_text){line.end, line.end}; /* only the line after a frame is its code */
  }
}
