#!/usr/bin/env python3
"""manpage.py PAGE…: man pages as Markdown, for the docs site.

Knows the macros that man/ uses and fails on any other, so that no page loses text silently. References such as stowage-run(1) become
links if the page is in man/.

    pages = named(paths)            # {"stow_heap_close.3": "stow_heap_open.3", …}: a page describes one name or several
    text = convert(path, pages)
"""
import html
import pathlib
import re
import sys

FONTS = {"B": ("<b>", "</b>"), "I": ("<i>", "</i>"), "R": ("", "")}  # tags: marks of Markdown do not nest without spaces
ESCAPES = {r"\-": "-", r"\e": "\\", r"\(bu": "•", r"\(+-": "±", r"\&": "", r"\ ": " ", r"\(em": "—", r"\(aq": "'", r"\(co": "©", r"\|": "", r"\(->": "→",
           r"\(mu": "×", r"\(<=": "≤", r"\(>=": "≥", r"\(tm": "™", r"\(de": "°", r"\(*m": "µ", r"\(ha": "^", r"\(ti": "~", r"\(dq": '"', r"\(ga": "`", r"\(lq": "“",
           r"\(rq": "”"}
FONT_MACROS = {"B", "I", "BR", "RB", "BI", "IB", "IR", "RI"}


class Unknown(Exception):
    pass


def words(line):
    """The arguments of a macro: quoted or not."""
    out = []
    for quoted, plain in re.findall(r'"((?:[^"]|"")*)"|(\S+)', line):
        out.append(quoted.replace('""', '"') if quoted or not plain else plain)
    return out


def plain(text, path):
    """Text without escapes; \\f changes fonts and is handled before."""
    def one(match):
        if match.group() not in ESCAPES:
            raise Unknown(f"{path}: unknown escape {match.group()}")
        return ESCAPES[match.group()]
    return re.sub(r"\\\(..|\\.", one, text)


def styled(text, font, path, verbatim):
    text = plain(text, path)
    if verbatim:
        return text
    lead, rest = re.match(r"(\s*)(.*?)$", text, re.S).groups()
    body, tail = re.match(r"(.*?)(\s*)$", rest, re.S).groups()
    if not body:
        return text
    start, end = FONTS[font]
    # Escapes what Markdown or HTML would take for markup.
    body = re.sub(r"([\\`*_\[\]{}#|])", r"\\\1", html.escape(body, quote=False))
    return f"{lead}{start}{body}{end}{tail}"


def inline(text, font, path, verbatim=False):
    """Text with \\fB … \\fR."""
    out, parts = "", re.split(r"\\f([BIRP])", text)
    out += styled(parts[0], font, path, verbatim)
    for name, part in zip(parts[1::2], parts[2::2]):
        font = "R" if name == "P" else name
        out += styled(part, font, path, verbatim)
    return out


def fonts(macro, rest, path, verbatim):
    given = words(rest)
    if len(macro) == 1:
        return inline(" ".join(given), macro, path, verbatim)
    return "".join(inline(word, macro[i % 2], path, verbatim) for i, word in enumerate(given))


def link(text, pages):
    """<b>stowage-run</b>(1) becomes a link."""
    def one(match):
        name, section = match.group(1).replace("\\", ""), match.group(2)
        page = f"{name}.{section}"
        return f"[{match.group(1)}({section})]({pages[page]}.md)" if page in pages else match.group()
    return re.sub(r"<b>([\w\\-]+)</b>\((\d)\)", one, text)


class Page:
    def __init__(self, path, pages):
        self.path, self.pages = path, pages
        self.out = []  # blocks of Markdown
        self.paragraph = []
        self.indent = 0  # spaces, inside the text of a .TP or .RS
        self.outer = []  # indents to return to at .RE
        self.tag = None  # after .TP: the next line is the tag
        self.verbatim = None  # lines between .nf and .fi

    def flush(self):
        if self.paragraph:
            text = link(" ".join(self.paragraph), self.pages).replace(" \\\n ", "\\\n")
            self.out.append(" " * self.indent + text)
            self.paragraph = []

    def text(self, line):
        if self.verbatim is not None:
            self.verbatim.append(line)
        elif self.tag is not None:
            self.definition(line)
        else:
            self.paragraph.append(line)

    def definition(self, line):
        """A tag starts a list item; its text follows, indented."""
        self.tag = None
        base = self.outer[-1] if self.outer else 0
        self.out.append(" " * base + f"- {link(line, self.pages)}  ")
        self.indent = base + 4

    def base(self):
        self.flush()
        self.indent = self.outer[-1] if self.outer else 0

    def macro(self, name, rest):
        if name == "TH":
            title, section = words(rest)[:2]
            self.out.append(f"# {plain(title, self.path).lower()}({section})")
        elif name in ("SH", "SS"):
            self.base()
            heading = plain(" ".join(words(rest)), self.path)
            self.out.append(f"{'##' if name == 'SH' else '###'} {heading.capitalize() if name == 'SH' else heading}")
        elif name == "PP":
            self.base()
        elif name == "TP":
            self.base()
            self.tag = ""
        elif name == "IP":
            self.base()
            given, base = words(rest), self.indent
            if given and plain(given[0], self.path) == "•":
                self.out.append(" " * base + "- ")
            elif given:
                self.out.append(" " * base + f"- <b>{inline(given[0], 'R', self.path)}</b>  ")
            self.indent = base + 4  # without a mark: one more paragraph of the item
        elif name == "RS":
            self.flush()
            self.outer.append(self.indent)
        elif name == "RE":
            self.flush()
            self.outer.pop()
            self.indent = self.outer[-1] if self.outer else 0
        elif name == "nf":
            self.flush()
            self.verbatim = []
        elif name == "fi":
            lines = [" " * self.indent + line for line in ["```text", *self.verbatim, "```"]]
            self.verbatim = None
            self.out.append("\n".join(lines))
        elif name == "br":
            self.paragraph.append("\\\n")
        else:
            raise Unknown(f"{self.path}: unknown macro .{name}")

    def line(self, line):
        if line.startswith('.\\"'):
            return
        found = re.match(r"\.(\w+)\s*(.*)$", line)
        if found and found.group(1) in FONT_MACROS:
            self.text(fonts(found.group(1), found.group(2), self.path, self.verbatim is not None))
        elif found and self.verbatim is not None and found.group(1) == "PP":
            self.verbatim.append("")
        elif found:
            self.macro(*found.groups())
        else:
            self.text(inline(line, "R", self.path, self.verbatim is not None))


def named(paths):
    """The page of each name, from the NAME sections."""
    out = {}
    for path in paths:
        section = re.search(r"^\.SH NAME\n(.*?)^\.SH", path.read_text(encoding="utf-8"), re.M | re.S)
        names = section.group(1).replace("\\-", "-").partition(" - ")[0]
        for name in re.split(r"[,\s]+", names.strip()):
            out[f"{name}{path.suffix}"] = path.name
    return out


def convert(path, pages):
    """Returns the page as Markdown."""
    page = Page(path, pages)
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        page.line(line)
    page.flush()
    text = "\n\n".join(block.rstrip("\n") for block in page.out)
    # The text of a list item follows its tag directly.
    text = re.sub(r"(^ *- .*\S)  \n\n", r"\1  \n", text, flags=re.M)
    return re.sub(r"(^ *- )\n\n +", r"\1", text, flags=re.M) + "\n"


def main():
    paths = [pathlib.Path(path) for path in sys.argv[1:]]
    pages = named(paths)
    for path in paths:
        print(convert(path, pages))


if __name__ == "__main__":
    main()
