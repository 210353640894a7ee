# SPDX-License-Identifier: Apache-2.0
"""Which call leads to which landing pad, for check_tls.py: the call-site tables of .gcc_except_table.

In an object the relocations of .eh_frame name, for each function in turn, where its code begins and, if it
catches or cleans up, where its table lies. The format of the table is that of the Itanium C++ ABI.
"""
import re

VALUE = re.compile(r"[0-9a-f]+ R_\S+\s+(\S+?)(?:\+0x([0-9a-f]+))?$")
BYTES = re.compile(r" [0-9a-f]+ ((?:[0-9a-f]{2,8} ){1,4})")


def uleb(data, at):
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fixed(data, at):
    return int.from_bytes(data[at:at + 4], "little"), at + 4


def call_sites(data, at):
    """[(begin, end, pad)] of the table at data[at], relative to its function; sites without a pad left out."""
    assert data[at] == 0xFF, "landing pads relative to something else than their function"
    types, at = data[at + 1], at + 2
    if types != 0xFF:
        _, at = uleb(data, at)
    number = {0x01: uleb, 0x03: fixed}[data[at]]
    size, at = uleb(data, at + 1)
    end, sites = at + size, []
    while at < end:
        begin, at = number(data, at)
        length, at = number(data, at)
        pad, at = number(data, at)
        _, at = uleb(data, at)
        if pad:
            sites.append((begin, begin + length, pad))
    return sites


def landing_pads(lines):
    """(section, address) where a function's code begins -> its call sites. `lines` runs objdump on the object."""
    contents, section = {}, None
    for line in lines("-s"):
        if line.startswith("Contents of section "):
            section = line[len("Contents of section "):-1]
        elif section and section.startswith(".gcc_except_table") and (m := BYTES.match(line)):
            contents.setdefault(section, bytearray()).extend(bytes.fromhex(m[1]))
    if not contents:
        return {}               # nothing catches or cleans up; .eh_frame itself may be missing
    found, begin = {}, None
    for line in lines("-r", "-j", ".eh_frame"):
        if m := VALUE.match(line):
            place = (m[1], int(m[2] or "0", 16))
            if m[1].startswith(".gcc_except_table"):
                found[begin] = call_sites(contents[m[1]], place[1])
            elif m[1].startswith("."):
                begin = place
    return found
