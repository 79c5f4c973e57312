"""Stops everything that a file tries to do while Python loads it: an audit hook reports each attempt and prevents it.

The event names are those of https://docs.python.org/3/library/audit_events.html. CPython raises an event before it performs
the action, and a hook cannot be removed. So a file that reaches the hook shows what it would do, but does not do it. Loading
itself reads Python's own files and the loaded file, and writes into `tempfile`'s folder. Only that is allowed.
"""

import os
import sys
import tempfile

STOPPED = (
    "os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.startfile os.kill os.killpg pty.spawn subprocess.Popen "
    "os.putenv os.unsetenv os.chflags os.lockf os.setxattr os.removexattr "
    "ctypes.dlopen ctypes.dlsym ctypes.dlsym/handle ctypes.cdata ctypes.call_function ctypes.string_at ctypes.wstring_at "
    "urllib.Request http.client.connect http.client.send ftplib.connect smtplib.connect smtplib.send imaplib.open "
    "poplib.connect telnetlib.Telnet.open webbrowser.open sqlite3.connect syslog.syslog signal.pthread_kill "
    "code.__new__ function.__new__ cpython.run_command cpython.run_file cpython.run_module cpython.run_startup "
    "pdb.Pdb builtins.input builtins.breakpoint fcntl.fcntl fcntl.flock fcntl.ioctl fcntl.lockf resource.setrlimit"
).split()
ON_PATHS = (  # allowed in the loader's own folder
    "os.remove os.rmdir os.mkdir os.rename os.link os.symlink os.truncate os.utime os.chmod os.chown os.chdir "
    "shutil.rmtree shutil.move shutil.copyfile shutil.copytree shutil.chown shutil.make_archive shutil.unpack_archive"
).split()
LISTING = ("os.listdir", "os.scandir", "os.walk")  # imports list Python's own folders
# Modules that a loader has no reason to import, and a payload may have.
IMPORTS = {"antigravity", "asyncio", "code", "ctypes", "ftplib", "pip", "pty", "smtplib", "socketserver", "this", "webbrowser"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Stopped(BaseException):
    """Raised instead of the action that a file attempted."""


class Guard:
    """`on(path)` starts watching the loading of a file, `off()` ends it; `seen(event, arguments)` is called for each attempt."""

    def __init__(self, seen):
        self.seen, self.path = seen, None
        self.own = os.path.realpath(tempfile.gettempdir())
        self.python = [os.path.realpath(p) for p in {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}]
        self.python += [os.path.realpath(p) for p in sys.path if p] + ["/proc", "/sys", "/dev/null", "/usr/share/zoneinfo"]
        self.asked = False  # set while the hook itself accesses files
        sys.addaudithook(self.hook)

    def on(self, path):
        self.path = os.path.realpath(path)

    def off(self):
        self.path = None

    def hook(self, event, arguments):
        if self.path is None or self.asked:
            return
        self.asked = True
        try:
            stop = self.forbids(event, arguments)
            if stop:
                self.seen(event, arguments)
        finally:
            self.asked = False
        if stop:
            raise Stopped(event)

    def forbids(self, event, arguments):
        if event == "open":
            return self.forbids_opening(*arguments[:3])
        if event == "import":
            return arguments[0].partition(".")[0] in IMPORTS and arguments[0] not in sys.modules
        if event in ON_PATHS or event in LISTING:
            folders = [self.own, *(self.python if event in LISTING else [])]
            paths = [os.fsdecode(p) for p in arguments if isinstance(p, (str, bytes, os.PathLike))]
            if event in ("os.remove", "os.rmdir") and arguments[1] >= 0:  # relative to a folder that is given as a descriptor
                paths = [os.path.join(os.readlink(f"/proc/self/fd/{arguments[1]}"), path) for path in paths]
            return not all(self.inside(folders, path) for path in paths)
        return event in STOPPED or event.startswith(("socket.", "winreg.", "msvcrt."))

    def forbids_opening(self, path, mode, flags):
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False  # a descriptor that is already open
        if self.inside([self.own], path):
            return False
        writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & WRITING)
        return writes or not self.inside([self.path, *self.python], path)

    @staticmethod
    def inside(folders, path):
        real = os.path.realpath(os.fsdecode(path))
        return any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders)
