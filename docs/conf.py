"""Settings of the documentation site. `make docs` builds it into build/site; a warning fails the build.

The pages are written to be read in the repository too. Two things differ there and are translated here: links to files
outside docs/, and docstrings, which are plain text rather than reStructuredText.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

from vcsd import __version__

ROOT = Path(__file__).parents[1]

project = "vcsd"
author = "The vcsd authors"
project_copyright = "The vcsd authors, Apache-2.0"
version = release = __version__

INTERNAL = (
    "config.sections.Section",
    "data.skips.SkipsState",
    "data.stream.ExampleSource",
    "data.stream.T",
    "evaluation.scoring.uncertainty.Interval",
    "rollout.memory.CacheCost",
    "trainer.drawing.DrawingTrainer",
    "trainer.resumable.ResumableTrainer",
)
"""Types that appear in public signatures and have no page of their own."""

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["results/cells"]
nitpicky = True
# Types of other libraries have no page here. Types of this package are linked, see `link_by_short_name`.
nitpick_ignore_regex = [("py:.*", r"(?!vcsd\.).*"), *(("py:.*", re.escape(f"vcsd.{name}")) for name in INTERNAL)]

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
default_role = "literal"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": False}
add_module_names = False
python_maximum_signature_line_length = 88

templates_path: list[str] = []
html_theme = "furo"
html_title = f"vcsd {__version__}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f6f5c", "color-brand-content": "#1a6653"},
    "dark_css_variables": {"color-brand-primary": "#5fd0b3", "color-brand-content": "#6fd8bd"},
    "footer_icons": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

IMAGES = (".png", ".svg")
WHOLE_FILES = {
    "project/changelog": "CHANGELOG.md",
    "project/contributing": "CONTRIBUTING.md",
    "project/security": "SECURITY.md",
}
"""Pages whose content is a file at the root of the repository."""


def take_from_root(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill the pages of WHOLE_FILES, and translate links that lead out of docs/."""
    if page in WHOLE_FILES:
        file = ROOT / WHOLE_FILES[page]
        app.env.note_dependency(str(file))
        source[0] = file.read_text(encoding="utf-8").replace("](docs/", "](../docs/")
    if page == "results/README":  # written by `vcsd reproduce`, which knows nothing of this site
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
    up = "../" * (page.count("/") + 1)
    source[0] = re.sub(r"\]\(((?:\.\./)*)([^)#:\s]+)(#[^)\s]*)?\)", lambda link: translated(link, page, up), source[0])


def translated(link: re.Match[str], page: str, up: str) -> str:
    """Return a Markdown link as the site needs it: to a page of the site, or to a copy of a file."""
    folder = Path(page).parent if page not in WHOLE_FILES else Path("..")
    target = (ROOT / "docs" / folder / (link[1] + link[2])).resolve()
    if page in WHOLE_FILES and link[1]:
        target = (ROOT / link[2]).resolve()
    anchor = link[3] or ""
    if not target.is_relative_to(ROOT):
        return link[0]
    inside = str(target.relative_to(ROOT))
    homes = {file: home for home, file in WHOLE_FILES.items()} | {"README.md": "index"}
    if inside in homes:
        return f"](/{homes[inside]}.md{anchor})"
    if inside.startswith("docs/") and target.suffix == ".md":
        return f"](/{inside.removeprefix('docs/')}{anchor})"
    if inside.startswith("docs/"):
        return f"](/{inside.removeprefix('docs/')})"
    if target.is_dir() or not target.exists() or target.suffix in IMAGES:
        return link[0]
    return f"](path:{up}{inside})"


def literal_blocks(_app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Show the indented blocks and aligned lists of a docstring as they were typed."""
    shown: list[str] = []
    for paragraph in filter(None, "\n".join(lines).rstrip().split("\n\n")):
        if paragraph.lstrip().startswith(">>>"):
            shown.append(paragraph)
        elif paragraph.startswith("    "):
            shown.append(".. code-block:: text\n\n" + paragraph)
        elif is_aligned(paragraph):
            shown.append(".. code-block:: text\n\n" + re.sub(r"^", "    ", paragraph, flags=re.MULTILINE))
        else:
            shown.append(escaped(paragraph))
    lines[:] = [*"\n\n".join(shown).splitlines(), ""]


def is_aligned(paragraph: str) -> bool:
    """Whether a paragraph has columns held apart by spaces, or lines that hang."""
    first, *others = paragraph.strip("\n").splitlines()
    hangs = not first.startswith("- ") and any(line.startswith(" ") for line in others)
    return hangs or any(re.search(r"\S {3,}\S", line) for line in [first, *others])


def escaped(paragraph: str) -> str:
    """Outside of `code`, link pages by name, and keep |y| and a trailing underscore from being read as markup."""
    pieces = re.split(r"(`[^`]*`)", paragraph)
    pieces[::2] = [re.sub(r"(\||(?<=\w)_(?=\W|$))", r"\\\1", prose) for prose in pieces[::2]]
    pieces[::2] = [re.sub(r"docs/(\w+)\.md", r":doc:`/\1`", prose) for prose in pieces[::2]]
    return re.sub(r"(`[^`]*`)(?=\w)", r"\1\\ ", "".join(pieces))


def link_by_short_name(
    app: Sphinx, env: BuildEnvironment, node: nodes.Element, content: nodes.TextElement
) -> nodes.reference | None:
    """Link a type in a signature by its name alone: class names are unique in the package."""
    if node.get("refdomain") != "py" or app.builder.format != "html":
        return None
    short = node["reftarget"].rpartition(".")[2]
    objects = env.domains.python_domain.objects
    places = {(entry.docname, entry.node_id) for name, entry in objects.items() if name.rpartition(".")[2] == short}
    classes = {entry.objtype for name, entry in objects.items() if name.rpartition(".")[2] == short}
    if len(places) != 1 or not classes <= {"class", "exception", "data"}:
        return None
    ((page, anchor),) = places
    return make_refnode(app.builder, node["refdoc"], page, anchor, content)


def setup(app: Sphinx) -> None:
    """Connect the translations."""
    app.connect("source-read", take_from_root)
    app.connect("autodoc-process-docstring", literal_blocks)
    app.connect("missing-reference", link_by_short_name)
