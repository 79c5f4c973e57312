"""Programs of other systems, and how this machine runs them: under wine, under qemu, or in a root without anything else."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import needs

ROOT = Path(__file__).resolve().parent.parent.parent
SHARED = (ROOT.parent / "shared").resolve()
WINE = shutil.which("wine64") or "/usr/lib/wine/wine64"
AARCH64 = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
# Rust imports a function of this DLL that old versions of wine lack; it is forwarded to the one that they have.
PRNG = """#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T len) { return SystemFunction036(data, (ULONG)len); }
"""


def cross(target, *words, **how):
    subprocess.run([ROOT / "deploy/cross", target, *words], check=True, cwd=ROOT, **how)


def build(target):
    cross(target, "build", "--locked", "--bin", "torch2carton")
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / target.removesuffix(".2.17") / "debug"
    return folder / ("torch2carton.exe" if "windows" in target else "torch2carton")


def wine_environment(folder):
    """Variables for wine, whose files and whose new DLL are in a folder."""
    (folder / "prng.c").write_text(PRNG)
    dll = folder / "bcryptprimitives.dll"
    subprocess.run(["x86_64-w64-mingw32-gcc", "-shared", "-o", dll, folder / "prng.c", "-ladvapi32"], check=True)
    return {"WINEPREFIX": str(folder / "prefix"), "WINEDEBUG": "-all", "WINEPATH": "Z:" + str(folder).replace("/", "\\")}


class Bare:
    """A program that this machine runs, or that `prefix` runs."""

    def __init__(self, program, prefix=()):
        self.prefix = [*prefix, program]
        self.environment = os.environ

    def command(self, words):
        return [*self.prefix, *words]

    def plain(self, text):
        own = (line for line in text.splitlines(keepends=True) if not line.startswith(("wine:", "qemu-")))
        # Systems have their own quotes.
        return re.sub(r"\\+", "/", "".join(own)).replace('"', "'")


class Windows(Bare):
    """The program under wine, which shows the root of this machine as the drive Z:."""

    def __init__(self, program, folder):
        super().__init__(program, [WINE])
        self.environment = os.environ | wine_environment(folder)

    def command(self, words):
        return super().command(self.path(word) if isinstance(word, Path) else word for word in words)

    def path(self, path):
        return "Z:" + str(path).replace("/", "\\")

    def plain(self, text):
        return super().plain(text.replace("\r\n", "\n")).replace("Z:/", "/")


class Alone(Bare):
    """The program in a root that has its libraries, the inputs and the folder of outputs, each at its path, and nothing else."""

    def __init__(self, program, folder):
        super().__init__("/torch2carton", ["unshare", "--map-root-user", "--mount", "sh", "-c"])
        root = folder / "root"
        self.environment = os.environ | {"TMPDIR": str(folder)}
        shown = [path for path in (ROOT, SHARED, folder) if path.is_dir()]
        for path in [*shown, Path("/lib64"), Path("/lib")]:
            (root / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
        shutil.copy(program, root / "torch2carton")
        for name in needs.elf(program).libraries:
            shutil.copy(f"/lib/{platform.machine()}-linux-gnu/{name}", root / ("lib64" if name.startswith("ld-") else "lib"))
        mounts = " && ".join(f"mount --bind '{path}' '{root}{path}'" for path in shown)
        self.prefix = [*self.prefix[:-1], f"{mounts} && exec chroot '{root}' \"$@\"", "sh", "/torch2carton"]


def system_of(target, program, folder, cpu=None, empty_root=True):
    if "windows" in target:
        return Windows(program, folder)
    if cpu:
        return Bare(program, [f"qemu-{platform.machine()}-static", "-cpu", cpu])
    if target.startswith("aarch64"):
        return Bare(program, AARCH64)
    return Alone(program, folder) if empty_root else Bare(program)
