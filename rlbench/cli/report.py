"""``rlbench report``: all results in one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rlbench.cli import completion
from rlbench.cli.options import Records, Reference, References, argument, option, suites_named
from rlbench.cli.output import print_note, write_file
from rlbench.errors import UsageError


def report(
    suite: Annotated[
        list[str] | None, argument("[SUITE|all]...", "Only these; default: all.", completion.suites)
    ] = None,
    *,
    output: Annotated[Path, option("--output FILE.html|.md", "The HTML or Markdown file to write.")],
    results: Records = None,
    references: References = None,
    reference: Reference = None,
) -> None:
    """Write one page of everything that was measured.

    It has tables, verdicts, figures, every seed, the machines, the missing runs and their cost. The page needs no
    network and no other file. A FILE.md is for reading beside the records: verdicts counted, what the rest would
    cost, and the tables, with the figures in `plots`.
    """
    del references, reference  # their callbacks have selected them
    names = suites_named(suite or (), results)
    if output.suffix not in {".html", ".htm", ".md"}:
        raise UsageError(f"--output {output}: a report is written as .html or .md")
    if not output.parent.is_dir() or output.is_dir():
        raise UsageError(f"--output {output}: name a file in a folder that exists")
    from rlbench.report.pages import html_page, markdown_page
    from rlbench.report.sources import sources

    text = (markdown_page if output.suffix == ".md" else html_page)(names, sources(results))
    write_file(output, text)
    print_note(f"{output}: {len(text.encode()):,} bytes")
