"""``outrider doctor``: examine, then print the lines or the JSON."""

from __future__ import annotations

import json
import shutil
import sys

from outrider.cli.bench.arm import ArmSpec
from outrider.cli.bench.machine import library_facts, machine_facts
from outrider.cli.bench.show import live_row
from outrider.cli.doctor.examination import examine
from outrider.cli.doctor.view import doctor_lines
from outrider.cli.glyphs import glyphs_for
from outrider.cli.lines import print_lines


def run_doctor(spec: ArmSpec, *, as_json: bool) -> int:
    """Print what was found out; stdout alone decides how wide the lines may be."""
    machine = machine_facts()
    with live_row() as tell:
        diagnosis = examine(spec, machine, tell)
    if as_json:
        print_lines(json.dumps(diagnosis.as_json(machine, library_facts())))
    else:
        width = shutil.get_terminal_size().columns
        print_lines(*doctor_lines(diagnosis, glyphs_for(sys.stdout.encoding), width))
    return 0
