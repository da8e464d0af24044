"""What the parsers of several commands share: the arguments that name a pair, and the types of arguments."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from specdec.cli.graphs_tried import GRAPHS_TRIED
from specdec.cli.terminal import readable
from specdec.drafters.forms import forms
from specdec.engine.policy import gamma_of
from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA, Grammar, GrammarKind, SamplingParams
from specdec.models.settings import DRAFT_WEIGHTS, DTYPES, ENGINES
from specdec.report.link_settings import NEW_TOKENS

TARGET = "hub id, folder or GGUF file (FILE.gguf here, owner/name:FILE.gguf on the hub)"
SETS = "JSON lines or a JSON list, of your own or of a public set, such as HumanEval, MT-bench, GSM8K or ShareGPT"
TABLES = (".csv", ".json", ".md")  # the endings of files that hold a measurement


class Parser(argparse.ArgumentParser):
    """A parser whose messages repeat no control character of an argument."""

    def error(self, message: str) -> NoReturn:
        super().error(readable(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse ignores an output that cannot be written; ``terminal`` does not


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the pair, its device and its number types."""
    parser.add_argument("--target", help=f"{TARGET}; default: embedded, the pair that ships")
    parser.add_argument("--draft", help=forms())
    add_device_arguments(parser)
    parser.add_argument(
        "--bits", type=int, choices=(8, 4), help="load the target's weights with this many bits (needs bitsandbytes)"
    )
    parser.add_argument(
        "--draft-weights",
        choices=DRAFT_WEIGHTS,
        default="auto",
        help="int8: native passes on a CPU read a draft model's weights in 8 bits, which takes less time, and the text "
        "stays lossless; same: as they are; auto: int8 where passes can be native, else same",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="eager: start each pass separately; graph: use fixed buffers, captured as CUDA graphs on a GPU; auto: "
        f"graph on a GPU, else eager. {GRAPHS_TRIED}",
    )
    parser.add_argument(
        "--no-native",
        action="store_true",
        help="run all passes in torch, none in C that is compiled on this machine",
    )


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    parser.add_argument("--dtype", choices=("auto", *DTYPES), default="auto", help="the number type of both models")


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the settings of a call, which ``params_of`` reads."""
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, help=f"new tokens (default {NEW_TOKENS})")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--top-k", type=int, default=0, help="sample from the k most likely tokens; 0: all (default)")
    parser.add_argument(
        "--top-p", type=float, default=1.0, help="sample from the tokens with this probability in all (default 1)"
    )
    parser.add_argument(
        "--min-p", type=float, default=0.0, help="leave out tokens below this share of the highest probability"
    )
    parser.add_argument("--stop", action="append", default=[], help="end the text with this string; may be repeated")
    parser.add_argument("--seed", type=int, help="for sampling; default: one is drawn")


def add_grammar_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the text must obey, which ``grammar_of`` reads."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--json-schema",
        type=Path,
        metavar="FILE",
        help="the text must be JSON that this schema allows (needs llguidance)",
    )
    group.add_argument("--regex", help="the text must match this regular expression as a whole (needs llguidance)")
    group.add_argument(
        "--lark",
        type=Path,
        metavar="FILE",
        help="the text must obey this grammar in Lark's notation (needs llguidance)",
    )


def grammar_of(arguments: argparse.Namespace) -> Grammar | None:
    """The grammar of ``add_grammar_arguments``. Raises ``InvalidInput`` for a file that cannot be read."""
    if arguments.regex is not None:
        return Grammar("regex", arguments.regex)
    files: tuple[tuple[GrammarKind, Path | None], ...] = (
        ("json-schema", arguments.json_schema), ("lark", arguments.lark),
    )  # fmt: skip
    for kind, path in files:
        if path is not None:
            try:
                return Grammar(kind, path.read_text(encoding="utf-8"))
            except OSError as error:
                raise InvalidInput(f"{path.name} cannot be read ({error.strerror}).") from error
            except UnicodeDecodeError as error:
                raise InvalidInput(f"{path.name} cannot be read as UTF-8 text.") from error
    return None


def params_of(arguments: argparse.Namespace) -> SamplingParams:
    """The settings of ``add_sampling_arguments``; ``--ignore-eos`` and the grammar where a command has them."""
    grammar = grammar_of(arguments) if "regex" in arguments else None
    return SamplingParams(
        max_new_tokens=arguments.tokens,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        seed=arguments.seed,
        stop=tuple(arguments.stop),
        ignore_eos=getattr(arguments, "ignore_eos", False),
        grammar=grammar,
    )


def add_measured_text_arguments(parser: argparse.ArgumentParser, tokens: int) -> None:
    """Add the settings of the texts of a measurement, which ``measured_params_of`` reads. ``tokens``: the default."""
    parser.add_argument("--tokens", type=int, default=tokens, help=f"new tokens of each call (default {tokens})")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    add_grammar_arguments(parser)


def measured_params_of(arguments: argparse.Namespace) -> SamplingParams:
    """The settings of a measurement, whose texts are as long as ``--tokens`` says unless a grammar ends them."""
    grammar = grammar_of(arguments)
    return SamplingParams(arguments.tokens, arguments.temperature, seed=0, ignore_eos=grammar is None, grammar=grammar)


def add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files of a measurement."""
    parser.add_argument(
        "--results", type=Path, help="file that keeps every call (JSON lines); the same command continues from it"
    )
    add_export_argument(parser, "the table", TABLES)


def add_export_argument(parser: argparse.ArgumentParser, what: str, endings: tuple[str, ...]) -> None:
    parser.add_argument(
        "--export",
        type=output_file(endings),
        nargs="+",
        default=[],
        metavar="FILE",
        help=f"files to write {what} to: {either(endings)}",
    )


def output_file(endings: tuple[str, ...]) -> Callable[[str], Path]:
    """The type of an argument that names a file to write, so that it is refused before anything runs."""

    def read(text: str) -> Path:
        path = Path(text)
        if path.suffix not in endings:
            raise argparse.ArgumentTypeError(f"{text} must end in {either(endings)}")
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"{text} cannot be written, because it is a folder; name a file")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(f"the folder of {text} does not exist; make it, or name another file")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise argparse.ArgumentTypeError(f"{text} cannot be written (no permission); name another file")
        return path

    return read


def either(endings: tuple[str, ...]) -> str:
    """Endings of files as a part of a sentence."""
    return f"{', '.join(endings[:-1])} or {endings[-1]}"


def draft_length(text: str) -> int | str:
    """Read a draft length. Without this, the parser's message would name a function and not say what to write."""
    try:
        return gamma_of(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a draft length; give a whole number from 0 to {MAX_GAMMA}, auto, or confidence:0.4"
        ) from error
