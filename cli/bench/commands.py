"""The commands of ``outrider bench``. What each does is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.errors import UsageError
from outrider.cli.options import (
    SCREEN_FIELDS,
    ProfileOption,
    VerboseOption,
    path_of,
    takes_fields,
)
from outrider.cli.strict_parser import StrictCommand
from outrider.profiles.fields import check

app = typer.Typer(
    help="Measure: what speculation brings here, and how sure that is.", rich_markup_mode=None
)

JsonOption = Annotated[
    bool, typer.Option("--json", rich_help_panel="Output", help="print one JSON object instead")
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        rich_help_panel="Output",
        help="save the result with every round as JSON",
    ),
]
PromptSetOption = Annotated[
    str | None,
    typer.Option(
        "--prompts",
        metavar="FILE.jsonl",
        rich_help_panel="Prompts",
        help="rows with question_id, category and turns (default: the built-in set)",
    ),
]


@app.command(cls=StrictCommand)
@takes_fields(leave_out=("speculation.synth_rates", "speculation.synth_len", *SCREEN_FIELDS))
def synthetic(
    *,
    rates: Annotated[
        str | None,
        typer.Option(
            "--rates",
            metavar="R,R,...",
            rich_help_panel="Acceptance",
            help="chance that the first 1, 2, ... draft tokens are all accepted",
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(
            "--len", metavar="L", rich_help_panel="Acceptance", help="mean accepted length"
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option("--steps", min=1, metavar="N", help="steps to take (default 5000)")
    ] = 5000,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    output: OutputOption = None,
    verbose: VerboseOption = False,
    overrides: dict[str, object],
) -> int:
    """Measure the machinery at a chosen acceptance: coins decide what is accepted.

    End tokens are ignored. The drafter is filler, which costs nothing, unless --spec-type
    names another.
    """
    from outrider.cli.bench.arm import arm_of
    from outrider.cli.bench.show import finish, live_row
    from outrider.cli.bench.synthetic import result_of, run_synthetic, table

    for name, path, text in (
        ("--rates", "speculation.synth_rates", rates),
        ("--len", "speculation.synth_len", length),
    ):
        if text is not None:
            overrides[path] = check(path, text, name=name)
    if rates is None and length is None:
        raise UsageError("bench synthetic needs --rates R,R,... or --len L")
    spec = arm_of(profile, overrides)
    with live_row() as tell:
        run = run_synthetic(spec, steps, tell)
    return finish(result_of(run, spec), lambda glyphs: table(run, glyphs), as_json, output)


@app.command(cls=StrictCommand)
@takes_fields(
    leave_out=(
        "sampling.predict",
        "sampling.logprobs",
        "sampling.post_sampling_probs",
        "chat.context_policy",
        *SCREEN_FIELDS,
    )
)
def speed(
    *,
    prompts: PromptSetOption = None,
    category: Annotated[
        str | None,
        typer.Option(
            "--category",
            metavar="LIST",
            rich_help_panel="Prompts",
            help="only these categories, separated by commas",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            metavar="N",
            rich_help_panel="Prompts",
            help="only the first N of each category",
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="FILE",
            rich_help_panel="Prompts",
            help="later turns follow the answers of a saved run, not one's own",
        ),
    ] = None,
    osl: Annotated[
        int,
        typer.Option(
            "--osl",
            min=1,
            metavar="N",
            rich_help_panel="Prompts",
            help="most tokens in an answer",
        ),
    ] = 256,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=1,
            metavar="N",
            rich_help_panel="Prompts",
            help="ask everything N times",
        ),
    ] = 1,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            rich_help_panel="Server",
            help="an OpenAI-compatible server to ask instead; --model is the name it gets",
        ),
    ] = None,
    extra_inputs: Annotated[
        str | None,
        typer.Option(
            "--extra-inputs",
            metavar="JSON",
            rich_help_panel="Server",
            help="more fields of each request; the engine takes those of its sampling",
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            min=1,
            metavar="N",
            rich_help_panel="Server",
            help="requests at once",
        ),
    ] = 1,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.001,
            metavar="S",
            rich_help_panel="Server",
            help="seconds to wait for an answer",
        ),
    ] = 600.0,
    profile: ProfileOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    output: OutputOption = None,
    overrides: dict[str, object],
) -> int:
    """Ask prompts of several categories: speed and acceptance of the engine, or of a server.

    The temperature is 0 and the seed 0 unless they are given. Only one's own answers, or with
    --replay those of a saved run, are in the cache of a later turn.
    """
    from outrider.cli.bench.show import finish, live_row
    from outrider.cli.bench.speed import failures, speed_sources
    from outrider.cli.bench.speed_command import SpeedRequest, measure
    from outrider.cli.bench.speed_view import speed_lines
    from outrider.cli.errors import say

    request = SpeedRequest(
        prompts=path_of(prompts),
        category=category,
        limit=limit,
        osl=osl,
        concurrency=concurrency,
        extra_inputs=extra_inputs,
        rounds=rounds,
        replay=path_of(replay),
        url=url,
        timeout=timeout,
        profile=profile,
        overrides=overrides,
    )
    with live_row() as tell:
        result, conversations = measure(request, tell)
    failed = failures(conversations)
    for line in failed:
        say(f"outrider: error: {line}")
    clocks = speed_sources(conversations)
    finish(result, lambda glyphs: speed_lines(result, clocks, glyphs), as_json, output)
    return 1 if failed else 0


@app.command(cls=StrictCommand)
@takes_fields(
    leave_out=(
        "target.threads",
        "speculation.synth_rates",
        "speculation.synth_len",
        "sampling.logprobs",
        "sampling.post_sampling_probs",
        "chat.context_policy",
        *SCREEN_FIELDS,
    )
)
def sweep(
    argument: Annotated[
        str | None,
        typer.Argument(metavar="PROFILE", show_default=False, help="what to tune, as with -P"),
    ] = None,
    *,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="LIST",
            rich_help_panel="Candidates",
            help="draft lengths, such as 0,1,2,3,4,6,8,adaptive; 0 is no drafter (the default"
            " where nothing else is tried)",
        ),
    ] = None,
    p_min: Annotated[
        str | None,
        typer.Option(
            "--p-min",
            metavar="LIST",
            rich_help_panel="Candidates",
            help="values of --spec-draft-p-min, such as 0,0.3,0.6",
        ),
    ] = None,
    drafters: Annotated[
        str | None,
        typer.Option(
            "--drafters",
            metavar="LIST",
            rich_help_panel="Candidates",
            help='values of --spec-type, with semicolons between: "ngram-mod;draft-eagle3;none"',
        ),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify",
            metavar="LIST",
            rich_help_panel="Candidates",
            help="values of --spec-verify, such as match,rejection",
        ),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--threads",
            metavar="LIST",
            rich_help_panel="Candidates",
            help="numbers of threads, such as 1,2; a single one is for all",
        ),
    ] = None,
    prompts: PromptSetOption = None,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=1,
            metavar="N",
            rich_help_panel="Prompts",
            help="halve the candidates up to N - 1 times",
        ),
    ] = 2,
    write: Annotated[
        str | None,
        typer.Option(
            "--write",
            metavar="NAME",
            rich_help_panel="Output",
            help="save the best as a profile of your own",
        ),
    ] = None,
    chart: Annotated[
        str | None,
        typer.Option(
            "--chart",
            metavar="FILE.svg|png",
            rich_help_panel="Output",
            help="draw the charts as a picture",
        ),
    ] = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    output: OutputOption = None,
    verbose: VerboseOption = False,
    overrides: dict[str, object],
) -> int:
    """Find the fastest draft length, or whatever else is tried, for a profile.

    All candidates answer the same prompts in turn; those that are really slower leave after a
    round, the others go on with more prompts. The first 48 tokens of an answer count, or -n.
    """
    from outrider.cli.bench.arm import arm_of
    from outrider.cli.bench.candidates import read_axes
    from outrider.cli.bench.sweep_command import SweepRequest, run_sweep

    if argument is not None and profile is not None:
        raise UsageError("the profile is given twice: as an argument and with -P/--profile")
    request = SweepRequest(
        spec=arm_of(argument or profile, overrides),
        axes=read_axes(lengths, p_min, drafters, verify, threads),
        prompts=path_of(prompts),
        num_rounds=rounds,
        write=write,
        chart=path_of(chart),
    )
    return run_sweep(request, as_json, output)


@app.command(cls=StrictCommand)
def compare(
    a: Annotated[
        str,
        typer.Argument(metavar="A", show_default=False, help='the base: "PROFILE [flags]"'),
    ],
    b: Annotated[
        str,
        typer.Argument(metavar="B", show_default=False, help="what may be faster, as A"),
    ],
    *,
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            rich_help_panel="Prompts",
            help="JSONL as for bench speed, or a prompt a line (default: eight of our own)",
        ),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=3,
            metavar="N",
            rich_help_panel="Prompts",
            help="how often each prompt is asked, the warm-up not counted",
        ),
    ] = 12,
    predict: Annotated[
        int,
        typer.Option(
            "-n",
            "--predict",
            min=8,
            metavar="N",
            rich_help_panel="Prompts",
            help="tokens of each answer; end tokens are ignored",
        ),
    ] = 32,
    delay: Annotated[float, typer.Option("--plant-delay", min=0.0, max=10.0, hidden=True)] = 0.0,
    as_json: JsonOption = False,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Say whether B is faster than A, and whether both write the same text.

    Three engines are loaded: A, A again to see how far the machine's noise reaches, and B.
    They answer each prompt in turn, at temperature 0 unless --temp is among an arm's flags.
    """
    from outrider.cli.bench.arm import parse_arm
    from outrider.cli.bench.compare import Request, read_compare_prompts, result_of, run_compare
    from outrider.cli.bench.compare_view import compare_lines
    from outrider.cli.bench.show import finish, live_row

    samples = read_compare_prompts(path_of(prompts))
    request = Request(parse_arm(a), parse_arm(b), samples, rounds, predict, delay)
    with live_row() as tell:
        made = run_compare(request, tell)
    return finish(result_of(made), lambda glyphs: compare_lines(made, glyphs), as_json, output)


@app.command(cls=StrictCommand)
def report(
    results: Annotated[list[str], typer.Argument(metavar="FILE", show_default=False)],
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="compare although prompts, models, settings or machines differ"
        ),
    ] = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> int:
    """Compare saved results, category by category; the first file is the base.

    Runs of the same side become one column, the median of their speeds.
    """
    from outrider.cli.bench.report import read_report
    from outrider.cli.bench.show import show

    made = read_report([Path(name) for name in results], force=force)
    return show(made.as_json(), made.lines, as_json)
