"""Starts a program when it is imported, which the hook of import_worker.py must stop; otherwise the other imports would prove nothing."""

import subprocess

subprocess.run(["true"])
