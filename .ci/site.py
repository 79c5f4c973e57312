#!/usr/bin/env python3
"""Builds the site of docs/ with mdBook, and checks every link of the pages.

    site.py             builds target/book, and fails if a link of a page leads nowhere
    site.py preprocess  the preprocessor that book.toml names: mdBook calls it

The README becomes the first page. A link from docs/ to a file of the repository, which is not a part of the site, becomes the
name of that file.
"""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

TREE = Path(__file__).resolve().parent.parent
SITE = TREE / "target/book"


def page_link(text, path):
    """The text of a Markdown link to `path`, relative to docs/, as the site has it."""
    if path.startswith("../docs/"):
        return f"[{text}]({path.removeprefix('../docs/')})"
    if not path.startswith("../") or path == "../README.md":
        return f"[{text}]({path.replace('../README.md', 'index.md')})"
    name = path.removeprefix("../")
    return f"`{name}`" if text.strip("`") == name else f"{text} (`{name}` in the repository)"


def rewritten(content):
    """The content of a chapter with its links rewritten, outside of code blocks."""
    parts = re.split(r"(^```.*?^```$)", content, flags=re.M | re.S)
    parts[::2] = [re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", lambda link: page_link(*link.groups()), part) for part in parts[::2]]
    return "".join(parts)


def preprocess():
    _, book = json.load(sys.stdin)
    # Its name depends on the version of mdBook.
    items = book["items"] if "items" in book else book["sections"]
    chapters = [item["Chapter"] for item in items if isinstance(item, dict) and "Chapter" in item]
    for chapter in chapters:
        chapter["content"] = rewritten(chapter["content"])
    readme = re.sub(r"\]\((?!\w+:)([^)\s]+)\)", r"](../\1)", (TREE / "README.md").read_text())
    first = dict(chapters[0], name="torch2carton", content=rewritten(readme), path="index.md", source_path="index.md")
    items.insert(0, {"Chapter": {**first, "number": None, "sub_items": [], "parent_names": []}})
    json.dump(book, sys.stdout)


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]


def broken_links():
    # All chapters are in print.html too, and 404.html has links from the root of a server.
    paths = [path for path in SITE.glob("*.html") if path.name not in ("print.html", "404.html")]
    pages = {path.name: Page(path) for path in paths}
    for name, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            path = unquote(url.path) or name
            has_anchor = not url.fragment or path not in pages or unquote(url.fragment) in pages[path].anchors
            if not ((SITE / path).is_file() and has_anchor):
                yield f"{name}: {link}"


def main():
    if sys.argv[1:2] == ["preprocess"]:
        # mdBook asks first which output is supported: each.
        return None if sys.argv[2:3] == ["supports"] else preprocess()
    subprocess.run(["mdbook", "build", TREE], check=True)
    broken = sorted(set(broken_links()))
    if broken:
        sys.exit("these links of the site lead nowhere:\n" + "\n".join(broken))
    print(f"{len(list(SITE.glob('*.html')))} pages, all links lead somewhere")


if __name__ == "__main__":
    main()
