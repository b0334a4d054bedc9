#!/usr/bin/env python3
"""sources.py ROOT OUT: puts the pages of the docs site into OUT, from the same files that the repository shows.

README.md becomes index.md; docs/*.md keep their names; man pages are converted (manpage.py). Links between files become links between
pages. A file that is no page (an example, a header) is copied to files/. Prints each dead link as FILE: LINK and ends with 1 if there is
any. Needs the standard library only; mkdocs builds the site from OUT (tools/site/build.sh).
"""
import pathlib
import re
import shutil
import sys

import manpage

TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    text = re.sub(r"`([^`]*)`", r"\1", heading.strip())
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def outside_code(text):
    """The lines with a flag: False in fenced code."""
    fence = None
    for line in text.split("\n"):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark.group(1)
            yield line, False
        elif fence is not None:
            if mark and mark.group(1).startswith(fence):
                fence = None
            yield line, False
        else:
            yield line, True


def anchors(text):
    found, seen = set(), {}
    for line, plain in outside_code(text):
        heading = re.match(r"#{1,6}\s+(.*)$", line) if plain else None
        if heading:
            name = slug(heading.group(1))
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def links(text):
    """The targets of links and images outside code."""
    for line, plain in outside_code(text):
        if plain:
            for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
                yield match.group(2)


class Site:
    def __init__(self, root, out):
        self.root, self.out = pathlib.Path(root).resolve(), pathlib.Path(out)
        self.pages = {self.root / name: to for name, to in TOP.items()}
        self.pages.update({path: path.name for path in sorted((self.root / "docs").glob("*.md"))})
        self.man = sorted((self.root / "man").glob("man*/*.[1-8]"))
        self.dead = []

    def target(self, page, link):
        """The place of a link in the site, or None if it is dead. page: the file it is in."""
        address, _, anchor = link.partition("#")
        path = (page.parent / address).resolve() if address else page
        if not path.exists() or self.root not in [path, *path.parents]:
            return None
        if path in self.pages:
            if anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
                return None
            return self.pages[path] + (f"#{anchor}" if anchor else "") if address else f"#{anchor}"
        name = path.relative_to(self.root)
        if name.parts[:2] == ("docs", "images"):
            return str(name.relative_to("docs"))
        return self.folder(path) if path.is_dir() else self.copy(path)

    def copy(self, path):
        name = pathlib.Path("files") / path.relative_to(self.root)
        (self.out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, self.out / name)
        return str(name)

    def folder(self, path):
        """A page that lists the files of a folder."""
        name = "-".join(["folder", *path.relative_to(self.root).parts]) + ".md"
        files = [one for one in sorted(path.iterdir()) if one.is_file()]
        lines = [f"# {path.relative_to(self.root)}", "", *[f"- [{one.name}]({self.copy(one)})" for one in files], ""]
        (self.out / name).write_text("\n".join(lines), encoding="utf-8")
        return name

    def page(self, path, to):
        out = []
        text = path.read_text(encoding="utf-8")
        for line, plain in outside_code(text):
            if plain:
                parts = re.split(r"(`[^`]*`)", line)  # a link may have code in its text, so code is hidden meanwhile
                hidden = "".join(part if i % 2 == 0 else f"\0{i}\0" for i, part in enumerate(parts))
                hidden = LINK.sub(lambda match: self.link(path, match), hidden)
                line = re.sub(r"\0(\d+)\0", lambda match: parts[int(match.group(1))], hidden)
            out.append(line)
        (self.out / to).write_text("\n".join(out), encoding="utf-8")

    def link(self, page, match):
        text, link = match.groups()
        if re.match(r"[a-z]+:", link):
            return match.group()
        to = self.target(page, link)
        if to is None:
            self.dead.append(f"{page.relative_to(self.root)}: {link}")
            return match.group()
        return f"{text}({to})"

    def manual(self):
        names = manpage.named(self.man)
        (self.out / "man").mkdir(exist_ok=True)
        index = ["# Manual pages", "", "The same pages as `man stowage`, `man stowage-run` and so on.", ""]
        for section, title in (("1", "Commands"), ("7", "Conventions"), ("3", "Functions")):
            index += [f"## {title}", ""]
            for path in (path for path in self.man if path.suffix == f".{section}"):
                text = manpage.convert(path, names)
                (self.out / "man" / f"{path.name}.md").write_text(text, encoding="utf-8")
                about = re.search(r"## Name\n\n(.*)", text).group(1).partition(" - ")[2]
                index.append(f"- [{path.stem}({section})]({path.name}.md): {about}")
                self.dead += [f"{path.relative_to(self.root)}: {name}" for name in self.lost(path, names)]
            index.append("")
        (self.out / "man" / "index.md").write_text("\n".join(index), encoding="utf-8")

    @staticmethod
    def lost(path, names):
        """References to pages of ours that do not exist."""
        for name, section in re.findall(r"^\.BR (stow[\w\\-]*) \((\d)\)", path.read_text(encoding="utf-8"), re.M):
            if f"{name}.{section}".replace("\\", "") not in names:
                yield f"{name}({section})".replace("\\", "")

    def build(self):
        self.out.mkdir(parents=True, exist_ok=True)
        for path, to in self.pages.items():
            self.page(path, to)
        images = self.root / "docs" / "images"
        if images.is_dir():
            shutil.copytree(images, self.out / "images", dirs_exist_ok=True)
        self.manual()
        return self.dead


def main():
    dead = Site(sys.argv[1], sys.argv[2]).build()
    for line in dead:
        print(f"dead link: {line}")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
