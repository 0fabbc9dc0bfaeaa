"""Target steps per emitted token on extraction tasks, with and without the grammar drafter.

    python tests/benchmarks/grammar_steps.py MODEL.gguf [--threads 1]

Eight tasks with a JSON schema each, at temperature 0 and with a fixed draft length, so that
the figures are the same in every run. An answer that depends on the drafter ends the program.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.speculative.engine import Engine
from outrider.speculative.events import FinishEvent, GenerationResult
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    GrammarSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

Schema = dict[str, Any]
WAYS: dict[str, tuple[str, ...]] = {
    "none": (),
    "grammar": ("grammar",),
    "ngram-simple": ("ngram-simple",),
    "grammar,ngram-simple": ("grammar", "ngram-simple"),
}


def text(length: int = 40) -> Schema:
    return {"type": "string", "maxLength": length}


def number(most: int) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": most}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def record(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def several(item: Schema, least: int, most: int) -> Schema:
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


@dataclass(frozen=True, slots=True)
class Task:
    """A text and what is to be found in it."""

    name: str
    source: str
    schema: Schema

    @property
    def prompt(self) -> str:
        names = ", ".join(self.schema["properties"])
        return f"Extract {names} as JSON from this text.\n\n{self.source}"

    @property
    def grammar(self) -> GrammarSettings:
        return GrammarSettings("json-schema", json.dumps(self.schema), self.name)


TASKS = (
    Task(
        "invoice",
        "Invoice 2024-117 of Miller Tools, Berlin, dated 3 May 2024: 4 hammers at 12 euros and"
        " 10 saws at 20 euros. The total of 248 euros is due on 2 June 2024.",
        record(
            documentType={"const": "supplier-invoice"},
            invoiceIdentifier=text(),
            supplierInformation=record(supplierName=text(), supplierCity=text()),
            lineItems=several(
                record(
                    articleDescription=text(),
                    orderedQuantity=number(99),
                    unitPriceInEuros=number(999),
                ),
                2,
                2,
            ),
            totalAmountInEuros=number(9999),
            paymentStatus=one_of("not-yet-paid", "partially-paid", "completely-paid"),
        ),
    ),
    Task(
        "contact",
        "Ruby Stone, head of research at Northwind Labs, can be called at 555 0199 or written to"
        " at ruby@northwind.example. She prefers e-mail.",
        record(
            contactPersonFirstName=text(),
            contactPersonLastName=text(),
            employerOrganisationName=text(),
            electronicMailAddress=text(),
            telephoneNumber=text(),
            preferredContactChannel=one_of("telephone-call", "electronic-mail", "postal-letter"),
        ),
    ),
    Task(
        "weather",
        "Oslo, Tuesday morning: 4 degrees and rain, wind 30 km/h from the west. In the afternoon"
        " it clears up at 9 degrees and the wind drops to 10 km/h.",
        record(
            reportType={"const": "two-period-weather-forecast"},
            locationName=text(),
            morningForecast=record(
                temperatureInCelsius=number(50),
                windSpeedInKilometresPerHour=number(200),
                skyCondition=one_of("clear-sky", "partly-cloudy", "rain-showers"),
            ),
            afternoonForecast=record(
                temperatureInCelsius=number(50),
                windSpeedInKilometresPerHour=number(200),
                skyCondition=one_of("clear-sky", "partly-cloudy", "rain-showers"),
            ),
        ),
    ),
    Task(
        "ticket",
        "Hello, since the update to version 3.2 the export button of the report page does"
        " nothing, in Firefox and in Chrome. We cannot work! Please help today. Tom Becker",
        record(
            ticketCategory=one_of("software-defect", "feature-request", "billing-question"),
            ticketPriority=one_of("low-priority", "normal-priority", "urgent-priority"),
            affectedProductVersion=text(),
            affectedUserInterfaceElement=text(),
            reportedByCustomerName=text(),
            requiresImmediateResponse={"type": "boolean"},
            reproducedInBrowsers=several(one_of("Firefox", "Chrome", "Safari"), 1, 3),
        ),
    ),
    Task(
        "recipe",
        "Pancakes for 4 people: mix 200 g flour, 2 eggs and 300 ml milk, wait 15 minutes, then"
        " fry for 20 minutes. Easy.",
        record(
            recipeTitle=text(),
            numberOfServings=number(20),
            difficultyLevel=one_of("easy-for-beginners", "intermediate-level", "expert-level"),
            ingredientList=several(
                record(
                    ingredientName=text(),
                    ingredientQuantity=number(999),
                    measurementUnit=one_of("grams", "millilitres", "pieces"),
                ),
                3,
                3,
            ),
            preparationTimeInMinutes=number(999),
            cookingTimeInMinutes=number(999),
        ),
    ),
    Task(
        "event",
        "The spring concert of the city orchestra takes place on 12 April 2025 at 19:30 in the"
        " Old Mill, Bridge Street 5. Tickets cost 15 euros, children free.",
        record(
            eventInformation=record(
                eventTitle=text(),
                eventCategory=one_of("music-performance", "theatre-performance", "sports-event"),
                organisingInstitution=text(),
            ),
            scheduleInformation=record(startDate=text(12), startTime=text(8)),
            venueInformation=record(venueName=text(), streetAddress=text()),
            ticketPriceInEuros=number(999),
            childrenEnterFree={"type": "boolean"},
        ),
    ),
    Task(
        "server log",
        "2024-11-02 03:14:07 web-2 ERROR payment service did not answer within 30 s; retried 3"
        " times; 12 orders lost",
        record(
            schemaVersion={"const": "log-record-version-2"},
            eventTimestamp=text(20),
            originatingHostName=text(),
            severityLevel=one_of("severity-information", "severity-warning", "severity-error"),
            failureInformation=record(
                failingComponentName=text(),
                failureDescription=text(80),
                numberOfRetries=number(99),
                numberOfLostOrders=number(999),
            ),
        ),
    ),
    Task(
        "job",
        "We look for a data engineer in Lisbon, full time, at least 3 years with Python and SQL."
        " 50000 to 65000 euros a year. Two days a week from home.",
        record(
            positionTitle=text(),
            employmentType=one_of("full-time-employment", "part-time-employment", "internship"),
            workplaceLocation=text(),
            minimumYearsOfExperience=number(50),
            requiredProgrammingLanguages=several(text(20), 2, 2),
            annualSalaryRangeInEuros=record(lowerBound=number(999999), upperBound=number(999999)),
            remoteWorkPolicy=one_of("fully-remote", "partially-remote", "on-site-only"),
        ),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    model = ModelSettings(arguments.model, ctx_size=1024, threads=arguments.threads)
    answers = {name: answer_all(model, kinds) for name, kinds in WAYS.items()}
    print(f"{arguments.model.name}: steps per emitted token, {len(TASKS)} tasks\n")
    print(
        f"{'':22}{'steps':>7}{'tokens':>8}{'steps/token':>13}{'ratio':>7}{'accepted/drafted':>18}"
    )
    for name, results in answers.items():
        differ = [
            task.name
            for task, plain, ours in zip(TASKS, answers["none"], results, strict=True)
            if plain.token_ids != ours.token_ids
        ]
        if differ:
            raise SystemExit(f"{name}: not the answer of plain decoding: {', '.join(differ)}")
        print(line(name, results, answers["none"]))
    for task, *results in zip(TASKS, answers["none"], answers["grammar"], strict=True):
        print(line(f"grammar: {task.name}", results[1:], results[:1]))


def answer_all(model: ModelSettings, kinds: Sequence[str]) -> list[GenerationResult]:
    drafters = tuple(DrafterSettings(kind) for kind in kinds)
    settings = EngineSettings(model, drafters, SpeculationSettings(adaptive=False))
    with Engine.load(settings) as engine:
        session = engine.session()
        return [answer(engine, session, task) for task in TASKS]


def answer(engine: Engine, session: Session, task: Task) -> GenerationResult:
    settings = GenerationSettings(SamplingSettings(temp=0), predict=400, grammar=task.grammar)
    prompt = engine.render([{"role": "user", "content": task.prompt}])
    session.reset()
    *_, last = session.generate(prompt, settings)
    assert isinstance(last, FinishEvent)
    return last.result


def line(name: str, results: Sequence[GenerationResult], plain: Sequence[GenerationResult]) -> str:
    steps, tokens = (sum(getattr(r.stats, of) for r in results) for of in ("steps", "emitted"))
    plain_steps = sum(result.stats.steps for result in plain)
    drafted, accepted = (
        sum(getattr(r.stats, of) for r in results) for of in ("drafted", "accepted")
    )
    return (
        f"{name:22}{steps:7}{tokens:8}{steps / tokens:13.3f}{steps / plain_steps:7.3f}"
        f"{f'{accepted}/{drafted}':>18}"
    )


if __name__ == "__main__":
    main()
