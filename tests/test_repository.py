"""What holds for every file under version control."""

import ast
import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MENTION = re.compile(r"docs/[\w/-]*\w\.md")

# Which index packages come from is the installing machine's own setting, and a path of one machine
# means nothing on another. Brackets keep the patterns from matching themselves.
FORBIDDEN = {
    "a package index": r"py[p]i\.org|pyth[o]nhosted|anac[o]nda\.(org|com)",
    "an option that names an index": r"--(extra-)?index[-]url|--find[-]links|--trusted[-]host",
    "an absolute path of one machine": r"(?<![\w.])/(work|root|home/\w+|Users/\w+)[/]",
}


def tracked_files() -> Iterator[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - git is wherever the machine has it
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listing.returncode != 0:
        pytest.skip("this is not a git checkout")
    files = (ROOT / name for name in listing.stdout.split("\0") if name)
    return (path for path in files if path.is_file())


def findings(text: str) -> list[str]:
    return [
        f"line {number} names {what}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in FORBIDDEN.items()
        if re.search(pattern, line)
    ]


def test_no_file_names_an_index_or_a_place_on_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {finding}"
        for path in tracked_files()
        for finding in findings(path.read_bytes().decode(errors="replace"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "see https://py" + "pi.org/project/x",
        "pip install --index" + "-url=x",
        "cd /wo" + "rk/main",
        'cache = "/ro' + 'ot/.cache"',
    ],
)
def test_a_forbidden_line_is_found(line: str) -> None:
    assert len(findings(f"first\n{line}\n")) == 1


@pytest.mark.parametrize("line", ["see src/work/x", "#!/usr/bin/env bash", "/homework/", "a/root/"])
def test_an_innocent_line_is_not(line: str) -> None:
    assert findings(line) == []


def test_constraints_pin_each_package_once() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []
    names = [pin.partition("==")[0] for pin in pins]
    assert names == sorted(set(names))


# ---- pages of documentation


def prose(page: Path) -> str:
    """Give a page's text without its blocks of code and its code in the line."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """Give what a link into *page* can end with after `#`: its headings, as GitHub writes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {words.replace(" ", "-") for words in kept}


def dead_links(page: Path) -> list[str]:
    """Give the relative links of a page that lead nowhere."""
    dead = []
    for link in LINK.findall(prose(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One heading, of: three\n[a](page.md) [b](gone.md) [c](#one-heading-of-three) [d](#two)\n"
        "[e](https://example.org) `[f](code.md)`\n```\n[g](block.md)\n```\n",
        encoding="utf-8",
    )
    assert dead_links(page) == ["gone.md", "#two"]


def lost_imports(code: str) -> list[str]:
    """Give what code imports from the package that is not there, without importing anything."""
    lost = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("coterie"):
            module = ROOT.joinpath("src", *node.module.split("."))
            file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            lost += [
                f"{node.module}.{alias.name}"
                for alias in node.names
                if not re.search(rf"\b{alias.name}\b", text) and not (module / alias.name).exists()
            ]
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_pages_import_is_there(page: Path) -> None:
    blocks = re.findall(r"(?ms)^```python[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"))
    whole = [textwrap.dedent(block) for block in blocks if "import " in block]
    assert [lost for block in whole for lost in lost_imports(block)] == []


def test_a_lost_import_is_found() -> None:
    code = "from coterie.stacks import LAYERS, GONE\nfrom coterie.nowhere import thing"
    assert lost_imports(code) == ["coterie.stacks.GONE", "coterie.nowhere.thing"]


def test_every_page_that_code_tests_or_pages_name_exists() -> None:
    gone = [
        f"{path.relative_to(ROOT)}: {mention}"
        for path in tracked_files()
        for mention in MENTION.findall(path.read_bytes().decode(errors="replace"))
        if not (ROOT / mention).exists()
    ]
    assert gone == []
