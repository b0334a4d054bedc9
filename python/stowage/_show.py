"""Text and HTML for the results of the package: tables and small bars.

Called by `__repr__` and `_repr_html_` of the results. The HTML is self-contained: no script, no style sheet, and colours for light and
dark notebooks.
"""

from __future__ import annotations

import contextlib
import html
import re
import sys
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from ._library import shown, shown_lines

_BAR = "display:inline-block;height:0.8em;width:12em;border:1px solid #8888;border-radius:2px;vertical-align:middle"


def escape(text: object) -> str:
    """Text as HTML."""
    return html.escape(shown_lines(text))


def text_table(rows: "Sequence[Sequence[str]]", right: "Sequence[int]" = (), indent: int = 2) -> str:
    """Formats rows in columns.

    >>> print(text_table([("name", "bytes"), ("x", "8 B")], right=[1]))
      name  bytes
      x       8 B
    """
    if not rows:
        return ""
    rows = [[shown(cell) for cell in row] for row in rows]  # cells may contain names from outside
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def html_table(rows: "Sequence[Sequence[str]]", right: "Sequence[int]" = ()) -> str:
    """Returns the table as HTML; cells are text, the first row is the head."""
    out = ['<table style="border-collapse:collapse;margin:0.3em 0">']
    for number, row in enumerate(rows):
        tag = "th" if number == 0 else "td"
        out.append("<tr>")
        for i, cell in enumerate(row):
            side = "right" if i in right else "left"
            out.append(f'<{tag} style="text-align:{side};padding:0.1em 0.8em 0.1em 0">{escape(shown(cell))}</{tag}>')
        out.append("</tr>")
    out.append("</table>")
    return "".join(out)


def text_bar(parts: "Sequence[int]", total: int, width: int = 24) -> str:
    """A bar of characters: the first part as #, the second as +, the rest as dots.

    >>> text_bar([6, 3], 12, 8)
    '[####++..]'
    """
    marks, filled = "", 0
    for part, mark in zip(parts, "#+="):
        filled += part
        end = min(width, round(width * filled / total)) if total else 0
        marks += mark * (end - len(marks))
    return "[" + marks.ljust(width, ".") + "]"


def html_bar(parts: "Sequence[Tuple[int, str]]", total: int) -> str:
    """A bar of colours: (bytes, colour) each."""
    inside = "".join(
        f'<span style="display:inline-block;height:100%;vertical-align:top;background:{colour};'
        f'width:{min(100.0, 100.0 * part / total) if total else 0:.2f}%"></span>'
        for part, colour in parts
    )
    return f'<span style="{_BAR};white-space:nowrap;overflow:hidden;line-height:0">{inside}</span>'


def html_block(title: str, *parts: str) -> str:
    """Returns a heading with the parts below it, as HTML."""
    return f'<div style="font-family:monospace;margin:0.3em 0"><b>{escape(title)}</b>{"".join(parts)}</div>'


def html_text(text: str) -> str:
    """Returns the text as preformatted HTML."""
    return f'<pre style="margin:0.2em 0;{_PRE}">{escape(text)}</pre>'


#: Notebooks' style sheets set a font without columns for some of these, and break lines within words.
_PRE = "font-family:monospace;white-space:pre-wrap;word-break:normal;overflow-wrap:break-word"

_CARD = (
    "border:1px solid #8888;border-left:4px solid #d9822b;border-radius:4px;padding:0.6em 0.9em;margin:0.4em 0;max-width:60em;"
    "white-space:normal;word-break:normal;overflow-wrap:normal;hyphens:none;line-height:1.4"
)


def _html_code(text: str) -> str:
    """Escapes text for a page. Text between backquotes becomes code.

    >>> _html_code("put `x < 1` here")
    'put <code>x &lt; 1</code> here'
    """
    parts = [escape(part) for part in shown(text).split("`")]
    if len(parts) % 2 == 0:  # one without a partner
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def html_card(headline: str, changes: "Sequence[Tuple[str, str]]", details: str) -> str:
    """A card: a sentence, a list of changes with what each saves, and details that open on a click. Lines break between words only."""
    parts = [f'<div style="{_CARD}"><b>{_html_code(headline)}</b>']
    if changes:
        items = "".join(
            f'<li style="margin:0.2em 0">{_html_code(change)}{f": <b>{escape(shown(saves))}</b>" if saves else ""}</li>' for change, saves in changes
        )
        parts.append(f'<ol style="margin:0.4em 0 0.4em 1.4em;padding:0">{items}</ol>')
    if details:
        text = f'<pre style="margin:0.4em 0;{_PRE}">{escape(details)}</pre>'
        parts.append(f'<details><summary style="cursor:pointer">Numbers and evidence</summary>{text}</details>')
    return "".join(parts) + "</div>"


def shell() -> Any:
    """Returns the IPython this runs in, or None."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None


#: Files of cells by their names, for an IPython that does not keep such a list itself (before 8, as Colab's is).
_cell_files: "Dict[str, int]" = {}


def note_cell(text: "str | None", number: int) -> None:
    """Remembers the number of a cell that is about to run, or has already run."""
    compiler = getattr(shell(), "compile", None)
    name = getattr(compiler, "get_code_name", None)
    if text and name is not None and not hasattr(compiler, "_filename_map"):
        with contextlib.suppress(Exception):
            _cell_files[name(text, text, number)] = number


def name_cells(text: str) -> str:
    """Names cells by their number, as In[3]: a notebook compiles each under the name of a file that does not exist."""
    names: "Dict[str, int]" = getattr(getattr(shell(), "compile", None), "_filename_map", None) or _cell_files
    if not names:
        return text
    return re.sub("|".join(map(re.escape, names)), lambda found: f"In[{names[found.group()]}]", text)


@contextlib.contextmanager
def inner_cell() -> "Iterator[None]":
    """Runs a part of a cell as a cell, as a magic does. IPython 9 gives the part the number of the next cell; it gets this cell's."""
    names = getattr(getattr(shell(), "compile", None), "_filename_map", None)
    if not isinstance(names, dict) or not names:
        yield
        return
    latest = max(names.values())
    try:
        yield
    finally:
        for name, number in names.items():
            names[name] = min(number, latest)


def in_notebook() -> bool:
    """Returns whether this is a kernel that shows HTML."""
    here = shell()
    return here is not None and hasattr(here, "kernel")


def show(answer: Any) -> None:
    """Shows a result immediately: rich in a notebook, as text elsewhere."""
    if shell() is not None and in_notebook():
        from IPython.display import display  # type: ignore[import-not-found]

        display(answer)
    else:
        print(answer)


def join_lines(lines: "List[str]") -> str:
    return shown_lines("\n".join(line for line in lines if line))
