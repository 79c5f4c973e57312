#!/usr/bin/env python3
"""Opens reports and the page of `serve` in a headless Chromium: no errors, search and steps agree with `inspect` and `trace`, a chat
shows what the model answers, and axe-core finds nothing.

    python3 tests/report/run.py [--binary PATH] [--screenshots FOLDER] [--sizes] [--corpus | FILE…]

Needs Chromium (Debian's package `chromium`), and installs playwright and axe-core into ~/.cache/torch2carton/report. FILEs are
reports' inputs besides the hostile files that the script makes; without FILEs, the golden checkpoints are used. `--corpus` takes
ten real files of ../shared. `--sizes` also makes pages about 100,000 tensors, and checks their sizes.
"""
import argparse
import html
import json
import os
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
SHARED = TREE.parent / "shared"
ENVIRONMENT = Path.home() / ".cache/torch2carton/report"
#: Real files: TorchScript, checkpoints of trainers, pickled modules, quantized weights, a legacy file, safetensors.
CORPUS = [
    "corpus-2/ultralytics__yolov5/yolov5n-7.pt",
    "corpus-2/saspav__ClearML_Pytorch_Lightning/lightning_logs/signlang_experiment/version_0/checkpoints/epoch=19-step=1080.ckpt",
    "corpus-2/foundation-model-stack__foundation-model-stack/tests/resources/models/llama/mock.7b/model_state.pth",
    "corpus-2/dannydenovi__Quantization-Tool-PyTorch/quantized_model.pth",
    "corpus-2/apple__coremltools/coremltools/converters/torch/test/testdata/DemoNet.pt",
    "corpus-2/guilhermmeabreu__lab_08/adapter_model.safetensors",
    "corpus-2/biubug6__Pytorch_Retinaface/weights/Final_Retinaface.pth",
    "corpus-2/scverse__scvi-tools/tests/model/saved_model/model.pt",
    "corpus/timesler__facenet-pytorch/data/rnet.pt",
    "corpus/pytorch__captum/tutorials/models/california_model.pt",
]
#: Tensors of the pages whose sizes are bounded.
MANY = 100_000
NAMES = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "a\"b'c&amp;", "]]><svg onload=alert(3)>", "‮rtl", "x" * 400]


def playwright():
    """Runs this script again with the Python that has playwright."""
    python = ENVIRONMENT / "bin/python3"
    if not python.exists() or not any(ENVIRONMENT.glob("lib/*/site-packages/axe_playwright_python")):
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "playwright>=1.49,<2", "axe-playwright-python>=0.1.4,<1"], check=True)
    os.execv(python, [str(python), "-B", *sys.argv])


def hostile(folder):
    """A checkpoint of numbers under hostile keys, in a folder and file with a hostile name."""
    path = Path(folder, "<img src=x onerror=alert(4)>.pt")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("data/data.pkl", pickle.dumps({name: index for index, name in enumerate(NAMES)} | {"t": NAMES}, 2))
        archive.writestr("data/version", "3\n")
    return path


def succeed(binary, *arguments, cwd=None):
    return subprocess.run([binary, *map(str, arguments)], check=True, capture_output=True, text=True, cwd=cwd).stdout


def check_accessible(page):
    """Fails if axe-core finds a violation of WCAG 2.2, level AA, or of its best practices."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response
    violations = [(rule["id"], rule["help"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in found["violations"]]
    assert len(found["passes"]) > 10 and not violations, violations


def check_columns(page):
    """Fails if a name or a heading of a table is squeezed into lines of a few letters."""
    narrow = page.evaluate("""() => [...document.querySelectorAll(".wide td:first-child, th")].filter((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        const { width, height } = range.getBoundingClientRect();
        return height / 20 > cell.textContent.split(" ").length + 1 && width < 60;
    }).map((cell) => cell.textContent)""")
    assert not narrow, narrow[:5]


def check_histograms(page):
    """Fails if a histogram of the table of tensors is cut off by the edge of a page for a desktop."""
    cut = page.evaluate("""() => [...document.querySelectorAll("#tensors ~ div .wide svg")].filter((picture) =>
        picture.getBoundingClientRect().right > picture.closest(".wide").getBoundingClientRect().right + 1).length""")
    assert page.viewport_size["width"] < 1000 or not cut, f"{cut} histograms are cut off"


def check(page, binary, path, report, screenshots):
    errors, requests = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector("body[data-ready=true]", timeout=60_000)
    assert page.title() == f"{path.name} – torch2carton report", page.title()
    assert page.locator("main img, main script").count() == 0

    listed = json.loads(succeed(binary, "inspect", "--json", path))["tensors"]
    for wanted in ("", "weight", "BIAS", "<script>"):
        page.fill("#search", wanted)
        expected = [row["name"] for row in listed if wanted.lower() in row["name"].lower()]
        assert page.inner_text("#found").startswith(f"{len(expected):,} of {len(listed):,} tensors"), page.inner_text("#found")
        shown = page.locator("#tensors ~ div table tbody tr td:first-child").all_text_contents()
        assert shown == [name or "(the root)" for name in expected[:100]], (shown[:3], expected[:3])
    page.fill("#search", "")

    if page.locator("#steps").count():
        lines = [json.loads(line) for line in succeed(binary, "trace", "--json", "--limit", "2000", path).splitlines()]

        def at(step):
            where = page.inner_text("#position")
            assert f"0x{step['offset']:x} {step['opcode']}" in where, (where, step)
            state = page.locator(".state[data-kind=after]").inner_text()
            assert f"Stack ({step['stack']})" in state and f"Metastack ({step['metastack']})" in state, (state, step)
            assert f"Memo ({step['memo']})" in state, (state, step)

        at(lines[0])
        for step in lines[1:40]:
            page.click("#forward")
            at(step)
        for step in reversed(lines[10:min(39, len(lines) - 1)]):
            page.click("#back")
            at(step)
        page.locator("#step-list button").first.focus()
        page.keyboard.press("ArrowRight")
        for step in lines[:: max(len(lines) // 7, 1)]:
            page.fill("#offset", hex(step["offset"]))
            page.click("#to-offset")
            at(step)
        page.click("#last")
        assert "STOP" in page.inner_text("#position") or page.locator("text=more follow").count()
        built = page.locator("#built-names option")
        if built.count():
            page.fill("#built", built.first.get_attribute("value"))
            page.click("#to-tensor")
            assert "Tensor(" in page.inner_text("#effect") or "Parameter" in page.inner_text("#effect"), page.inner_text("#effect")
    if screenshots:
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=screenshots / f"{path.stem[:30].replace('/', '_')}-top.png")
    for summary in page.locator("details > summary").all()[:60]:
        if summary.is_visible():
            summary.click()
    check_accessible(page)
    check_columns(page)
    check_histograms(page)
    if screenshots:
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=screenshots / f"{path.stem[:30].replace('/', '_')}.png", full_page=True)
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"the page is {width} pixels wider than the window"
    assert not errors, errors
    assert [url for url in requests if not url.startswith(("file:", "blob:", "data:"))] == []


def safetensors(path, tensors):
    """Writes a file of float32 vectors by name."""
    header, data = {}, b""
    for name, numbers in tensors.items():
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": [len(numbers)], "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def check_diff(page, binary, a, b, report):
    """Compares the page of the differences with `diff --json`."""
    errors, requests = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector("body[data-ready=true]", timeout=60_000)
    assert page.title() == f"{a.name} and {b.name} – torch2carton diff", page.title()
    assert page.locator("main img, main script").count() == 0
    difference = json.loads(subprocess.run([binary, "diff", "--json", a, b], capture_output=True, text=True).stdout)
    rows = difference["tensors"]
    assert page.inner_text("#verdict").startswith("The two differ: ") and rows
    names = [" → ".join(dict.fromkeys(row[side]["name"] for side in "ab" if row[side])) for row in rows]
    for wanted in ("", "<script>", "MOVED"):
        page.fill("#search", wanted)
        expected = [name for name in names if wanted.lower() in name.lower()]
        shown = page.locator("#tensors ~ div table tbody tr td:nth-child(2)").all_text_contents()
        assert shown == expected[:100], (shown[:3], expected[:3])
    page.fill("#search", "")
    page.select_option("#kind", "changed")
    changed = [row for row in rows if "changed" in row["changes"]]
    assert page.inner_text("#found").startswith(f"{len(changed)} of {len(rows)} tensors"), page.inner_text("#found")
    for summary in page.locator("details > summary").all():
        summary.click()
    check_accessible(page)
    check_columns(page)
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"the page is {width} pixels wider than the window"
    assert not errors, errors
    assert [url for url in requests if not url.startswith(("file:", "blob:", "data:"))] == []


def check_frame(page, report, folder):
    """The page opens in the frame that a notebook shows: `_repr_html_` in python/python/torch2carton/_views.py."""
    frame = f'<iframe sandbox="allow-scripts" title="report" srcdoc="{html.escape(report.read_text())}"></iframe>'
    notebook = Path(folder, "notebook.html")
    notebook.write_text(f"<!doctype html><meta charset=utf-8>{frame}")
    errors = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(notebook.as_uri())
    shown = page.frame_locator("iframe")
    shown.locator("body[data-ready=true]").wait_for(timeout=60_000)
    shown.locator("#search").fill("no such tensor")
    assert shown.locator("#found").inner_text().startswith("0 of"), shown.locator("#found").inner_text()
    assert not errors, errors


def check_sizes(page, binary, folder):
    """Bounds the pages about 100,000 tensors: 3 MB, and 15 MB with statistics. They open, and the search finds one tensor."""
    path = Path(folder, "many.safetensors")
    noise = random.Random(1)
    parts = ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1", "feed_forward.w2", "norm", "bias")
    safetensors(path, {
        f"model.layers.{at // len(parts)}.{parts[at % len(parts)]}.weight": [noise.gauss(0, 1) for _ in range(16)]
        for at in range(MANY)
    })
    report = Path(folder, "many.html")
    for flags, bound in (([], 3_000_000), (["--stats"], 15_000_000)):
        succeed(binary, "report", "--force", *flags, path, "-o", report)
        size = report.stat().st_size
        print(f"{MANY:,} tensors {' '.join(flags)}: {size:,} bytes", flush=True)
        assert size <= bound, (size, bound)
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(report.as_uri())
        page.wait_for_selector("body[data-ready=true]", timeout=120_000)
        page.fill("#search", "layers.777.attention.wq")
        assert page.inner_text("#found").startswith(f"1 of {MANY:,} tensors"), page.inner_text("#found")
        assert not errors, errors


def chat_model(folder):
    """The small model of the README, with a tokenizer whose tokens are characters and a template that leaves out most of a message."""
    subprocess.run(["cargo", "run", "--quiet", "--locked", "--example", "tiny-llama", "--", folder], check=True, cwd=TREE)
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?s)."}, "behavior": "Isolated", "invert": False},
        "model": {"type": "WordLevel", "vocab": {chr(code): code for code in range(256)}, "unk_token": "?"},
    }))
    (folder / "chat_template.jinja").write_text("{% for message in messages %}<{{ message.content[:9] }}>{% endfor %}")


def check_chat(page, binary, folder):
    """Talks on the page of `serve`, which needs a key: nothing but the server is asked, and what comes is text."""
    errors, requests = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    server = subprocess.Popen([binary, "serve", folder, "--name", "m", "--port", "0", "--quiet", "--api-key", "sesame"], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        page.goto(address)
        page.wait_for_selector("#key-row:not([hidden])")
        page.fill("#key", "sesame")
        page.dispatch_event("#key", "change")
        page.wait_for_selector("#model option", state="attached")
        for message in NAMES[:2]:
            turns = page.locator(".turn.assistant").count()
            page.fill("#text", message)
            page.keyboard.press("Control+Enter")
            page.locator(".turn.assistant").nth(turns).filter(has_text=re.compile(".")).wait_for()
            page.click("#stop")
            page.wait_for_selector("#send:not([hidden])")
            assert page.locator(".turn.user").all_text_contents()[-1] == message
            assert page.locator(".turn.assistant").all_text_contents()[-1] and not page.locator(".turn.error").count(), page.inner_text("#turns")
        assert page.locator("#turns > :not(p), #turns p > *").count() == 0
        check_accessible(page)
        page.click("#clear")
        assert page.locator(".turn").count() == 0
        assert not errors and all(url.startswith((f"{address}/", "data:")) for url in requests), (errors, requests)
    finally:
        server.kill()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--screenshots", type=Path)
    arguments.add_argument("--sizes", action="store_true")
    arguments.add_argument("--corpus", action="store_true")
    arguments.add_argument("files", nargs="*", type=Path)
    options = arguments.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        print("skipped: Chromium is not installed (apt-get install chromium)")
        return 0
    try:
        import axe_playwright_python  # noqa: F401
        from playwright.sync_api import sync_playwright
    except ImportError:
        playwright()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    files = options.files or [SHARED / name for name in CORPUS if options.corpus] or sorted((TREE / "tests/golden/checkpoints").glob("*.pt*"))[:12]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        chromium = tool.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for number, path in enumerate([hostile(folder), *files]):
            report = Path(folder, f"{number}.html")
            trace = [] if path.suffix == ".safetensors" else ["--trace"]
            # The page names the path as it was given: without folders, it is the same everywhere.
            succeed(options.binary.resolve(), "report", "--stats", *trace, "./" + path.name, "-o", report, cwd=path.parent)
            for name, settings in (("wide", {"viewport": {"width": 1000, "height": 900}}),
                                   ("phone", {"viewport": {"width": 380, "height": 800}, "color_scheme": "dark"})):
                page = chromium.new_page(**settings)
                check(page, options.binary, path, report, options.screenshots / name if options.screenshots else None)
                page.close()
            if number == 0:
                check_frame(chromium.new_page(), report, folder)
            print(f"{path.name}: {report.stat().st_size:,} bytes, no errors", flush=True)
        a, b = (Path(folder, f"</script><img src=x onerror=alert(5)>{side}.safetensors".replace("/", "\u2215")) for side in "ab")
        numbers = {name: [float(at), 1.0, 2.0] for at, name in enumerate(NAMES)}
        safetensors(a, numbers | {"layers.0.old": [7.0, 8.0, 9.5], "gone": [1.0]})
        safetensors(b, {name: [value[0], 1.5, 2.0] for name, value in numbers.items()} | {"layers.0.moved": [7.0, 8.0, 9.5]})
        report = Path(folder, "diff.html")
        succeed(options.binary, "report", a, b, "-o", report)
        for settings in ({"viewport": {"width": 1200, "height": 900}}, {"viewport": {"width": 380, "height": 800}, "color_scheme": "dark"}):
            page = chromium.new_page(**settings)
            check_diff(page, options.binary, a, b, report)
            page.close()
        print(f"{a.name} and {b.name}: {report.stat().st_size:,} bytes, no errors", flush=True)
        model = Path(folder, "model")
        chat_model(model)
        for settings in ({"viewport": {"width": 900, "height": 700}}, {"viewport": {"width": 380, "height": 800}, "color_scheme": "dark"}):
            check_chat(chromium.new_page(**settings), options.binary.resolve(), model)
        print("the page of serve: no errors", flush=True)
        if options.sizes:
            check_sizes(chromium.new_page(), options.binary, folder)
        chromium.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
