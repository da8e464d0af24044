"""Writes findings as HTML in the page's style. Jinja escapes every value in the templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from specdec.events import MAX_GAMMA
from specdec.report.definitions import DEFINITIONS, label_of
from specdec.report.figure_table import FigureTable
from specdec.report.sentences import beside_shares, capital, first_sentence
from specdec.report.verdict import Figure

_TEMPLATES = """
{% macro verdict(sentence, factor, notes, about, shares, found_in, definitions, label_of) %}
<section class="sd-verdict{{ " split" if shares }}">
{%- if factor %}
<div class="sd-factor{{ " about" if about }}" aria-hidden="true">{% if about %}<small>about</small>{% endif %}
{{- factor }}</div>{% endif -%}
<div class="sd-verdictWords"><p class="sd-headline{{ " alone" if not factor }}">{{ sentence | together }}</p>
{%- if found_in %}<p class="sd-origin"><span>{{ found_in.asked | together }}</span>
<strong>{{ found_in.sentence }}</strong> <span>{{ found_in.place | together }}</span></p>{% endif -%}
{%- if notes | length == 1 %}<p class="sd-verdictNotes">{{ notes[0] | together }}</p>
{%- elif notes %}<details class="sd-verdictNotes"><summary><span class="sd-verdictNote">{{ notes[0] | together }}</span>
<b>{{ notes[1:] | length }} more {{ "note" if notes | length == 2 else "notes" }}</b></summary>
<div class="sd-verdictNoteWords">
{%- for note in notes[1:] %}<p>{{ note | together }}</p>{% endfor -%}
</div></details>{% endif -%}
</div>
{%- if shares %}<dl class="sd-figures sd-shares">
{%- for share in shares -%}
<div{% if share.name == "measured" %} class="sd-ofSpeculation"{% endif %}>
{{- "" }}<dt title="{{ definitions[share.name].meaning }}">{{ label_of(share) }}</dt><dd>{{ share.value }}</dd></div>
{%- endfor -%}
</dl>{% endif -%}
</section>
{% endmacro %}

{% macro form_line(prompt, gamma, most, tokens) %}
<div class="sd-lineForm"><span class="sd-linePrompt">{{ prompt }}</span>
<label class="sd-lineLength"><span class="sd-lineGamma">\u03b3 {{ gamma }}</span>
<span class="sd-lineUnit">guesses a round</span>
<input class="sd-scrub" type="range" min="0" max="{{ most }}" value="{{ gamma }}" disabled></label>
<span class="sd-lineSettings">{{ tokens }} tokens \u00b7 greedy</span>
<button class="sd-action" disabled>Edit</button></div>
{% endmacro %}

{% macro status(text, done) %}
{% if text %}<p class="sd-status" role="status">{{ text }}</p>
{%- if done is not none %}<progress max="1" value="{{ '%.3f' % done }}"></progress>{% endif %}{% endif %}
{% endmacro %}

{% macro error(message, cause) %}
<p class="sd-error" role="alert"{% if cause %} data-of="{{ cause }}"{% endif %}>{{ message }}</p>
{% endmacro %}
{% macro note(text) %}<p class="sd-note">{{ text | together }}</p>{% endmacro %}
{% macro paragraph(text) %}<p class="sd-paragraph">{{ text | together }}</p>{% endmacro %}
{% macro titled(title, text) %}<h3 class="sd-title">{{ title }}</h3>{{ paragraph(text) }}{% endmacro %}

{% macro table(table) %}{% set minor = table.minor %}
<table class="sd-plainTable"><caption>{{ table.caption }}.
{%- if table.of_minor %}<span class="minor"> {{ table.of_minor }}.</span>{% endif %}
<button type="button" class="sd-asLink sd-saveTable">Save as CSV</button>
{%- if minor %}<span class="sd-narrow"> A wider screen shows more columns.</span>{% endif -%}
</caption><thead><tr>
{%- for name in table.columns %}<th scope="col"{{ hidden(name, minor) }}>{{ name }}</th>{% endfor -%}
</tr></thead><tbody>
{%- for cells in table.rows -%}
<tr{% if loop.index0 == table.marked %} class="marked"{% endif %}>
{%- for text in cells -%}
{%- if loop.first -%}
<th scope="row"{{ hidden(table.columns[0], minor) }}>{{ text }}</th>
{%- else -%}
<td{{ hidden(table.columns[loop.index0], minor) }}>{{ text }}</td>
{%- endif -%}
{%- endfor -%}
</tr>
{%- endfor -%}
</tbody></table>
{% endmacro %}
{% macro hidden(name, minor) %}{% if name in minor %} class="minor"{% endif %}{% endmacro %}

{% macro folded(title, inside) %}
<details class="sd-fold"><summary>{{ title }}</summary>{{ inside | safe }}</details>
{% endmacro %}

{% macro facts(found, definitions, label_of) %}
<dl class="sd-facts">
{%- for fact in found -%}
<div><dt>{{ label_of(fact) }}</dt><dd>{{ fact.value }}</dd>
<dd class="sd-hint">{{ definitions[fact.name].meaning }}</dd></div>
{%- endfor -%}
</dl>
{% endmacro %}

{% macro header(pair, change) %}
<header class="sd-head"><div><h1>specdec</h1><p class="sd-pair">
<button type="button" class="sd-word" data-word="pair">Pair</button> <span>
{%- for part in pair -%}
{%- if loop.index0 % 2 -%}<small>{{ part }}</small>{%- else -%}{{ part }}{%- endif -%}
{%- endfor -%}</span>
<button type="button" class="sd-changePair" aria-controls="sd-change" aria-expanded="false">
{{- change }}</button></p><p class="sd-pairAside">The models run on the two servers, not on this page.</p></div>
<p class="sd-lede">A small model <span>(the draft) </span>guesses, a large one <span>(the target) </span>checks all
guesses at once. Same result, fewer waits.</p></header>
{% endmacro %}

{% macro chips(examples, recorded) %}
<div class="sd-chipRow"><div class="sd-chipGroup"><span class="sd-try">Try</span>
{%- for name in examples -%}
<button type="button" class="sd-chip" value="{{ loop.index0 }}">{{ name }}</button>
{%- endfor -%}
</div><div class="sd-chipGroup"><span class="sd-try">Recorded</span>
{%- for path, name in recorded -%}
<button type="button" class="sd-chip" name="recording" value="{{ path }}">{{ name }}</button>
{%- endfor -%}
</div></div>
{% endmacro %}

{% macro all_methods(count) %}
<button type="button" class="sd-asLink" aria-controls="sd-method" aria-expanded="false">
{{- "" }}<span class="sd-folded">Show all {{ count }}</span>
{{- "" }}<span class="sd-unfolded">Show the usual ones</span></button>
{% endmacro %}

{% macro save_chart() %}
<p>Save this chart: <button type="button" class="sd-asLink" value="png">PNG</button>
<button type="button" class="sd-asLink" value="svg">SVG</button></p>
{% endmacro %}

{% macro findings(found) %}
<ul class="sd-findings">
{%- for one in found %}<li class="sd-{{ one.level }}"><b>{{ one.topic }}</b> {{ one.sentence }}</li>{% endfor -%}
</ul>
{% endmacro %}

{% macro server_states(found) %}
<ul class="sd-servers" data-of="server">
{%- for one in found -%}
<li class="sd-{{ one.level }}"><p class="sd-serverName"><b>{{ one.name }}</b> {{ one.state }}</p>
{%- if one.rows -%}
<dl>{% for name, value in one.rows %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}</dl>
{%- endif -%}
{%- if one.sentence %}<p class="sd-serverWords">{{ one.sentence }}</p>{% endif %}</li>
{%- endfor -%}
</ul>
{% endmacro %}

{% macro lane_bars(bars) %}
<div class="sd-cardBars">
{%- for one in bars -%}
<div class="sd-cardRow"><span>{{ one.name }}</span><span class="sd-cardTrack">
{{- "" }}<span class="sd-cardBar {{ one.lane }}" style="width: {{ one.percent }}%"></span></span>
{{- "" }}<span class="sd-cardRate">{{ one.rate }}</span></div>
{%- endfor -%}
</div>
{% endmacro %}

{% macro how_to_serve(text, commands, more) %}
{{ paragraph(text) }}
{%- for name, words in commands %}<p class="sd-commandName">{{ name }}</p><pre class="sd-command">
{%- for space, option in words %}{{ space }}<span>{{ option }}</span>{% endfor %}</pre>
{%- endfor -%}
<p class="sd-paragraph">
{%- for part in more %}{% if loop.index0 % 2 %}<code>{{ part }}</code>{% else %}{{ part }}{% endif %}{% endfor -%}
</p>
{% endmacro %}

{% macro your_own(command, space) %}
<p class="sd-note">Measure your own pair, on your machine: <code>{{ command }}</code>
{%- if space %} Or <a href="https://huggingface.co/spaces/{{ space }}?duplicate=true" target="_top">duplicate this
Space</a>.{% endif %}</p>
{% endmacro %}
"""
_PIECE = re.compile(r"(?:\u03b3 )?\S*\d\u2013\d\S*|\d+ [A-Z][a-z]+ \d{4}")


def _together(text: str) -> Markup:
    """Return a sentence with its ranges and dates in one piece each, so that no line ends inside them."""
    parts, start = [], 0
    for piece in _PIECE.finditer(text):
        parts += [escape(text[start : piece.start()]), Markup('<span class="sd-together">{}</span>').format(piece[0])]
        start = piece.end()
    return Markup("").join([*parts, escape(text[start:])])


_ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined)
_ENVIRONMENT.filters["together"] = _together
_HTML: Any = _ENVIRONMENT.from_string(_TEMPLATES).module


class LaneBar(NamedTuple):
    """The speed of a lane as a bar: ``percent`` of the width, and ``rate`` in words."""

    name: str
    lane: str
    percent: int
    rate: str


class FoundIn(NamedTuple):
    """The measurement that a verdict comes from: what was asked, where the findings come from, on which machine."""

    asked: str
    sentence: str
    place: str


def verdict_html(
    sentence: str,
    factor: str | None = None,
    notes: Iterable[str] = (),
    about: bool = False,
    shares: Iterable[Figure] = (),
    found_in: FoundIn | None = None,
) -> str:
    """The headline with its figure, below it the origin, and the first sentence of the notes, which opens the rest.

    ``about``: the figure is uncertain. ``shares``: what it is made of. The headline does not repeat them.
    """
    parts = list(shares)
    first, *others = [*filter(None, notes)] or [""]
    said = [part for part in (*first_sentence(first), *others) if part]
    headline = beside_shares(sentence, parts)
    return _HTML.verdict(headline, factor, said, about, parts, found_in, DEFINITIONS, label_of).strip()


def lane_bars(bars: Iterable[LaneBar]) -> str:
    """The speeds of lanes to scale."""
    return _HTML.lane_bars(bars).strip()


def form_line(prompt: str, gamma: int, tokens: int) -> str:
    """The form in one line as the page has it at first, until its script puts a line there that can be used."""
    return _HTML.form_line(prompt, gamma, MAX_GAMMA, tokens).strip()


def status(text: str, done: float | None = None) -> str:
    """A status, with a progress bar if ``done``, from 0 to 1, is known."""
    return _HTML.status(text, done).strip()


def error(message: str, cause: str = "") -> str:
    """An error. It goes when the field of the setting ``cause`` changes, without one when any does (``errors.js``)."""
    return _HTML.error(message, cause).strip()


def note(text: str) -> str:
    return _HTML.note(text)


def paragraph(text: str) -> str:
    return _HTML.paragraph(text)


def titled(title: str, text: str) -> str:
    """A title with a paragraph below it."""
    return _HTML.titled(title, text)


def table_html(table: FigureTable) -> str:
    """A table with its caption below, as a sentence."""
    return _HTML.table(table).strip()


def folded(title: str, inside: str) -> str:
    """A closed fold around another fragment."""
    return _HTML.folded(title, inside).strip()


def facts(found: Iterable[Figure]) -> str:
    """Figures with their names and definitions."""
    return _HTML.facts(list(found), DEFINITIONS, lambda figure: capital(label_of(figure))).strip()


def header(pair: str, change: str) -> str:
    """The top of the page, with the pair in words. ``change`` is the text of the button to change it.

    What stands in brackets, such as the number of layers, is left out where the page is narrow.
    """
    return _HTML.header(re.split(r"( \([^()]*\))", pair), change).strip()


def chips(examples: Iterable[str], recorded: Mapping[str, tuple[str, str]]) -> str:
    """The names of the examples and of the recorded races, as buttons in a row; ``examples.js`` answers them."""
    return _HTML.chips(list(examples), [(path, name) for path, (name, _) in recorded.items()]).strip()


def all_methods(count: int) -> str:
    """The button that shows all ``count`` ways to draft."""
    return _HTML.all_methods(count).strip()


def save_chart() -> str:
    """The buttons below a chart."""
    return _HTML.save_chart().strip()


def findings(found: Iterable[Any]) -> str:
    """The findings of the check of a pair."""
    return _HTML.findings(list(found)).strip()


@dataclass(frozen=True, slots=True)
class ServerCard:
    """The state of a server. ``level``: "good", "note" or "bad"; ``sentence``: why it is not good, or empty."""

    level: str
    name: str
    state: str
    rows: list[tuple[str, str]]
    sentence: str


def server_states(found: Iterable[ServerCard]) -> str:
    """The state of servers, each on a card."""
    return _HTML.server_states(list(found)).strip()


def how_to_serve(text: str, commands: Iterable[tuple[str, str]], more: str) -> str:
    """How servers are started: commands with their names, between two paragraphs.

    A narrow screen breaks a command only between its options. In ``more``, what stands between two ` is code.
    """
    parts = [(name, _options(command)) for name, command in commands]
    return _HTML.how_to_serve(text, parts, more.split("`")).strip()


def _options(command: str) -> list[tuple[str, str]]:
    """The options of a command, each after the space or the line break before it. An indent belongs to its option."""
    found: list[tuple[str, str]] = []
    for line in command.split("\n"):
        first, *others = re.findall(r"( ?)((?:^ +)?(?:(?! --).)+)", line)
        found += [("\n" * bool(found) + first[0], first[1]), *others]
    return found


def your_own(command: str, space: str | None) -> str:
    """How to measure a pair that is not in the page's fixed list."""
    return _HTML.your_own(command, space).strip()
