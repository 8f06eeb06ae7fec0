"""Which opcodes a folder of PTX uses: how many kernels, how often, and one line of each.

python bench/foreign/opcodes.py build/foreign > opcodes.txt
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from case import instructions


def main() -> int:
    uses, kernels, example = Counter[str](), Counter[str](), dict[str, str]()
    for path in sorted(Path(sys.argv[1]).glob("*.ptx")):
        found = list(instructions(path.read_text()))
        uses.update(opcode for opcode, _ in found)
        kernels.update({opcode for opcode, _ in found})
        for opcode, line in found:
            example.setdefault(opcode, f"{line[:200]}    [{path.stem}]")
    for opcode, count in sorted(uses.items()):
        print(f"{count:8} {kernels[opcode]:4}  {opcode:60} {example[opcode]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
