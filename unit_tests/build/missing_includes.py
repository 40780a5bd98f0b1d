#!/usr/bin/env python3
"""Finds names of the library that a source uses without an include that declares them.

missing_includes.py SOURCE

A unity build compiles several sources as one, and forgives it. Builds without unity fail. The nightly run compiles each
file alone; this is the check of every day, of a second. It knows types and free functions that the library's headers
declare at the beginning of a line. It says nothing of names that any header within reach declares in some way, also as
a member or a parameter, so it overlooks a part of the faults.
"""
import collections
import pathlib
import re
import sys

FOLDERS = ("core", "views", "tasks", "halo", "nn", "model", "tools")
INCLUDE = re.compile(r"#include <aloni/([^>]+)>")
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')
IN_HEADER = re.compile(
    r"^(?:struct|class|enum class) ([A-Z]\w*)(?: final)?\s*[:{]"
    r"|^(?!return\b|else\b)[A-Za-z_][\w:<>,&* ]*[ &*](?!alignas)([a-z_]\w*)\(", re.M)
NO_TYPE = "".join(rf"(?<!\b{word})" for word in ("return", "else", "throw", "case", "new", "in"))
ANYWHERE = re.compile(
    r"\b(?:struct|class|enum|using|typename|concept|bool|int)\s+(?:class\s+)?(?=([A-Z]\w*))"
    rf"|(?:(?<=[\w>*\]])|(?<=[^&]&)){NO_TYPE}\s[*&]?(?=([a-z_]\w*)\b)"  # behind a type
    r"|(?<=\w)[&*] (?=([a-z_]\w*)\b)"
    r"|(?:\[|, )(?=([a-z_]\w*)[,\]])")  # structured binding, capture
USED = re.compile(r"(?<![\w.>])(?<!::)([a-z_]\w*)\(|(?<!\w)([A-Z]\w+)\b")


def names(pattern, code):
    return {name for match in pattern.findall(code) for name in match if name}


def missing(texts):
    """`texts`: by path, as in includes behind aloni/. The result: (path of a source, name, headers), sorted."""
    code = {path: COMMENT_OR_TEXT.sub(" ", text) for path, text in texts.items()}
    includes = {path: [p for p in INCLUDE.findall(text) if p in texts] for path, text in texts.items()}
    declared = {path: names(ANYWHERE, text) for path, text in code.items()}
    headers = collections.defaultdict(list)
    for path in sorted(code):
        if path.endswith(".hpp"):
            for name in names(IN_HEADER, code[path]):
                headers[name].append(path)
    faults = []
    for path in code:
        if not path.endswith(".cpp"):
            continue
        reached, ahead = {path}, [path]
        while ahead:
            new = set(includes[ahead.pop()]) - reached
            reached |= new
            ahead += new
        known = set().union(*(declared[p] for p in reached))
        missed = names(USED, code[path]) & headers.keys() - known
        faults += [(path, name, headers[name]) for name in missed]
    return sorted(faults)


def test():
    texts = {
        "nn/a.hpp": "bool is_odd(int n);\nstruct Even {\n};\n",
        "nn/b.hpp": "#include <aloni/nn/a.hpp>\n",
        "nn/good.cpp": "#include <aloni/nn/b.hpp>\nbool f(Even e) { return is_odd(e.n); }\n",
        "nn/bad.cpp": "bool f(int n) { return n > 0 && is_odd(n); }\nint g(const Even& e);\n",
        "nn/own.cpp": "auto f() { const auto is_odd = [](int) { return 1; }; return is_odd(2); } // Even\n",
    }
    found = missing(texts)
    assert found == [("nn/bad.cpp", "Even", ["nn/a.hpp"]), ("nn/bad.cpp", "is_odd", ["nn/a.hpp"])], found


def main():
    test()
    source = pathlib.Path(sys.argv[1])
    texts = {str(path.relative_to(source)): path.read_text(encoding="utf-8")
             for folder in FOLDERS for suffix in ("cpp", "hpp") for path in (source / folder).rglob(f"*.{suffix}")}
    if len(texts) < 600:
        sys.exit(f"found only {len(texts)} files: have the folders moved?")
    faults = missing(texts)
    for path, name, headers in faults:
        print(f"{path} uses {name}, and includes none of {', '.join(headers)}, directly or not")
    if faults:
        sys.exit(1)
    print(f"{len(texts)} files include what they use, as far as it was looked for")


if __name__ == "__main__":
    main()
