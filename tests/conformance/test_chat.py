"""`chat` in a pseudo-terminal and in a pipe: streamed answers, commands, Ctrl-C, the end of the input, and a model that writes escape sequences."""

import contextlib
import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time

import pytest
from conftest import worker_fixture
from program import BINARY, CLEAN

reference = worker_fixture("NEWEST", "run_worker.py")

TEMPLATE = "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
PROMPT = b">>> "
SECONDS = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory, reference):
    folder = tmp_path_factory.mktemp("model")
    reference.ask("make", folder=str(folder), kind="byte level")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


class Terminal:
    """The program with a terminal of its own, as a shell starts it."""

    def __init__(self, *arguments):
        self.master, slave = pty.openpty()
        take = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731
        self.process = subprocess.Popen([BINARY, "chat", *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=take, env=CLEAN | {"NO_COLOR": "1", "TERM": "xterm"})
        os.close(slave)
        self.all = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def read(self, seconds=SECONDS):
        """What the program writes next; nothing at its end."""
        assert select.select([self.master], [], [], seconds)[0], f"it is silent after {self.all[-300:]}"
        with contextlib.suppress(OSError):  # the other side is closed
            part = os.read(self.master, 1 << 16)
            self.all += part
            return part
        return b""

    def until(self, end):
        """What the program writes up to this text."""
        text = b""
        while end not in text:
            part = self.read()
            assert part, f"it ended before {end}: {text[-300:]}"
            text += part
        return text

    def send(self, text):
        os.write(self.master, text)

    def ask(self, line):
        """The answer to a line, without the echo of the line."""
        self.send(line.encode() + b"\n")
        text = self.until(b"\n" + PROMPT)
        return text.decode().replace("\r\n", "\n").removeprefix(line + "\n").removesuffix("\n>>> ")

    def ends(self):
        """The exit status of a program that ends by itself."""
        with contextlib.suppress(AssertionError):
            while self.read(5):
                pass
        return self.process.wait(SECONDS)


def piped(model, lines, *flags):
    return subprocess.run([BINARY, "chat", model, *flags], input=lines.encode(), capture_output=True, env=CLEAN, timeout=SECONDS)


def unescaped(text):
    """A terminal shows all control characters escaped, and a pipe the ends of lines."""
    text = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: chr(int(found[1], 16)), text)
    return text.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")


def test_answers_and_commands(model):
    with Terminal(model, "-n", "24") as terminal:
        assert b"/help" in terminal.until(PROMPT)
        first = terminal.ask("Hello")
        assert first.strip()
        assert terminal.ask("/retry") == first, "greedy answers are the same"
        second = terminal.ask("And?")
        terminal.ask("/undo")
        assert terminal.ask("And?") == second
        terminal.ask("/clear")
        assert terminal.ask("Hello") == first
        terminal.ask("/clear")
        terminal.ask("/system Be brief.")
        told = terminal.ask("Hello")
        terminal.ask("/clear")
        terminal.ask("/system")
        assert terminal.ask("Hello") == first != told
        assert "/retry" in terminal.ask("/help") and "/nothing" in terminal.ask("/nothing")
        terminal.send(b"/exit\n")
        assert terminal.ends() == 0
    # The same in a pipe, where an answer is one line.
    answers = piped(model, "Hello\nAnd?\n", "-n", "24").stdout.decode().split("\n")
    assert len(answers) == 3 and [unescaped(first), unescaped(second)] == [unescaped(answer) for answer in answers[:2]]


def test_an_answer_is_streamed(model):
    with Terminal(model, "-n", "400") as terminal:
        terminal.until(PROMPT)
        terminal.send(b"Hello\n")
        parts = []
        while not b"".join(parts).endswith(b"\n" + PROMPT):
            parts.append(terminal.read())
        assert len(parts) > 20, "it comes in parts"


def test_ctrl_c_ends_the_answer_only(model):
    with Terminal(model) as terminal:
        terminal.until(PROMPT)
        for number in range(3):
            terminal.send(b"Hello %d\n" % number)
            time.sleep(0.1)
            terminal.read()
            terminal.send(b"\x03")
            terminal.until(b"\n" + PROMPT)
            assert terminal.process.poll() is None
            terminal.ask("/clear")
        terminal.send(b"half a line\x03")
        assert b"Ctrl-D leaves" in terminal.until(b"\n" + PROMPT)
        terminal.send(b"\x04")
        assert terminal.ends() == 0


def test_the_end_of_the_input(model):
    with Terminal(model, "-n", "4") as terminal:
        terminal.until(PROMPT)
        terminal.send(b"\x04")
        assert terminal.ends() == 0
    found = piped(model, "Hello", "-n", "4")
    assert found.returncode == 0 and found.stdout.count(b"\n") == 1 and PROMPT not in found.stdout + found.stderr
    found = piped(model, "", "-n", "4")
    assert (found.returncode, found.stdout) == (0, b"")


def test_a_closed_pipe_ends_it(model):
    process = subprocess.Popen([BINARY, "chat", model, "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN)
    process.stdin.write(b"Hello\n" * 100)
    process.stdin.flush()
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(SECONDS) in (0, 141, -13)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    assert b"panicked" not in process.stderr.read()
    process.stderr.close()


def test_a_models_escape_sequences_do_not_reach_the_terminal(model):
    shown = 0
    with Terminal(model, "-n", "700", "--temperature", "2", "--seed", "1") as terminal:
        terminal.until(PROMPT)
        for _ in range(4):
            text = terminal.ask("Hello").encode()
            assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f\x9b]", re.sub(rb"[\x80-\xff]+", b"", text)), text
            shown += len(re.findall(rb"\\u\{|\\x", text))
    assert shown, "the model wrote no control character"
