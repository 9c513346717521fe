"""For `make docs`: puts pages from outside docs/ on the site, and checks links to source files.

A link from a page to a file that is not on the site, such as a test, becomes its text with the
file's path as tooltip. So pages keep links that work in the repository.
"""

import posixpath
import re
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# The pages of the site that lie elsewhere in the repository.
OUTSIDE = {
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "flink.md": "deploy/flink/README.md",
    "schedule.md": "deploy/cron/README.md",
    "tables.md": "benchmarks/tables.md",
    "terraform.md": "deploy/terraform/README.md",
}
_ON_SITE = {source: page for page, source in OUTSIDE.items()} | {"README.md": "index.md"}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)(?: \"[^\"]*\")?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of `OUTSIDE`."""
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the links of a page to files of the repository into what the site has of them."""
    del config, files  # mkdocs passes them by name
    source = OUTSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return _LINK.sub(lambda link: _on_site(source, link), markdown)


def _on_site(source: str, link: re.Match[str]) -> str:
    text, target = link[1], link[2]
    if "://" in target or target.startswith(("#", "mailto:")):
        return link[0]
    path, _, anchor = target.partition("#")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not (ROOT / wanted).exists():
        raise PluginError(f"{source} links to {wanted}, which is not there")
    if not wanted.startswith("docs/") and wanted not in _ON_SITE:
        return f'<span title="{escape(wanted)}">{text}</span>'
    page = _ON_SITE.get(wanted) or wanted.removeprefix("docs/")
    return f"[{text}]({page}{'#' if anchor else ''}{anchor})"
