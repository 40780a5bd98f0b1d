#!/usr/bin/env python3
"""Checks that the documents agree with the tree: check_documents.py <root of the source>

- The target of each relative link exists, and so does its #anchor.
- A code block after `<!-- same as FILE -->` equals that file. A block after `<!-- part of FILE -->` equals successive
  lines of it. C++ and CMake blocks of the README and C++ blocks of docs/ need one of these comments: code that users
  copy has been compiled.
- Folders in the README's codemap exist, and the codemap has every folder of the tree.
- Paths in code (`halo/transfer.hpp`, <aloni/halo/transfer.hpp>, scripts/demo.sh) exist.
- Lines have at most 120 columns, but for rows of tables and lines of one word.
- All rows of a table have as many cells as its headings. A cell has at most 80 characters; a link counts by its text.
- The figures between `<!-- figures: PROGRAM NAME -->` and `<!-- end of figures -->` are those of PROGRAM:
  bench/report.py from docs/performance.json, scripts/guarantees.py from docs/guarantees.json, scripts/scaling.py from
  docs/scaling.json, scripts/ptxas_table.py from docs/ptxas.json. docs/performance.md, docs/guarantees.md,
  docs/scaling.md and docs/device_kernels.md have every section of their programs. No kernel of docs/ptxas.json spills.
Prints each finding as file:line. Fails if there is any.
"""
import json
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
findings = []

sys.dont_write_bytecode = True
sys.path[:0] = [str(root / "bench"), str(root / "scripts")]
import guarantees
import ptxas_table
import scaling
from figures import tables
from figures.sections import SECTIONS

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE_SPAN = re.compile(r"`([^`]+)`")
FENCE = re.compile(r"^```(\w*)\s*$")
SAME_AS = re.compile(r"^<!-- (same as|part of) (\S+) -->$")
FILE_NAME = re.compile(r"(?<![\w/.~$-])((?:[\w-]+/)+[\w.-]+\.(?:hpp|cpp|cmake|sh|py|md|txt|svg|json|patch))(?![\w/])")
MARKER = re.compile(r"^<!-- (figures: |end of figures\b)")
FIGURES = (  # the program's marks and tables, its data, the command that writes the tables
    (tables, "docs/performance.json", "bench/report.py --tables"),
    (guarantees, "docs/guarantees.json", "scripts/guarantees.py"),
    (scaling, "docs/scaling.json", "scripts/scaling.py --tables"),
    (ptxas_table, "docs/ptxas.json", "scripts/ptxas_table.py --tables"),
)
LONGEST_CELL = 80
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


def cells_of(line):
    """The visible texts of a table row's cells; a pipe behind a backslash separates none."""
    line = re.sub(r"!?\[([^\]]*)\]\([^)\s]+\)", r"\1", line.strip())
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.removeprefix("|").removesuffix("|"))]


def check_row(document, number, line, columns):
    """`columns`: cells of the headings, None for the headings themselves. Returns the number of cells."""
    cells = cells_of(line)
    if columns is not None and len(cells) != columns:
        find(document, number, f"a row of {len(cells)} cells in a table of {columns} columns")
    for cell in cells:
        if len(cell) > LONGEST_CELL:
            find(document, number, f"a cell of {len(cell)} characters, more than {LONGEST_CELL}: {cell[:40]}…")
    return len(cells) if columns is None else columns


def check_figures(document, data):
    text = document.read_text()
    marked = 0
    for program, file, command in FIGURES:
        for match in program.MARKED.finditer(text):
            marked += 2
            line = text.count("\n", 0, match.start()) + 1
            try:
                expected = program.tables_of(data[file], match[2])
            except KeyError as error:
                find(document, line, f"figures: {error.args[0]}")
                continue
            if match[3] != expected:
                find(document, line, f"figures of {match[2]} differ from {file}; run {command}")
    if marked != sum(bool(MARKER.match(line)) for line in text.splitlines()):
        find(document, 1, "`<!-- figures: PROGRAM NAME -->` and `<!-- end of figures -->` must come in pairs")


def check_sections(document, marked, sections):
    present = {match[2] for match in marked.finditer(document.read_text())}
    for name in sections:
        if name not in present:
            find(document, 1, f"no figures of {name}: `<!-- figures: … {name} -->` is missing")


def check_document(document):
    block, language, start, promised, columns = None, "", 0, None, None
    for number, line in enumerate(document.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if len(line) > tables.MOST_COLUMNS and not line.lstrip().startswith("|") and len(line.split()) > 1:
            find(document, number, f"a line of {len(line)} columns, more than {tables.MOST_COLUMNS}")
        if block is None and line.lstrip().startswith("|"):
            columns = check_row(document, number, line, columns)
        else:
            columns = None
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
figures = {file: json.loads((root / file).read_text()) for _, file, _ in FIGURES}
for path in checked:
    check_document(path)
    check_figures(path, figures)
check_sections(root / "docs/performance.md", tables.MARKED, SECTIONS)
check_sections(root / "docs/guarantees.md", guarantees.MARKED, [*guarantees.SECTIONS, "cost"])
check_sections(root / "docs/scaling.md", scaling.MARKED, scaling.SECTIONS)
check_sections(root / "docs/device_kernels.md", ptxas_table.MARKED, ptxas_table.SECTIONS)
for fault in ptxas_table.faults_of(figures["docs/ptxas.json"]):
    find(root / "docs/ptxas.json", 1, fault)
check_codemap(root / "README.md")
print("\n".join(findings) or f"{len(checked)} documents agree with the tree")
sys.exit(1 if findings else 0)
