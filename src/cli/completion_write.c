/* Completion write: writes the completion files of bash, zsh and fish from the table of verbs, so
 * they are always up to date. The build writes them and `stowage completion` prints them. */
#include <stdio.h>
#include <string.h>

#include "cli/completion.h"
#include "cli/verb.h"

static bool shown(const verb *which) {
  return !(which->flags & VERB_HIDDEN);
}

/* Suggestions for values that are free text: by the option's name, or by what its value is called.
 */
static const struct suggestion {
  const char *name;
  const char *words;
} suggestions[] = {
    {"gpu", "T4|L4|L40S|A10|A100-40G|A100-80G|H100|H200|B200|V100|3090|4090|5090"},
    {"device", "0|1|sim:16G|sim:16G,host=32G"},
    {"policy", "torch_default|torch_expandable|bfc|cuda_async|stowage|planned"},
    {"spill", "auto|off|8G|16G|32G|64G"},
    {"ram-limit", "2G|4G|8G|16G|32G|64G"},
    {"TYPE", "float16|bfloat16|float32|float64|int8|int16|int32|int64"},
    {"stacks", "auto|off"},
    {"SIZE", "4G|8G|12G|16G|24G|40G|80G"},
};

/* Returns the words to offer for the option's value, "a|b", or NULL. */
static const char *words_of(const verb_option *o) {
  if (strchr(o->value, '|') != NULL) return o->value;
  for (size_t i = 0; i < sizeof suggestions / sizeof suggestions[0]; i++)
    if (strcmp(o->name, suggestions[i].name) == 0 || strcmp(o->value, suggestions[i].name) == 0)
      return suggestions[i].words;
  return NULL;
}

/* What a shell offers for an option's value. */
typedef enum value_kind { VALUE_TEXT, VALUE_FILE, VALUE_FOLDER, VALUE_WORDS } value_kind;

static value_kind kind_of(const verb_option *o) {
  if (strncmp(o->value, "FILE", 4) == 0) return VALUE_FILE;
  if (strncmp(o->value, "FOLDER", 6) == 0) return VALUE_FOLDER;
  return words_of(o) != NULL ? VALUE_WORDS : VALUE_TEXT;
}

/* Writes "csv|json" as "csv json". */
static void words(buffer *b, const char *value) {
  for (; *value != '\0'; value++) buffer_char(b, *value == '|' ? ' ' : *value);
}

/* ---- bash ---- */

static void bash_values(buffer *b, const verb *which) {
  for (const verb_option *o = which->options; o != NULL && o->name != NULL; o++) {
    if (o->value == NULL) continue;
    buffer_printf(b, "    %s:--%s) ", which->name, o->name);
    switch (kind_of(o)) {
    case VALUE_FILE: buffer_text(b, "COMPREPLY=($(compgen -f -- \"$word\"))"); break;
    case VALUE_FOLDER: buffer_text(b, "COMPREPLY=($(compgen -d -- \"$word\"))"); break;
    case VALUE_WORDS:
      buffer_text(b, "COMPREPLY=($(compgen -W \"");
      words(b, words_of(o));
      buffer_text(b, "\" -- \"$word\"))");
      break;
    case VALUE_TEXT: buffer_text(b, "COMPREPLY=()"); break;
    }
    buffer_text(b, "; return ;;\n");
  }
}

/* Sets `program` to the index of the first word of the user's command, or leaves it empty: a verb
 * that runs a program has its own options only before that word. */
static void bash_program(buffer *b, const verb *const *all) {
  for (size_t i = 0; all[i] != NULL; i++) {
    if (!shown(all[i]) || !(all[i]->flags & VERB_FIRST_WORD)) continue;
    buffer_printf(b, "  if [ \"$verb\" = %s ]; then\n", all[i]->name);
    buffer_text(b, "    at=2\n"
                   "    while [ \"$at\" -le \"$COMP_CWORD\" ]; do\n"
                   "      case ${COMP_WORDS[at]} in\n"
                   "        --) [ \"$at\" -eq \"$COMP_CWORD\" ] || program=$((at + 1)); break ;;\n"
                   "        ");
    const char *between = "";
    for (const verb_option *o = all[i]->options; o != NULL && o->name != NULL; o++) {
      if (o->value == NULL) continue;
      buffer_printf(b, "%s--%s", between, o->name);
      between = "|";
    }
    buffer_text(
        b, ") if [ \"${COMP_WORDS[at+1]}\" = = ]; then at=$((at + 3)); else at=$((at + 2)); fi ;;\n"
           "        -*) at=$((at + 1)) ;;\n"
           "        *) program=$at; break ;;\n"
           "      esac\n"
           "    done\n"
           "  fi\n");
  }
}

void completion_bash(buffer *b, const verb *const *all) {
  buffer_text(b, "# " COMPLETION_MARK " bash\n"
                 "_stowage() {\n"
                 "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}"
                 " verb=${COMP_WORDS[1]} options= operands= at= program=\n"
                 "  # bash makes three words of --option=value.\n"
                 "  if [ \"$word\" = = ]; then word=\n"
                 "  elif [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                 "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                 "    COMPREPLY=($(compgen -W \"");
  for (size_t i = 0; all[i] != NULL; i++)
    if (shown(all[i])) buffer_printf(b, "%s ", all[i]->name);
  buffer_text(b, "help --help --version\" -- \"$word\"))\n"
                 "    return\n"
                 "  fi\n");
  bash_program(b, all);
  buffer_text(b,
              "  if [ -n \"$program\" ]; then\n"
              "    if [ \"$program\" -eq \"$COMP_CWORD\" ]; then\n"
              "      COMPREPLY=($(compgen -c -- \"$word\"; compgen -f -- \"$word\"))\n"
              "    elif declare -F _comp_command_offset > /dev/null; then _comp_command_offset "
              "\"$program\"\n"
              "    elif declare -F _command_offset > /dev/null; then _command_offset \"$program\"\n"
              "    else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
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
  buffer_text(b, "  esac\n");
  for (size_t i = 0; all[i] != NULL; i++) {
    if (all[i]->operand_words == NULL) continue;
    buffer_printf(b, "  [ \"$verb\" = %s ] && operands=\"", all[i]->name);
    words(b, all[i]->operand_words);
    buffer_text(b, "\"\n");
  }
  buffer_text(b, "  case $word in\n"
                 "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
                 "    *) if [ -n \"$operands\" ]; then COMPREPLY=($(compgen -W \"$operands\" -- "
                 "\"$word\"))\n"
                 "      else COMPREPLY=($(compgen -f -- \"$word\")); fi ;;\n"
                 "  esac\n"
                 "}\n"
                 "complete -o filenames -F _stowage stowage\n");
}

/* ---- zsh ---- */

/* Writes text inside '…' and inside the [ ] or : fields of _arguments. */
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
    zsh_text(b, strchr(o->value, '|') != NULL ? o->name : o->value);
    buffer_char(b, ':');
    switch (kind_of(o)) {
    case VALUE_FILE: buffer_text(b, "_files"); break;
    case VALUE_FOLDER: buffer_text(b, "_files -/"); break;
    case VALUE_WORDS:
      buffer_char(b, '(');
      for (const char *at = words_of(o); *at != '\0'; at++)
        buffer_printf(b, *at == ':' ? "\\%c" : "%c", *at == '|' ? ' ' : *at);
      buffer_char(b, ')');
      break;
    case VALUE_TEXT: buffer_char(b, ' '); break;
    }
  }
  buffer_text(b, "' \\\n");
}

void completion_zsh(buffer *b, const verb *const *all) {
  buffer_text(b, "#compdef stowage\n"
                 "# " COMPLETION_MARK " zsh\n"
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
    bool program = all[i]->flags & VERB_FIRST_WORD;
    buffer_printf(b, "    %s)\n      _arguments%s \\\n", all[i]->name, program ? " -S" : "");
    for (const verb_option *o = all[i]->options; o != NULL && o->name != NULL; o++)
      zsh_option(b, o);
    buffer_text(b, "        '--help[this text]'");
    if (program)
      buffer_text(
          b, " \\\n        '(-)1:command:_command_names -e' \\\n        '*::argument:_normal'");
    else if (all[i]->operand_words != NULL) {
      buffer_printf(b, " \\\n        '1:%s:(", all[i]->name);
      words(b, all[i]->operand_words);
      buffer_text(b, ")'");
    } else if (all[i]->operands != NULL)
      buffer_text(b, " \\\n        '*:file:_files'");
    buffer_text(b, "\n      ;;\n");
  }
  buffer_text(b, "  esac\n"
                 "}\n"
                 "_stowage \"$@\"\n");
}

/* ---- fish ---- */

/* Writes text inside '…' of fish. */
static void fish_text(buffer *b, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '\'' || *text == '\\') buffer_char(b, '\\');
    buffer_char(b, *text);
  }
}

static void fish_option(buffer *b, const verb *which, const verb_option *o) {
  bool program = which->flags & VERB_FIRST_WORD;
  buffer_printf(b, "complete -c stowage -n '__fish_seen_subcommand_from %s%s' -l %s", which->name,
                program ? "; and not __stowage_program" : "", o->name);
  if (o->value != NULL) {
    switch (kind_of(o)) {
    case VALUE_FILE: buffer_text(b, " -r -F"); break;
    case VALUE_FOLDER: buffer_text(b, " -x -a '(__fish_complete_directories)'"); break;
    case VALUE_WORDS:
      buffer_text(b, " -x -a '");
      words(b, words_of(o));
      buffer_char(b, '\'');
      break;
    case VALUE_TEXT: buffer_text(b, " -x"); break;
    }
  }
  buffer_text(b, " -d '");
  fish_text(b, o->help);
  buffer_text(b, "'\n");
}

/* __stowage_program succeeds once the user's own command has begun; __stowage_complete completes
 * that command. */
static void fish_program(buffer *b, const verb *which) {
  buffer_text(b, "function __stowage_words\n"
                 "    set -l words (commandline -opc)\n"
                 "    set -e words[1..2]\n"
                 "    while set -q words[1]\n"
                 "        switch $words[1]\n"
                 "            case --\n"
                 "                set -e words[1]\n"
                 "                printf '%s\\n' -- $words\n"
                 "                return 0\n"
                 "            case");
  for (const verb_option *o = which->options; o != NULL && o->name != NULL; o++)
    if (o->value != NULL) buffer_printf(b, " --%s", o->name);
  buffer_text(b, "\n"
                 "                set -q words[2]; or return 1\n"
                 "                set -e words[1..2]\n"
                 "            case '-*'\n"
                 "                set -e words[1]\n"
                 "            case '*'\n"
                 "                printf '%s\\n' -- $words\n"
                 "                return 0\n"
                 "        end\n"
                 "    end\n"
                 "    return 2\n"
                 "end\n"
                 "function __stowage_program\n"
                 "    __stowage_words > /dev/null\n"
                 "end\n"
                 "function __stowage_complete\n"
                 "    set -l words (__stowage_words)\n"
                 "    test $status -eq 1; and return\n"
                 "    set -e words[1]\n"
                 "    set -l now (commandline -ct)\n"
                 "    if not set -q words[1]; and string match -q -- '-*' $now\n"
                 "        return\n"
                 "    end\n"
                 "    complete --do-complete=(string join ' ' -- (string escape -- $words) $now)\n"
                 "    set -q words[1]; or __fish_complete_path $now\n"
                 "end\n");
  buffer_printf(b,
                "complete -c stowage -n '__fish_seen_subcommand_from %s' -x -a "
                "'(__stowage_complete)'\n",
                which->name);
}

void completion_fish(buffer *b, const verb *const *all) {
  buffer_text(b, "# " COMPLETION_MARK " fish\n"
                 "complete -c stowage -f\n");
  for (size_t i = 0; all[i] != NULL; i++) {
    const verb *which = all[i];
    if (!shown(which)) continue;
    buffer_printf(b, "complete -c stowage -n __fish_use_subcommand -a %s -d '", which->name);
    fish_text(b, which->summary);
    buffer_text(b, "'\n");
    if (which->flags & VERB_FIRST_WORD) fish_program(b, which);
    for (const verb_option *o = which->options; o != NULL && o->name != NULL; o++)
      fish_option(b, which, o);
    if (which->operand_words != NULL) {
      buffer_printf(b, "complete -c stowage -n '__fish_seen_subcommand_from %s' -x -a '",
                    which->name);
      words(b, which->operand_words);
      buffer_text(b, "'\n");
    } else if (which->operands != NULL && !(which->flags & VERB_FIRST_WORD))
      buffer_printf(b, "complete -c stowage -n '__fish_seen_subcommand_from %s' -F\n", which->name);
  }
  buffer_text(b,
              "complete -c stowage -n __fish_use_subcommand -a help -d 'show how a verb is used'\n"
              "complete -c stowage -n __fish_use_subcommand -l version -d 'show the version'\n"
              "complete -c stowage -n 'not __stowage_program' -l help -d 'show help'\n"
              "complete -c stowage -n '__fish_seen_subcommand_from help' -x -a '");
  for (size_t i = 0; all[i] != NULL; i++)
    if (shown(all[i])) buffer_printf(b, "%s%s", i > 0 ? " " : "", all[i]->name);
  buffer_text(b, "'\n");
}
