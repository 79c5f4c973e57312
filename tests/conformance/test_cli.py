"""The command line: refusals, exit statuses, signals, terminal output."""

import hashlib
import os
import pickletools
import pty
import re
import shutil
import signal
import subprocess
import time
import unicodedata
import zipfile

import pytest
from carton_file import Carton, without_colour
from conftest import GOLDEN
from program import BINARY, CLEAN, listing, refuse, succeed, torch2carton
from sparse import needs_sparse, sparse

# --- the main job ---------------------------------------------------------------------------------------------------


def test_convert_is_the_short_form(saved, tmp_path):
    path = saved()
    succeed(path, "-o", tmp_path / "short.carton")
    succeed("convert", path, "-o", tmp_path / "long.carton")
    assert (tmp_path / "short.carton").read_bytes() == (tmp_path / "long.carton").read_bytes()


def test_the_output_is_next_to_the_checkpoint(saved, tmp_path):
    saved(name="sub/consolidated.00.pth")
    succeed("sub/consolidated.00.pth", cwd=tmp_path)
    assert listing(tmp_path) == ["sub", "sub/consolidated.00.carton", "sub/consolidated.00.pth"]


def test_companions_and_output_are_next_to_the_path_as_typed(saved, tmp_path):
    """The checkpoint is a link into a store, as in download caches."""
    blob = saved(name="store/3f2a9c")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "weights.pth").symlink_to(blob)
    (snapshot / "config.json").write_text("{}")
    succeed(snapshot / "weights.pth")
    carton = Carton(snapshot / "weights.carton")
    assert carton.toml["model_name"] == "weights" and sorted(carton.misc()) == ["checkpoint.json", "config.json"]
    assert listing(tmp_path / "store") == ["3f2a9c"]


def test_the_model_is_named_after_the_current_folder(saved, tmp_path):
    saved(name="my-llama/consolidated.00.pth")
    succeed("consolidated.00.pth", cwd=tmp_path / "my-llama")
    assert Carton(tmp_path / "my-llama/consolidated.00.carton").toml["model_name"] == "my-llama"


def test_the_output_has_the_mode_of_any_new_file(saved, tmp_path):
    """Not the mode of a temporary file: other users may read it if the umask allows."""
    succeed(saved())
    (tmp_path / "plain").touch()
    assert (tmp_path / "model.carton").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("what", ["/dev/zero", "/dev/null", "pipe", "folder"])
def test_paths_that_are_not_files_are_refused_immediately(what, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    refuse(what, "-o", "out.carton", cwd=tmp_path, timeout=5)
    refuse("inspect", what, cwd=tmp_path, timeout=5)
    assert listing(tmp_path) == ["folder", "pipe"]


def test_an_output_that_cannot_be_written_is_refused(saved, tmp_path):
    path = saved()
    (tmp_path / "file").touch()
    refuse(path, "-o", "file/out.carton", cwd=tmp_path)
    assert listing(tmp_path) == ["file", "model.pth"]


@pytest.mark.parametrize("output, written", [("folder", "folder/model.carton"), ("missing/deep/out.carton", "missing/deep/out.carton")])
def test_folders_of_outputs_are_used_and_created(output, written, saved, tmp_path):
    (tmp_path / "folder").mkdir()
    succeed(saved(), "-o", output, cwd=tmp_path)
    assert (tmp_path / written).is_file()


def test_the_summary_goes_to_stderr_and_q_suppresses_it(saved, tmp_path):
    loud = succeed(saved(), "-o", tmp_path / "a.carton")
    assert loud.stdout == "" and loud.stderr
    quiet = succeed("-q", tmp_path / "model.pth", "-o", tmp_path / "b.carton")
    assert (quiet.stdout, quiet.stderr) == ("", "")


def test_the_summary_has_the_facts(saved, tmp_path):
    path = saved("dtypes", "weights.pth")
    words = succeed(path).stderr
    digest = hashlib.sha256(Carton(tmp_path / "weights.carton").manifest).hexdigest()
    assert digest[:12] in words, f"no manifest hash: {words}"
    assert re.search(r"tensors +12\b", words) and "weights" in words and "parameters" in words
    assert re.search(r"[\d.]+ ?m?s\b", words)


def test_progress_without_a_terminal_is_lines_and_not_a_bar(saved):
    words = succeed(saved()).stderr
    assert "\r" not in words and "\x1b" not in words


# --- lone shards ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shards(saved, tmp_path):
    for i in range(8):
        saved("dtypes", f"consolidated.{i:02}.pth")
    return tmp_path


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_lone_shard_is_refused(number, shards):
    name = f"consolidated.{number:02}.pth"
    words = without_colour(refuse(name, cwd=shards).stderr)
    assert f"{name} is shard {number + 1} of 8: " in words and "--single" in words
    assert not list(shards.glob("*.carton"))


def test_single_converts_a_lone_shard(shards):
    succeed("--single", "consolidated.03.pth", cwd=shards)
    assert Carton(shards / "consolidated.03.carton").manifest


def test_a_lone_shard_of_hugging_face_is_refused(saved, tmp_path):
    for i in (1, 2, 3):
        saved("dtypes", f"pytorch_model-{i:05}-of-00003.bin")
    words = without_colour(refuse("pytorch_model-00002-of-00003.bin", cwd=tmp_path).stderr)
    assert "pytorch_model-00002-of-00003.bin is shard 2 of 3: " in words and "--single" in words


def test_one_numbered_file_is_not_a_shard(saved, tmp_path):
    succeed(saved(name="consolidated.00.pth"))


# --- output ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["path", "other spelling", "symlink", "symlinked folder", "hard link"])
def test_output_equal_to_input_is_refused(way, saved, tmp_path):
    path = saved()
    before = path.read_bytes()
    output = tmp_path / "link.carton"
    if way == "path":
        output = path
    elif way == "other spelling":
        output = tmp_path / "." / "x" / ".." / path.name
        (tmp_path / "x").mkdir()
    elif way == "symlink":
        output.symlink_to(path)
    elif way == "symlinked folder":
        (tmp_path / "door").symlink_to(tmp_path)
        output = tmp_path / "door" / path.name
    else:
        os.link(path, output)
    refuse(path, "-o", str(output), status=(1, 2))
    assert path.read_bytes() == before
    assert not output.is_symlink() or output.resolve() == path


@pytest.mark.parametrize("flag", ["--no-clobber"])
def test_no_clobber(flag, saved, tmp_path):
    path = saved()
    (tmp_path / "model.carton").write_text("precious")
    refuse(flag, path)
    assert (tmp_path / "model.carton").read_text() == "precious"
    succeed(flag, path, "-o", tmp_path / "new.carton")


def test_an_existing_output_is_replaced_atomically(saved, tmp_path):
    path, output = saved(), tmp_path / "model.carton"
    output.write_bytes(b"x" * 10_000_000)
    before = open(output, "rb")  # an open reader keeps the old file
    succeed("--force", path)
    assert os.fstat(before.fileno()).st_ino != output.stat().st_ino and os.fstat(before.fileno()).st_size == 10_000_000
    assert Carton(output).file.testzip() is None
    assert listing(tmp_path) == ["model.carton", "model.pth"]


def test_only_what_the_program_wrote_is_replaced(saved, tmp_path):
    path, output = saved(), tmp_path / "model.carton"
    theirs = (tmp_path / "notes.txt", tmp_path / "another.pth", tmp_path / "plain.zip")
    theirs[0].write_text("precious")
    shutil.copy(path, theirs[1])
    with zipfile.ZipFile(theirs[2], "w") as archive:
        archive.writestr("model.py", "precious")
        archive.comment = b"torch2carton, a copy"
    for file in theirs:
        before = file.read_bytes()
        assert "--force" in refuse(path, "-o", file).stderr
        assert file.read_bytes() == before
    succeed(path)
    assert zipfile.ZipFile(output).comment == b"torch2carton"
    succeed(path)
    shutil.copyfile(output, tmp_path / "copy.carton")  # without extended attributes
    assert "--force" in refuse(path, "-o", tmp_path / "copy.carton").stderr
    with zipfile.ZipFile(output, "a") as archive:  # another program changed it, and kept the comment
        archive.writestr("notes.txt", "precious")
    assert zipfile.ZipFile(output).comment == b"torch2carton"
    assert "--force" in refuse(path).stderr
    succeed(path, "--force")
    with zipfile.ZipFile(output, "a") as archive:  # another program removed the comment
        archive.comment = b""
    assert "--force" in refuse(path).stderr
    succeed(path, "--force")


def test_a_failure_keeps_the_existing_output_and_leaves_nothing_else(tmp_path):
    shutil.copy(GOLDEN / "hostile/bad_crc_storage.pth", tmp_path / "model.pth")
    (tmp_path / "model.carton").write_text("precious")
    refuse("--force", tmp_path / "model.pth")
    assert (tmp_path / "model.carton").read_text() == "precious"
    assert listing(tmp_path) == ["model.carton", "model.pth"]


@needs_sparse
def test_free_space_is_checked_first(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    path = sparse(tmp_path / "huge.pth", "--tensors", "64", "--size", str(free + 50 * 10**9))
    start = time.monotonic()
    words = without_colour(refuse(path).stderr)
    assert re.search(r"needs [\d.]+ [MGT]B in .*, [\d.]+ [MGT]B free", words), words
    assert listing(tmp_path) == ["huge.pth"] and time.monotonic() - start < 5


# --- signals --------------------------------------------------------------------------------------------------------


def interrupted(folder, number):
    """Converts 2 GB in `folder` and sends the signal once the output grows. Returns (exit status, stderr)."""
    path = sparse(folder / "large.pth", "--tensors", "64", "--size", "2G")
    process = subprocess.Popen([BINARY, path], env=CLEAN, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while not any(p.stat().st_blocks > 2048 for p in folder.iterdir() if p != path):
            assert process.poll() is None, f"ended before it was interrupted: {process.stderr.read().decode()}"
            assert time.monotonic() < deadline, "no output file grows next to the target"
            time.sleep(0.01)
        process.send_signal(number)
        status = process.wait(timeout=30)
        return status, process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()


@needs_sparse
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_leaves_nothing(number, tmp_path):
    # A signal that the caller ignores stays ignored, as `nohup` wants it: Python's own action replaces that here.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        status, words = interrupted(tmp_path, number)
    finally:
        signal.signal(number, before)
    assert status == 128 + number and "panicked" not in words
    assert listing(tmp_path) == ["large.pth"]


@needs_sparse
def test_kill_leaves_one_recognisable_temporary_file(tmp_path):
    interrupted(tmp_path, signal.SIGKILL)
    left = [n for n in listing(tmp_path) if n != "large.pth"]
    assert len(left) <= 1 and "large.carton" not in left
    assert all("carton" in n for n in left), f"not recognisable: {left}"


# --- usage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    [], ["--no-such-flag"], ["--color", "sometimes", "x.pth"], ["inspect"], ["completions", "klingon"],
    ["x.pth", "--short-description", "x" * 101],
], ids=lambda a: " ".join(a)[:30] or "nothing")
def test_bad_usage_is_status_2(arguments, tmp_path):
    (tmp_path / "x.pth").write_bytes((GOLDEN / "checkpoints/plain.pth").read_bytes())
    refuse(*arguments, cwd=tmp_path, status=(2,))
    assert listing(tmp_path) == ["x.pth"]


def test_a_short_description_of_100_characters_is_accepted(saved, tmp_path):
    """The limit counts characters, not bytes."""
    succeed(saved(), "--short-description", "ü" * 100)
    assert Carton(tmp_path / "model.carton").toml["short_description"] == "ü" * 100


@pytest.mark.parametrize("path", ["missing.pth", "folder/missing.pth"])
def test_a_missing_file_is_status_1_and_named(path, tmp_path):
    assert path in without_colour(refuse(path, cwd=tmp_path).stderr)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    refuse(".", cwd=tmp_path, status=(1, 2))


@pytest.mark.parametrize("typed, meant", [("inspct", "inspect"), ("comvert", "convert"), ("traces", "trace")])
def test_a_typing_error_gets_a_suggestion(typed, meant, tmp_path):
    words = without_colour(refuse(typed, cwd=tmp_path, status=(1, 2)).stderr)
    assert "did you mean" in words and meant in words


def test_a_file_with_the_name_of_a_subcommand_can_be_converted(saved, tmp_path):
    saved(name="inspct")
    succeed("inspct", cwd=tmp_path)
    saved(name="inspect")
    succeed("./inspect", "-o", "two.carton", cwd=tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_include_values(shell):
    script = succeed("completions", shell).stdout
    assert "torch2carton" in script and "inspect" in script
    assert re.search(r"auto\W.*llama\W.*mistral\W.*qwen2\W.*weights", script.replace("\n", " ")), "the values of --arch"


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
    ("model.pt --arch mis", "mistral"), ("ins", "inspect"), ("inspect model.pt --sh", "--sha256"), ("completions b", "bash"),
])
def test_bash_completes(line, wanted, tmp_path):
    """Files first, because `torch2carton FILE` is the main form; convert's options also without `convert`."""
    assert completed(tmp_path, *line.split()) == wanted.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_every_subcommand(tmp_path):
    listed = re.findall(r"^  ([a-z]+)  ", succeed("--help").stdout.split("Commands:")[1].split("Options:")[0], re.M)
    assert {"convert", "inspect", "verify", "man", "help"} <= set(listed)
    assert set(listed) <= set(completed(tmp_path, ""))


def test_the_manual_page_is_valid_and_has_every_option():
    """groff, if it exists, is asked for warnings, and shows the page as a reader sees it."""
    page = succeed("man").stdout
    assert re.search(r"^\.TH torch2carton 1\b", page, re.M)
    text = page.replace("\\-", "-")
    if shutil.which("groff"):
        shown = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-ww"], input=page, capture_output=True, text=True)
        assert shown.returncode == 0 and shown.stderr == ""
        text = re.sub(r".\x08", "", shown.stdout)
    commands = re.findall(r"^  ([a-z]+)  ", succeed("--help").stdout.split("Commands:")[1].split("Options:")[0], re.M)
    for command in commands:
        options = re.findall(r"^ +(?:-\w, )?(--[a-z0-9-]+)", succeed("help", command).stdout, re.M) if command != "help" else []
        assert [option for option in options if option not in text] == [], command


def test_help_and_version():
    assert re.fullmatch(r"torch2carton \d+\.\d+\.\d+\S*\n", succeed("--version").stdout)
    text = succeed("--help").stdout
    for word in ("inspect", "trace", "completions", "--color", "--single", "--no-clobber", "--misc"):
        assert word in text or word in succeed("convert", "--help").stdout, word


# --- terminals and pipes --------------------------------------------------------------------------------------------


def on_a_terminal(*arguments, env=None, cwd=None):
    """Everything that the program prints if its three streams are a terminal."""
    near, far = pty.openpty()
    process = subprocess.Popen([BINARY, *map(str, arguments)], stdin=far, stdout=far, stderr=far, close_fds=True, cwd=cwd,
                               env=CLEAN | {"TERM": "xterm-256color"} | (env or {}))
    os.close(far)
    printed = bytearray()
    while True:
        try:
            block = os.read(near, 65536)
        except OSError:  # Linux raises this if the other end is closed
            break
        if not block:
            break
        printed += block
    process.wait()
    os.close(near)
    return printed.decode(errors="replace")


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_colours_on_a_terminal_only(tmp_path):
    assert COLOUR.search(on_a_terminal("missing.pth", cwd=tmp_path))
    assert not COLOUR.search(torch2carton("missing.pth", cwd=tmp_path).stderr)
    assert not COLOUR.search(on_a_terminal("missing.pth", cwd=tmp_path, env={"NO_COLOR": "1"}))
    assert not COLOUR.search(on_a_terminal("--color", "never", "missing.pth", cwd=tmp_path))
    assert COLOUR.search(torch2carton("--color", "always", "missing.pth", cwd=tmp_path).stderr)


@needs_sparse
def test_a_terminal_shows_a_progress_bar(tmp_path):
    path = sparse(tmp_path / "large.pth", "--tensors", "64", "--size", "1G")
    assert re.search(r"\d ?%|[kMG]i?B", without_colour(on_a_terminal(path)).split("\r")[1])
    assert on_a_terminal("-q", path) == ""


@pytest.mark.parametrize("arguments", [["convert"], ["inspect"], ["trace"]], ids=" ".join)
def test_every_command_obeys_no_color(arguments, saved, tmp_path):
    path = saved("names")
    assert not COLOUR.search(on_a_terminal(*arguments, path, env={"NO_COLOR": "1"}))


def raw_controls(text):
    """Control characters other than newline and tab."""
    return sorted({repr(c) for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"})


@pytest.mark.parametrize("arguments", [["convert"], ["inspect"], ["trace"], ["inspect", "--json"]], ids=" ".join)
def test_control_characters_in_a_file_are_escaped(arguments, saved, tmp_path):
    outcome = torch2carton(*arguments, saved("names"))
    assert raw_controls(outcome.stdout) == [] and raw_controls(outcome.stderr) == []
    if arguments == ["inspect"]:
        rows = outcome.stdout.splitlines()
        assert not [r for r in rows if r.startswith("line")], "a newline in a name breaks its row in two"
        assert not [r for r in rows if "tab\tbed" in r], "a tab in a name"


@pytest.mark.parametrize("arguments", [["convert"], ["inspect"], ["trace"]], ids=" ".join)
def test_control_characters_in_a_path_are_escaped(arguments, saved, tmp_path):
    """The name of a file is input too."""
    outcome = torch2carton(*arguments, "evil\x1b]0;title\x07\nname.pth", cwd=tmp_path)
    assert outcome.status == 1 and raw_controls(outcome.stderr) == []
    saved(name="evil\x1b[31m\x07.pth")
    assert raw_controls(torch2carton(*arguments, "evil\x1b[31m\x07.pth", cwd=tmp_path).stderr) == []


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "--json"], ["trace"]], ids=" ".join)
def test_a_broken_pipe_ends_quietly(arguments, saved):
    process = subprocess.Popen([BINARY, *arguments, saved("many")], env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    words = process.stderr.read().decode()
    status = process.wait(timeout=30)
    assert words == "" and status in (0, 1, 141, -signal.SIGPIPE), f"{status}: {words}"


# --- trace ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dtypes", "module_state", "training_run", "parameters"])
def test_trace_lists_what_pickletools_lists(kind, saved):
    """One line for each instruction: the same opcodes in the same order."""
    path = saved(kind)
    with zipfile.ZipFile(path) as z:
        pickle = z.read(next(n for n in z.namelist() if n.endswith("/data.pkl")))
    wanted = [opcode.name for opcode, _, _ in pickletools.genops(pickle)]
    every = "|".join(sorted({o.name for o in pickletools.opcodes}, key=len, reverse=True))
    lines = [line for line in succeed("trace", path).stdout.splitlines() if re.search(rf"\b({every})\b", line)]
    assert [re.search(rf"\b({every})\b", line).group(1) for line in lines] == wanted
