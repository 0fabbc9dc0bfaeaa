"""The options of a command as help shows them: by panel, whole names, 80 columns."""

from __future__ import annotations

from typing import Any

_COL_MAX = 28
_LAST = "Options"  # --help and what has no panel


def write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments and options into ``formatter``, one section for each panel."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = _record(parameter, ctx)
        if record is not None:
            is_argument = parameter.param_type_name == "argument"
            panel = parameter.rich_help_panel or ("Arguments" if is_argument else _LAST)
            sections.setdefault(panel, []).append(record)
    for panel in sorted(sections, key=lambda panel: panel == _LAST):
        with formatter.section(panel):
            formatter.write_dl(sections[panel], col_max=_COL_MAX)


def _record(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    if parameter.param_type_name == "argument" and not parameter.hidden:
        return parameter.display_name_raw, parameter.help or ""
    record: tuple[str, str] | None = parameter.get_help_record(ctx)
    return record
