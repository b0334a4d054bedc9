/* stowage completion: the bash and zsh completion files, written from the verb table at build time,
 * so that they can never fall behind it. */
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "cli/verb.h"

static bool shown(const verb *which) {
  return !(which->flags & VERB_HIDDEN);
}

/* What a shell offers for a value of that name. */
typedef enum value_kind { VALUE_TEXT, VALUE_FILE, VALUE_FOLDER, VALUE_WORDS } value_kind;

static value_kind kind_of(const char *value) {
  if (strchr(value, '|') != NULL) return VALUE_WORDS;
  if (strncmp(value, "FILE", 4) == 0) return VALUE_FILE;
  return strncmp(value, "FOLDER", 6) == 0 ? VALUE_FOLDER : VALUE_TEXT;
}

/* "csv|json" as "csv json". */
static void words(buffer *b, const char *value) {
  for (; *value != '\0'; value++) buffer_char(b, *value == '|' ? ' ' : *value);
}

/* ---- bash ---- */

static void bash_values(buffer *b, const verb *which) {
  for (const verb_option *o = which->options; o != NULL && o->name != NULL; o++) {
    if (o->value == NULL) continue;
    buffer_printf(b, "    %s:--%s) ", which->name, o->name);
    switch (kind_of(o->value)) {
    case VALUE_FILE: buffer_text(b, "COMPREPLY=($(compgen -f -- \"$word\"))"); break;
    case VALUE_FOLDER: buffer_text(b, "COMPREPLY=($(compgen -d -- \"$word\"))"); break;
    case VALUE_WORDS:
      buffer_text(b, "COMPREPLY=($(compgen -W \"");
      words(b, o->value);
      buffer_text(b, "\" -- \"$word\"))");
      break;
    case VALUE_TEXT: buffer_text(b, "COMPREPLY=()"); break;
    }
    buffer_text(b, "; return ;;\n");
  }
}

static void bash_file(buffer *b, const verb *const *all) {
  buffer_text(b, "# Generated from the table of verbs: stowage completion bash\n"
                 "_stowage() {\n"
                 "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}"
                 " verb=${COMP_WORDS[1]} options=\n"
                 "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                 "    COMPREPLY=($(compgen -W \"");
  for (size_t i = 0; all[i] != NULL; i++)
    if (shown(all[i])) buffer_printf(b, "%s ", all[i]->name);
  buffer_text(b, "help --help --version\" -- \"$word\"))\n"
                 "    return\n"
                 "  fi\n"
                 "  case $verb:$before in\n");
  for (size_t i = 0; all[i] != NULL; i++)
    if (shown(all[i])) bash_values(b, all[i]);
  buffer_text(b, "    help:*) COMPREPLY=($(compgen -W \"");
  for (size_t i = 0; all[i] != NULL; i++)
    if (shown(all[i])) buffer_printf(b, "%s%s", i > 0 ? " " : "", all[i]->name);
  buffer_text(b, "\" -- \"$word\")); return ;;\n  esac\n  case $verb in\n");
  for (size_t i = 0; all[i] != NULL; i++) {
    if (!shown(all[i])) continue;
    buffer_printf(b, "    %s) options=\"", all[i]->name);
    for (const verb_option *o = all[i]->options; o != NULL && o->name != NULL; o++)
      buffer_printf(b, "--%s ", o->name);
    buffer_text(b, "--help\" ;;\n");
  }
  buffer_text(b, "  esac\n"
                 "  case $word in\n"
                 "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
                 "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
                 "  esac\n"
                 "}\n"
                 "complete -o filenames -F _stowage stowage\n");
}

/* ---- zsh ---- */

/* Text inside '…' and inside the [ ] or : fields of _arguments. */
static void zsh_text(buffer *b, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '\'')
      buffer_text(b, "'\\''");
    else if (strchr("[]:\\", *text) != NULL)
      buffer_printf(b, "\\%c", *text);
    else
      buffer_char(b, *text);
  }
}

static void zsh_option(buffer *b, const verb_option *o) {
  buffer_printf(b, "        '--%s%s[", o->name, o->value != NULL ? "=" : "");
  zsh_text(b, o->help);
  buffer_char(b, ']');
  if (o->value != NULL) {
    buffer_char(b, ':');
    zsh_text(b, kind_of(o->value) == VALUE_WORDS ? o->name : o->value);
    buffer_char(b, ':');
    switch (kind_of(o->value)) {
    case VALUE_FILE: buffer_text(b, "_files"); break;
    case VALUE_FOLDER: buffer_text(b, "_files -/"); break;
    case VALUE_WORDS:
      buffer_char(b, '(');
      words(b, o->value);
      buffer_char(b, ')');
      break;
    case VALUE_TEXT: buffer_char(b, ' '); break;
    }
  }
  buffer_text(b, "' \\\n");
}

static void zsh_file(buffer *b, const verb *const *all) {
  buffer_text(b, "#compdef stowage\n"
                 "# Generated from the table of verbs: stowage completion zsh\n"
                 "_stowage() {\n"
                 "  local -a verbs\n"
                 "  verbs=(\n");
  for (size_t i = 0; all[i] != NULL; i++) {
    if (!shown(all[i])) continue;
    buffer_printf(b, "    '%s:", all[i]->name);
    zsh_text(b, all[i]->summary);
    buffer_text(b, "'\n");
  }
  buffer_text(b, "    'help:shows how a verb is used'\n"
                 "  )\n"
                 "  if (( CURRENT == 2 )); then\n"
                 "    _describe -t verbs verb verbs\n"
                 "    return\n"
                 "  fi\n"
                 "  local verb=$words[2]\n"
                 "  shift words\n"
                 "  (( CURRENT-- ))\n"
                 "  case $verb in\n"
                 "    help) _describe -t verbs verb verbs ;;\n");
  for (size_t i = 0; all[i] != NULL; i++) {
    if (!shown(all[i])) continue;
    buffer_printf(b, "    %s)\n      _arguments \\\n", all[i]->name);
    for (const verb_option *o = all[i]->options; o != NULL && o->name != NULL; o++)
      zsh_option(b, o);
    buffer_text(b, "        '--help[this text]'");
    if (all[i]->operands != NULL) buffer_text(b, " \\\n        '*:file:_files'");
    buffer_text(b, "\n      ;;\n");
  }
  buffer_text(b, "  esac\n"
                 "}\n"
                 "_stowage \"$@\"\n");
}

static int run(verb_call *call) {
  const char *shell = call->operands[0];
  buffer b = BUFFER_INIT;
  if (strcmp(shell, "bash") == 0)
    bash_file(&b, call->all);
  else if (strcmp(shell, "zsh") == 0)
    zsh_file(&b, call->all);
  else
    return verb_usage(call, "no completion for \"%.40s\"; there is bash and zsh", shell);
  stow_status status = output_buffer(&b);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

const verb verb_completion = {
    .name = "completion",
    .summary = "write the completion file of a shell",
    .example = "stowage completion bash > ~/.local/share/bash-completion/completions/stowage",
    .operands = "bash|zsh",
    .operands_min = 1,
    .operands_max = 1,
    .flags = VERB_HIDDEN,
    .run = run,
};
