#!/usr/bin/env python3
"""Checks that the documents agree with the tree: check_documents.py <root of the source>

- The target of each relative link exists, and so does its #anchor.
- A code block after `<!-- same as FILE -->` equals that file. A block after `<!-- part of FILE -->` equals successive
  lines of it. C++ and CMake blocks of the README and C++ blocks of docs/ need one of these comments: code that users
  copy has been compiled.
- Folders in the README's codemap exist, and the codemap has every folder of the tree.
- Paths in code (`halo/transfer.hpp`, <aloni/halo/transfer.hpp>, scripts/demo.sh) exist.
Prints each finding as file:line. Fails if there is any.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
findings = []

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE_SPAN = re.compile(r"`([^`]+)`")
FENCE = re.compile(r"^```(\w*)\s*$")
SAME_AS = re.compile(r"^<!-- (same as|part of) (\S+) -->$")
FILE_NAME = re.compile(r"(?<![\w/.~$-])((?:[\w-]+/)+[\w.-]+\.(?:hpp|cpp|cmake|sh|py|md|txt|svg|json|patch))(?![\w/])")
BUILT = ("build/",)  # exists only after a build
SOURCE_FOLDER_FILES = ("CMakeLists.txt", "*.hpp", "*.cpp", "*.sh", "*.md")


def find(document, line, text):
    findings.append(f"{document.relative_to(root)}:{line}: {text}")


def anchors(document):
    """The anchors that GitHub generates from headings."""
    names, fenced = set(), False
    for line in document.read_text().splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (heading := re.match(r"#+ (.*)", line)):
            text = re.sub(r"[^\w\- ]", "", heading[1].replace("`", "").lower())
            names.add(text.strip().replace(" ", "-"))
    return names


def check_link(document, number, target):
    if re.match(r"[a-z][a-z+.-]*:", target):
        return
    path, _, anchor = target.partition("#")
    file = (document.parent / path) if path else document
    if not file.exists():
        find(document, number, f"link to {target}: no such file")
    elif anchor and anchor not in anchors(file):
        find(document, number, f"link to {target}: no such heading")


def check_names(document, number, text):
    text = re.sub(r"<aloni/([^>…]+)>", r"\1", text)
    for name in FILE_NAME.findall(text):
        if name.startswith(BUILT) or "aloni/core/config.hpp" in name or name in ("core/config.hpp", "core/version.hpp"):
            continue
        if not (root / name).exists() and not (document.parent / name).exists():
            find(document, number, f"{name} does not exist")


def check_block(document, number, language, lines, promised):
    if promised is None:
        if (document.parent, language) in ((root, "cpp"), (root, "cmake"), (root / "docs", "cpp")):
            find(document, number, f"a {language} block without `<!-- same as FILE -->` is never compiled")
        return
    how, name = promised
    file = root / name
    if not file.exists():
        find(document, number, f"{how} {name}: no such file")
        return
    there = file.read_text().splitlines()
    if how == "same as":
        agree = there == lines
    else:
        agree = any(there[i:i + len(lines)] == lines for i in range(len(there) - len(lines) + 1))
    if not agree:
        find(document, number, f"the code block differs from {name}")


def check_document(document):
    block, language, start, promised = None, "", 0, None
    for number, line in enumerate(document.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if block is not None:
            if fence:
                check_block(document, start, language, block, promised)
                block, promised = None, None
            else:
                block.append(line)
                check_names(document, number, line)
        elif fence:
            block, language, start = [], fence[1], number
        elif same := SAME_AS.match(line):
            promised, start = same.groups(), number
        else:
            if promised is not None and line.strip():
                find(document, number, f"no code block after `<!-- {' '.join(promised)} -->`")
                promised = None
            for span in CODE_SPAN.findall(line):
                check_names(document, number, span)
            for target in LINK.findall(CODE_SPAN.sub("", line)):
                check_link(document, number, target)
    if block is not None:
        find(document, start, "the code block has no end")
    if promised is not None:
        find(document, start, f"no code block after `<!-- {' '.join(promised)} -->`")


def check_codemap(readme):
    named, inside = set(), False
    for number, line in enumerate(readme.read_text().splitlines(), 1):
        if line.startswith("#"):
            inside = line == "## Codemap"
        elif inside and line.startswith("|"):
            for folder in CODE_SPAN.findall(line.split("|")[1]):
                named.add(folder.rstrip("/"))
                if not folder.endswith("/") or not (root / folder).is_dir():
                    find(readme, number, f"{folder} is not a folder")
    if not named:
        find(readme, 1, "there is no codemap")
    for folder in sorted(root.iterdir()):
        if folder.name.startswith(".") or folder.name == "build" or not folder.is_dir() or folder.name in named:
            continue
        if any(next(folder.glob(pattern), None) for pattern in SOURCE_FOLDER_FILES):
            find(readme, 1, f"{folder.name}/ is missing from the codemap")


def documents():
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if parts[0] != "build" and not any(part.startswith(".") or part == "node_modules" for part in parts):
            yield path


checked = list(documents())
for path in checked:
    check_document(path)
check_codemap(root / "README.md")
print("\n".join(findings) or f"{len(checked)} documents agree with the tree")
sys.exit(1 if findings else 0)
