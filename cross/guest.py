"""How a binary of a row of targets.toml is started here: as it is, or by QEMU where it is one for another machine."""

import pathlib
import shutil
import subprocess
import sys

import rows

# A mount namespace and a user namespace have a table of their own of what starts which binaries, so nothing of the machine changes.
IN_NAMESPACE = """
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$0" > /proc/sys/fs/binfmt_misc/register
exec "$@"
"""


def emulator(row):
    """What runs a binary of this row, if this machine does not."""
    return row["qemu"] and (shutil.which(row["qemu"]) or sys.exit(f"there is no {row['qemu']}; cross/prepare installs it"))


class Guest:
    """A binary, and what runs it."""

    def __init__(self, target, binary):
        self.binary = pathlib.Path(binary).resolve()
        self.qemu = emulator(rows.named(target))

    def command(self, *words):
        """Of one process, which starts no others."""
        return [*([self.qemu] if self.qemu else []), str(self.binary), *words]

    def command_of_several(self, *words):
        """Of a process that starts itself again: the kernel must know what runs it."""
        if not self.qemu:
            return [str(self.binary), *words]
        # Its first 20 bytes but for the ABI, which differs between an executable and what QEMU was told of, and the machine's own.
        with self.binary.open("rb") as file:
            magic = file.read(20)
        mask = b"\xff" * 7 + b"\x00" * 9 + b"\xfe\xff\xff\xff"
        escaped = ("".join(f"\\x{byte:02x}" for byte in bytes) for bytes in (magic, mask))
        entry = f":zoolet:M::{':'.join(escaped)}:{self.qemu}:F"
        return ["unshare", "--user", "--map-root-user", "--mount", "bash", "-ec", IN_NAMESPACE, entry, str(self.binary), *words]

    def can_start_several(self):
        """Whether such a namespace can be made here."""
        asked = subprocess.run(self.command_of_several("--version"), capture_output=True, text=True)
        return asked.returncode == 0 or print(asked.stderr.strip(), file=sys.stderr)
