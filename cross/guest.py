"""Starts a binary of a row of targets.toml, under QEMU if it is for another machine.

Also separates the binary's memory from that of QEMU.
"""

import pathlib
import shutil
import struct
import sys

import rows

# Size of the address range in which QEMU maps the guest program; QEMU itself is mapped elsewhere. A
# 32-bit guest has the range that 32 bits reach. The range of a 64-bit guest begins with the
# program. QEMU places its later mappings from 2^38 on, and maps itself beyond 2^46.
STRETCH = {32: 1 << 32, 64: 1 << 46}
PT_LOAD = 1


def emulator(row):
    """Returns the path of the emulator that this row needs; a false value if it needs none."""
    return row["qemu"] and (shutil.which(row["qemu"]) or sys.exit(f"cannot find {row['qemu']} in PATH; cross/prepare installs it"))


class Guest:
    """A binary and its emulator, if it needs one."""

    def __init__(self, target, binary):
        self.binary = pathlib.Path(binary).resolve()
        self.row = rows.named(target)
        self.qemu = emulator(self.row)

    def command(self, *words):
        return [*([self.qemu] if self.qemu else []), str(self.binary), *words]

    def resident(self, pid):
        """Returns the binary's resident bytes, and the part that no other process shares.

        Under QEMU only the guest's mappings count.
        """
        mappings = [(start, end, sizes) for start, end, name, sizes in mapped(pid)]
        if self.qemu:
            bits, first = self.loaded()
            begin = min(start for start, _, name, _ in mapped(pid) if name == str(self.binary)) - first
            mappings = [each for each in mappings if begin <= each[0] < begin + STRETCH[bits]]
        whole = sum(sizes["Rss"] for _, _, sizes in mappings)
        return whole, sum(sizes["Private_Clean"] + sizes["Private_Dirty"] for _, _, sizes in mappings)

    def loaded(self):
        """Returns the bits of the binary, and the page address of its lowest loadable segment."""
        data = self.binary.read_bytes()
        wide = data[4] == 2
        at, = struct.unpack_from("<Q" if wide else "<I", data, 32 if wide else 28)
        size, count = struct.unpack_from("<HH", data, 54 if wide else 42)
        places = [struct.unpack_from("<Q" if wide else "<I", data, at + size * n + (16 if wide else 8))[0]
                  for n in range(count) if struct.unpack_from("<I", data, at + size * n)[0] == PT_LOAD]
        return (64 if wide else 32), min(places) & ~4095


def mapped(pid):
    """Returns (start, end, name, sizes in bytes) for each mapping of a process."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            start, end = (int(each, 16) for each in words[0].split("-"))
            found.append((start, end, words[5] if len(words) > 5 else "", {}))
        elif words[-1] == "kB":
            found[-1][3][words[0].rstrip(":")] = int(words[1]) * 1024
    return found
