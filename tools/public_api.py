# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers: what they declare, and the comment of each thing.

Not a C parser. It knows the shapes our headers use: functions marked HDO_API, structs with one member a line, enums,
function types, opaque types and #define. A comment stands above a declaration or a member, or behind it on its line.
Several declarations directly below one comment share it. A line `---- title ----` inside a comment opens a section.
"""
import os
import re
from dataclasses import dataclass, field

NAME = re.compile(r"\b(hdo_\w+)\s*\(")
SECTION = re.compile(r"^-{3,}\s*(.*?)\s*-{3,}$", re.S)


@dataclass
class Item:
    kind: str  # function, struct, enum, callback, opaque, macro
    name: str
    text: str  # the declaration as it stands, without comments
    comment: str
    header: str
    line: int
    section: str = ""
    members: list = field(default_factory=list)  # of structs and enums: (declaration, comment)


@dataclass
class Header:
    path: str
    intro: str
    items: list


def root():
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def stable_headers():
    """include/hdo/*.h; experimental/ and lab/ below it promise nothing."""
    folder = os.path.join(root(), "include", "hdo")
    return ["hdo/" + f for f in sorted(os.listdir(folder)) if f.endswith(".h")]


def plain(comment):
    """The words of a comment, paragraphs kept."""
    body = re.sub(r"^/\*+|\*+/$", "", comment.strip())
    lines = [re.sub(r"^\s*\*? ?", "", x) if k else x.strip() for k, x in enumerate(body.split("\n"))]
    text = "\n".join(x.rstrip() for x in lines).strip()
    return re.sub(r"^SPDX-License-Identifier: \S+( — )?\s*", "", text)


def tokens(text):
    """('comment' | 'code' | 'define' | 'blank', text, line) in order; code is cut after ; and after blocks."""
    at, line, out = 0, 1, []
    code, start, depth = "", 0, 0
    while at < len(text):
        if text.startswith("/*", at):
            end = text.index("*/", at) + 2
            if depth == 0 and code.strip() == "":
                out.append(("comment", text[at:end], line))
            else:
                code += text[at:end]
            line += text.count("\n", at, end)
            at = end
            continue
        if text[at] == "#" and depth == 0 and text[text.rfind("\n", 0, at) + 1:at].strip() == "":
            end = at
            while True:
                end = text.find("\n", end)
                if text[end - 1] != "\\":
                    break
                end += 1
            out.append(("define", text[at:end], line))
            line += text.count("\n", at, end)
            at = end
            continue
        c = text[at]
        if c == "\n":
            line += 1
            if depth == 0 and text[at + 1:at + 2] == "\n":
                out.append(("blank", "", line))
        if code.strip() == "" and not c.isspace():
            start, code = line, ""
        code += c
        depth += (c == "{") - (c == "}")
        if c == ";" and depth == 0:
            out.append(("code", code.strip(), start))
            code = ""
        at += 1
    return out


def members(block, ends):
    """[(declaration, comment)] of the lines between braces; `ends` ends one: ; or a comma."""
    out, above = [], ""
    pieces = re.findall(r"/\*.*?\*/|[^/]+|/", block, flags=re.S)
    pending = ""
    for p in pieces:
        if p.startswith("/*"):
            before = pending.split("\n")[-1].strip()
            if before == "" and out and "\n" not in pending and out[-1][1] == "":
                out[-1] = (out[-1][0], plain(p))  # behind the member, on its line
            elif before == "":
                above = plain(p)
            else:  # the last constant of an enum, without a comma
                out.append((" ".join(pending.split()), plain(p)))
            pending = ""
            continue
        pending += p
        while True:
            m = re.search(ends + r"(?![^(]*\))", pending)
            if m is None:
                break
            decl = " ".join(pending[:m.start()].split())
            if decl:
                out.append((decl, above))
            above = ""
            pending = pending[m.end():]
    last = " ".join(pending.split())
    if last:
        out.append((last, above))
    return out


def strip(code):
    return re.sub(r"/\*.*?\*/", "", code, flags=re.S)


def declared(code):
    """kind and name of a piece of code, or None."""
    bare = " ".join(strip(code).split())
    if bare.startswith(("extern \"C\"", "}")) or re.fullmatch(r"struct \w+;", bare):
        return None
    m = re.match(r"typedef (struct|enum|union)\s*(hdo_\w+)?\s*\{.*\}\s*(hdo_\w+)\s*;$", bare)
    if m:
        return ("enum" if m.group(1) == "enum" else "struct"), m.group(3)
    m = re.match(r"enum\s*(hdo_\w+)?\s*\{\s*(\w+)", bare)
    if m:
        return "enum", m.group(1) or m.group(2)
    m = re.match(r"struct\s+(hdo_\w+)\s*\{", bare)
    if m:
        return "struct", m.group(1)
    m = re.match(r"typedef struct hdo_\w+ (hdo_\w+)\s*;$", bare)
    if m:
        return "opaque", m.group(1)
    m = re.match(r"typedef .*\(\*(hdo_\w+)\)\s*\(", bare)
    if m:
        return "callback", m.group(1)
    m = re.match(r"typedef .*\b(hdo_\w+)\s*;$", bare)
    if m:
        return "opaque", m.group(1)
    m = NAME.search(bare)
    if m and bare.endswith(";"):
        return "function", m.group(1)
    return "unknown", bare[:60]


def read(header):
    path = os.path.join(root(), "include", header)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r'^#ifdef __cplusplus\n(extern "C" \{|\})\n#endif\n', "\n", text, flags=re.M)
    intro, above, section, items, group = "", "", "", [], False
    for kind, body, line in tokens(text):
        if kind == "comment":
            words = plain(body)
            title = SECTION.match(words.split("\n")[0]) or SECTION.match(" ".join(words.split()))
            if intro == "" and not items:
                intro = words
            elif title:
                section, above = title.group(1), "\n".join(words.split("\n")[1:]).strip()
            elif items and not group and same_line(text, body, line) and items[-1].comment == "":
                items[-1].comment = words
            elif items and same_line(text, body, line):
                items[-1].comment = (items[-1].comment + " " + words).strip() if items[-1].comment != words else words
            else:
                above = words
            group = False
            continue
        if kind == "blank":
            above, group = "", False
            continue
        if kind == "define":
            m = re.match(r"#\s*define\s+(HDO_\w+)(\([^)]*\))?[ \t]*(.*)", body, flags=re.S)
            if m and not m.group(1).endswith("_H") and m.group(3):
                behind = re.search(r"/\*(.*?)\*/\s*$", m.group(3), flags=re.S)
                value = strip(m.group(3)).strip()
                words = plain(behind.group(0)) if behind else above
                shown = "#define " + m.group(1) + (m.group(2) or "") + (" " + value if "\n" not in value else "")
                items.append(Item("macro", m.group(1), shown, words, header, line, section))
            continue
        what = declared(body)
        if what is None:
            continue
        bare = re.sub(r"[ \t]+\n", "\n", strip(body)).strip()
        item = Item(what[0], what[1], bare, above, header, line, section)
        if what[0] in ("struct", "enum") and "{" in body:
            first = body.index("{") + 1
            item.members = members(body[first:body.rindex("}")], "," if what[0] == "enum" else ";")
            opening = re.match(r"[ \t]*(/\*.*?\*/)[ \t]*\n", body[first:], flags=re.S)
            if opening and item.comment == "":
                item.comment = plain(opening.group(1))
        items.append(item)
        group = True
    return Header(header, intro, items)


def same_line(text, comment, line):
    """Does the comment stand behind code on its line?"""
    first = text.split("\n")[line - 1]
    return first.split("/*")[0].strip() != ""


def everything():
    return [read(h) for h in stable_headers()]


def functions():
    return sorted({i.name for h in everything() for i in h.items if i.kind == "function"})
