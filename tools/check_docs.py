#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A block of code in docs/*.md under `<!-- examples/NAME.cc -->` is that program, without its leading comments.

    check_docs.py [root]
"""
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- (examples/\S+\.cc) -->\n```cpp\n(.*?)```", re.S)


def program(text):
    lines = text.splitlines()
    while lines and (lines[0].startswith("//") or not lines[0]):
        lines.pop(0)
    return "\n".join(lines).strip()


def main():
    docs = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent) / "docs"
    bad, shown = [], set()
    for page in sorted(docs.glob("*.md")):
        for name, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            shown.add(name)
            file = docs / name
            if not file.exists() or program(file.read_text(encoding="utf-8")) != block.strip():
                bad.append(f"{page.name}: its block is not {name}")
    for line in bad:
        print(line)
    print(f"check_docs: {len(shown)} programs shown, {len(bad)} differ")
    return 1 if bad else 0


sys.exit(main())
