/* Help: prints help texts from the table of verbs. */
#include <stdio.h>
#include <string.h>

#include <stowage/version.h>

#include "cli/output.h"
#include "cli/verb.h"

void help_all(void) {
  output_printf("stowage %s fits programs into the memory that is available.\n\n", stow_version());
  output_printf("%s  stowage VERB [OPTIONS]\n\n", output_bold("usage:"));
  output_printf("%s\n", output_bold("verbs:"));
  for (size_t i = 0; verb_at(i) != NULL; i++)
    if (!(verb_at(i)->flags & VERB_HIDDEN))
      output_printf("  %-10s %s\n", verb_at(i)->name, verb_at(i)->summary);
  output_printf("\n\"stowage VERB --help\" shows an example and the options of one;"
                " see also \"man stowage\".\n");
}

/* Prints "  --device NAME   help", with the help in one column for the whole table. */
static void print_option(const char *name, const char *value, const char *help, int width) {
  char left[96];
  snprintf(left, sizeof left, "--%s%s%s", name, value != NULL ? " " : "",
           value != NULL ? value : "");
  output_printf("  %-*s  %s\n", width, left, help);
}

static int options_width(const verb *which) {
  size_t width = strlen("--help");
  for (const verb_option *o = which->options; o != NULL && o->name != NULL; o++) {
    size_t length = 2 + strlen(o->name) + (o->value != NULL ? 1 + strlen(o->value) : 0);
    if (length > width) width = length;
  }
  return (int)width;
}

static void print_lines(const char *lines) {
  while (*lines != '\0') {
    size_t length = strcspn(lines, "\n");
    output_printf("  %.*s\n", (int)length, lines);
    lines += length + (lines[length] == '\n');
  }
}

void help_verb(const verb *which) {
  output_printf("stowage %s: %s\n\n", which->name, which->summary);
  output_printf("%s\n", output_bold("example:"));
  print_lines(which->example);
  output_printf("\n%s  stowage %s [OPTIONS]%s%s\n\n", output_bold("usage:"), which->name,
                which->operands != NULL ? " " : "", which->operands != NULL ? which->operands : "");
  output_printf("%s\n", output_bold("options:"));
  int width = options_width(which);
  for (const verb_option *o = which->options; o != NULL && o->name != NULL; o++)
    print_option(o->name, o->value, o->help, width);
  print_option("help", NULL, "show this help", width);
  output_printf("\n%s\n", output_bold("exit codes:"));
  if (which->flags & VERB_FIRST_WORD)
    print_lines("the exit code of the command, or\n"
                "2    the command line is wrong");
  else
    print_lines("0    it worked\n"
                "1    it failed, or the answer is no\n"
                "2    the command line or the input is wrong");
  if (which->exits != NULL) print_lines(which->exits);
}
