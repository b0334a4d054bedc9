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
  return at >= line.end || *at == '*' || *at == '/';
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

/* Returns the line without its comment. A '#' in a string begins none. */
static scan_text without_comment(scan_text line) {
  char quote = '\0';
  for (const char *at = line.at; at < line.end; at++) {
    if (quote != '\0' && *at == '\\')
      at++;
    else if (quote != '\0')
      quote = *at == quote ? '\0' : quote;
    else if (*at == '"' || *at == '\'')
      quote = *at;
    else if (*at == '#')
      line.end = at;
  }
  while (line.end > line.at && isspace((unsigned char)line.end[-1])) line.end--;
  return line;
}

#define CARRIERS_MOST 8

/* Names whose values come from what is kept. */
typedef struct carriers {
  scan_text names[CARRIERS_MOST];
  size_t count;
} carriers;

static bool is_name(scan_text a, scan_text b) {
  return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0;
}

/* Returns whether the text has one of the names as a whole. */
static bool carries(scan_text t, const carriers *c) {
  for (const char *at = t.at; at < t.end; at++) {
    if ((!scan_is_word(*at)) || (at > t.at && (scan_is_word(at[-1]) || at[-1] == '.'))) continue;
    for (size_t i = 0; i < c->count; i++) {
      scan_text found = {at, at + (c->names[i].end - c->names[i].at)};
      if (found.end <= t.end && is_name(found, c->names[i]) &&
          (found.end == t.end || !scan_is_word(*found.end)))
        return true;
    }
  }
  return false;
}

static bool add_carrier(carriers *c, scan_text name) {
  for (size_t i = 0; i < c->count; i++)
    if (is_name(c->names[i], name)) return false;
  if (name.at == name.end || c->count == CARRIERS_MOST) return false;
  c->names[c->count++] = name;
  return true;
}

/* Returns the name of what a line keeps its values in: of a list, of a dictionary or of a sum. */
static scan_text keeper(scan_text line) {
  const char *end = NULL;
  if (scan_find_at(line, ".append(", &end) == NULL && scan_find_at(line, " += ", &end) == NULL &&
      scan_find_at(line, " = ", &end) == NULL)
    return (scan_text){line.at, line.at};
  if (end > line.at && end[-1] == ']')
    while (end > line.at && *end != '[') end--;
  return name_before(line, end);
}

/* Returns whether a line runs a backward pass on a carrier, or gives one to a function that may.
 * Adds the names that get a carrier's value. function: the lines of its function before it. */
static bool trains_on(carriers *c, scan_text text, scan_text function, scan_text line) {
  static const char *const runs[] = {"backward(", "autograd.grad(", "learn(", "train(",
                                     "train_",    "optimize(",      ".step(", "update_"};
  const char *at, *start = NULL;
  scan_text value = line;
  if (!carries(line, c) || scan_starts(line, "def ")) return false;
  if (scan_has_any(line, runs, sizeof runs / sizeof *runs)) return true;
  if (drops_graph(line)) return false;
  /* A function that runs its own backward pass returns a number for people. */
  if (scan_starts(line, "return "))
    return !scan_has(function, "backward(") && scan_has(text, "backward(");
  if ((at = scan_find_at(line, " in ", &start)) != NULL && scan_starts(line, "for ")) {
    value.at = at;
    if (carries(value, c)) add_carrier(c, name_before(line, start));
    return false;
  }
  if ((at = scan_find_at(line, " += ", &start)) == NULL) at = scan_find_at(line, " = ", &start);
  value.at = at != NULL ? at : line.end;
  if (carries(value, c)) add_carrier(c, name_before(line, start));
  return false;
}

/* Returns whether the lines show a backward pass on what a line keeps: then its graph is needed. */
static bool is_trained(scan_text text, scan_text kept) {
  carriers c = {.count = 0};
  if (!add_carrier(&c, keeper(kept))) return false;
  for (size_t before = 0; before < c.count;) { /* a loop may use a name above its assignment */
    before = c.count;
    scan_text rest = text, line, function = {text.at, text.at};
    while (scan_next_line(&rest, &line)) {
      if (line.end - line.at > LINE_MOST) line.end = line.at + LINE_MOST;
      scan_text code = without_comment(code_of(line));
      if (scan_starts(code, "def ")) function.at = code.at;
      function.end = line.at > function.at ? line.at : function.at;
      if (trains_on(&c, text, function, code)) return true;
    }
  }
  return false;
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
    scan_text code = without_comment(code_of(line));
    if (scan_starts(code, "def ")) model = scan_has(code, "def forward");
    context_kept kept = kept_in(text, code);
    /* Inside of a model a list of features belongs to one pass. */
    bool forward =
        (!own && model) || (own && (scan_has(frame, "in forward") || scan_has(frame, "-packages")));
    if (kept != KEPT_NONE && !forward && !is_trained(text, code)) {
      c->kept = kept;
      scan_copy(c->kept_code, sizeof c->kept_code, code, code.at, "");
      if (own)
        write_frame(c, frame);
      else if (strncmp(c->code, c->kept_code, strlen(c->kept_code)) == 0)
        snprintf(c->kept_line, sizeof c->kept_line, "%s", c->line);
      return;
    }
    frame = (scan_text){line.end, line.end}; /* only the line after a frame is its code */
  }
}
