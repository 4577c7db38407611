"""A report in the format that `qualcheck report --format` asks for."""

from __future__ import annotations

import csv
import io
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from qualcheck.errors import unknown_name
from qualcheck.manifest import dump
from qualcheck.reports.cells import Report
from qualcheck.reports.sections import Section, sections

WIDTH = 100  # columns of a terminal; a table with long names may need more
KEYS = ("env", "level", "generator", "task", "grade", "predicates", "calibration")
SHARE_KEYS = ("value", "low", "high", "n", "coverage", "low_all", "high_all")
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "·": r"\textperiodcentered{}",
    "×": r"$\times$",
    # after a line end these two would be read as its arguments
    "[": "{[}",
    "*": "{*}",
    **{character: "\\" + character for character in "&%$#_{}"},
}


def headline(report: Report) -> str:
    """The first section of the terminal table alone, ending in a newline."""
    return "\n".join(_terminal_section(sections(report)[0])) + "\n"


def render(report: Report, format: str = "table") -> str:
    """The text of a report, ending in a newline.

    Args:
        format: table (terminal), md, csv (one line a value, full precision), tex (booktabs) or json (schema 1).

    Raises:
        UnknownName: no such format.
    """
    formats: dict[str, Callable[[Report], str]] = {
        "table": _terminal,
        "md": _markdown,
        "csv": _csv,
        "tex": _latex,
        "json": dump,
    }
    if format not in formats:
        raise unknown_name("report format", format, list(formats))
    return formats[format](report)


def printable(text: str) -> str:
    """Text without control characters, which names from a file could use to take over a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def width(text: str) -> int:
    """Columns that a terminal gives a text: wide East Asian characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it stands, wherever it stands."""
    return "".join(LATEX.get(character, character) for character in printable(text))


def escape_markdown(text: str) -> str:
    return "".join("\\" + c if c in "\\`*_|<>" else c for c in printable(text))


def _terminal(report: Report) -> str:
    return "\n\n".join("\n".join(_terminal_section(part)) for part in sections(report)) + "\n"


def _terminal_section(part: Section) -> Iterator[str]:
    yield part.title
    rows = [[printable(text) for text in row] for row in ([part.header] if part.header else []) + part.rows]
    if rows:
        widths = [max(width(row[at]) for row in rows) for at in range(len(rows[0]))]
        for number, row in enumerate(rows):
            yield "  ".join(
                _pad(text, size, at > 0) for at, (text, size) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            if number == 0:
                yield "  ".join("-" * size for size in widths)
    for line in part.lines:
        yield textwrap.fill(
            printable(line),
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _pad(text: str, size: int, right: bool) -> str:
    fill = " " * (size - width(text))
    return fill + text if right else text + fill


def _markdown(report: Report) -> str:
    blocks = []
    for part in sections(report):
        lines = [f"### {escape_markdown(part.title)}", ""]
        if part.header:
            lines.append("| " + " | ".join(map(escape_markdown, part.header)) + " |")
            lines.append("|---" + "|--:" * (len(part.header) - 1) + "|")
            for row in part.rows:
                name = escape_markdown(row[0].strip())
                inner = row[0].startswith(" ")
                lines.append("| " + " | ".join([f"— {name}" if inner else name, *map(escape_markdown, row[1:])]) + " |")
            lines.append("")
        lines += [f"- {escape_markdown(line)}" for line in part.lines]
        blocks.append("\n".join(lines).rstrip())
    return "\n\n".join(blocks) + "\n"


def _latex(report: Report) -> str:
    lines = ["% needs \\usepackage{booktabs}, UTF-8 input and, for quotation marks, the T1 font encoding"]
    for part in sections(report):
        lines += ["", f"\\paragraph{{{escape_latex(part.title)}}}"]
        if part.header:
            lines += [
                f"\\begin{{tabular}}{{l{'r' * (len(part.header) - 1)}}}",
                "\\toprule",
                _latex_row(part.header),
                "\\midrule",
            ]
            lines += [_latex_row(row) for row in part.rows]
            lines += ["\\bottomrule", "\\end{tabular}"]
        if part.lines:
            lines += ["\\begin{itemize}", *(f"\\item {escape_latex(line)}" for line in part.lines), "\\end{itemize}"]
    return "\n".join(lines) + "\n"


def _latex_row(row: list[str]) -> str:
    name = ("\\quad " if row[0].startswith(" ") else "") + escape_latex(row[0].strip())
    figures = ["--" if text == "-" else escape_latex(text) for text in row[1:]]
    return " & ".join([name, *figures]) + r" \\"


def _csv(report: Report) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*KEYS, "metric", *SHARE_KEYS, "reason"])
    for cell in report["cells"]:
        place = ["" if cell[key] is None else cell[key] for key in KEYS]
        content = {name: value for name, value in cell.items() if name not in KEYS}
        for metric, values, reason in _flat("", content):
            writer.writerow([*place, metric, *values, reason])
    return stream.getvalue()


def _flat(prefix: str, content: dict[str, Any]) -> Iterator[tuple[str, list[Any], str]]:
    """Every value of a cell as (dotted name, figures, reason), in alphabetical order."""
    for name in sorted(content):
        value = content[name]
        if value is None:
            yield prefix + name, [""] * len(SHARE_KEYS), content.get(f"{name}_reason", "")
        elif isinstance(value, dict) and "value" in value:
            yield prefix + name, ["" if value.get(key) is None else value[key] for key in SHARE_KEYS], ""
        elif isinstance(value, list) and not all(isinstance(point, dict) for point in value):  # numbers in a row
            for number, one in enumerate(value):
                yield f"{prefix}{name}.{number}", [one, *[""] * (len(SHARE_KEYS) - 1)], ""
        elif isinstance(value, list):  # a curve
            for point in value:
                at = f"{prefix}{name}.{point['step']}."
                for key in sorted(point.keys() - {"step"}):
                    yield at + key, [point[key], *[""] * (len(SHARE_KEYS) - 1)], ""
        elif isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        elif not isinstance(value, str):
            yield prefix + name, [value, *[""] * (len(SHARE_KEYS) - 1)], ""
