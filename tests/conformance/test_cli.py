"""The command line as other programs see it: what bash completes, what groff reads, and the instructions that `pickletools` lists."""

import pickletools
import re
import shutil
import subprocess

import pytest
from program import succeed


def completed(tmp_path, *line):
    """What bash offers for the last word of the line, in a folder with a checkpoint."""
    script = tmp_path / "completions.bash"
    script.write_text(succeed("completions", "bash").stdout)
    folder = tmp_path / "folder"
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "model.pt").touch()
    ask = r"""source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
             [[ $(complete -p torch2carton) =~ -F\ ([^ ]+) ]] || exit 3
             "${BASH_REMATCH[1]}" torch2carton "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
             printf '%s\n' "${COMPREPLY[@]}" """
    done = subprocess.run(["bash", "--norc", "-c", ask, "bash", script, "torch2carton", *line], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize("line, wanted", [
    ("mod", "model.pt models"), ("model.pt --n-h", "--n-heads"), ("--n-h", "--n-heads"), ("convert model.pt --n-h", "--n-heads"),
    ("model.pt --arch mixt", "mixtral"), ("ins", "inspect"), ("inspect model.pt --sh", "--sha256"), ("completions b", "bash"),
])
def test_bash_completes(line, wanted, tmp_path):
    """Files first, because `torch2carton FILE` is the main form; convert's options also without `convert`."""
    assert completed(tmp_path, *line.split()) == wanted.split()


def test_the_manual_page_is_valid_and_has_every_option():
    """groff, if it exists, is asked for warnings, and shows the page as a reader sees it."""
    assert re.search(r"^\.TH torch2carton 1\b", succeed("man").stdout, re.M)
    commands = re.findall(r"^  ([a-z]+)  ", succeed("--help").stdout.split("Commands:")[1].split("Options:")[0], re.M)
    for command in commands:
        page = succeed("man", *([command] if command != "help" else [])).stdout
        text = page.replace("\\-", "-")
        if shutil.which("groff"):
            shown = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-ww"], input=page, capture_output=True, text=True)
            assert shown.returncode == 0 and shown.stderr == ""
            text = re.sub(r".\x08", "", shown.stdout)
        options = re.findall(r"^ +(?:-\w, )?(--[a-z0-9-]+)", succeed("help", command).stdout, re.M) if command != "help" else []
        assert [option for option in options if option not in text] == [], command
