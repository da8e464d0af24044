"""Native products: a row's result is the same alone and beside others, and without a compiler torch's are used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest
import torch
import torch.nn.functional as F
from fakes import noisy_copy, prompt_of, rounds_of, shared_tiny
from pairwise import few

import specdec
from specdec.forward import lean, lean_check
from specdec.forward.native import build
from specdec.forward.native.products import _SOURCE, MOST, Product, product_for
from specdec.report import provenance

CPU = torch.device("cpu")
# Outputs and inputs: more and fewer than a block has, with and without a rest in either direction.
SHAPES = [(1, 1), (3, 5), (8, 16), (37, 29), (64, 33), (50, 64), (97, 130)]


@pytest.fixture(scope="module")
def product() -> Product:
    found = product_for(torch.float32, CPU)
    if isinstance(found, str):
        assert "no C compiler was found" in found or "one thread" in found, found  # our own C file must compile
        pytest.skip(found)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, where nothing is built yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(build.SWITCH, raising=False)
    build.library.cache_clear()
    yield tmp_path / "specdec" / "native"
    build.library.cache_clear()


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("out", "size"), SHAPES)
def test_a_row_has_one_result_whatever_stands_beside_it(product: Product, out: int, size: int, with_bias: bool) -> None:
    rng = torch.Generator().manual_seed(out)
    weight = torch.randn(out, size, generator=rng)
    bias = torch.randn(out, generator=rng) if with_bias else None
    x = torch.randn(MOST, size, generator=rng)
    alone = torch.cat([product(x[row : row + 1], weight, bias) for row in range(MOST)])
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert (alone - exact).abs().max() < 1e-5 * size**0.5
    for rows in range(2, MOST + 1):
        assert torch.equal(product(x[:rows], weight, bias), alone[:rows])


def test_rows_that_do_not_lie_side_by_side(product: Product) -> None:
    wide, weight = torch.randn(4, 20), torch.randn(7, 10)
    assert torch.equal(product(wide[:, ::2], weight, None), product(wide[:, ::2].contiguous(), weight, None))


def test_a_row_of_another_width_or_type_is_never_misread(product: Product) -> None:
    """Under autocast the rows have other numbers than the weights; torch multiplies them, or refuses."""
    weight = torch.randn(5, 8)
    matrix = lean.Matrix(weight, None, None, product)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert matrix(torch.randn(2, 8).bfloat16()).shape == (2, 5)
    for wrong in (torch.randn(2, 7), torch.randn(2, 8).double()):
        with pytest.raises(RuntimeError):
            matrix(wrong)
    assert not lean.Matrix(weight, torch.zeros(1).expand(5), None).suits_native
    assert not lean.Matrix(weight.t(), None, None).suits_native


def test_a_transposed_model_is_left_to_torch_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "product_for", lambda dtype, device: F.linear)
    found = lean.LeanModel(shared_tiny("gpt2", 1, layers=2))
    assert "transposed" in found.not_native and found.head.native is None


def test_each_model_is_named_where_they_differ() -> None:
    model = {"name": "a", "layers": 1, "dtype": "float32", "bits": None, "own_forward": None}
    facts = {"target": model | {"torch_products": None}, "draft": model | {"torch_products": "It is."}}
    said = "Matrix products of the target of few rows in C. Matrix products of the draft by torch. It is."
    assert provenance.passes(facts).endswith(f"those of transformers. {said}")


def test_infinity_and_nan_stay_what_they_are(product: Product) -> None:
    x = torch.zeros(3, 40)
    x[1, 3], x[2, 39] = float("inf"), float("nan")
    y = product(x, torch.ones(5, 40), None)
    assert (y[0] == 0).all() and (y[1] == float("inf")).all() and y[2].isnan().all()


def test_small_numbers_of_the_process_stay(product: Product) -> None:
    """A library that is linked with -ffast-math makes every thread of the process compute them as zero."""
    assert float(torch.tensor(1e-40) * 1.0) > 0 and product(torch.full((1, 3), 1e-40), torch.ones(2, 3), None).min() > 0


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral", "phi3", "gpt_neox"])
def test_a_model_uses_them_and_agrees(product: Product, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its logits differ from those of torch's products by rounding, and a pass over several rows from none over one."""
    monkeypatch.setattr(lean_check, "_stacks", WeakKeyDictionary())
    model = shared_tiny(family, 1, layers=2)
    native = lean_check.lean_model(model)
    assert native.not_native is None
    ids, together, apart = prompt_of(6), native.new_buffer(), native.new_buffer()
    with torch.inference_mode():
        rows = native.forward(ids, together, 0, None)
        assert float(lean_check.share_apart(rows, model(ids[None]).logits[0])) < 1e-5
        alone = torch.cat([native.forward(ids[at : at + 1], apart, at, None) for at in range(len(ids))])
    assert float(lean_check.share_apart(rows, alone)) < 1e-5


def test_the_text_is_that_of_generate_and_the_events_say_so(product: Product) -> None:
    target = shared_tiny("llama", 1, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 1))
    params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    plain = specdec.collect(specdec.generate(pair, prompt_of(7), params=params)).token_ids
    events = list(specdec.speculative(pair, prompt_of(7), gamma=4, params=params))
    assert specdec.collect(iter(events)).token_ids == plain and len(rounds_of(events)) < 40
    facts = events[0].pair
    assert facts["target"]["torch_products"] is None is facts["draft"]["torch_products"]
    assert "few rows in C" in provenance.passes(facts)


def test_torch_multiplies_where_it_uses_several_threads_or_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert product_for(torch.float32, CPU) == "Native products use one thread, and torch uses 4."
    assert "float32 weights on a CPU" in product_for(torch.bfloat16, CPU)


# --- building --------------------------------------------------------------------------------------------------------


def built(home: Path) -> Path:
    """The one library in the cache."""
    (found,) = home.glob("*.so")
    return found


def test_a_library_is_built_once(product: Product, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(build.library(_SOURCE), str)
    assert not built(home).stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    build.library.cache_clear()
    monkeypatch.setattr(build, "_compile", None)
    assert not isinstance(build.library(_SOURCE), str)


def test_it_is_built_once_whatever_new_files_may_be_read_by(product: Product, home: Path, monkeypatch) -> None:
    before = os.umask(0o002)
    try:
        build.library(_SOURCE)
    finally:
        os.umask(before)
    build.library.cache_clear()
    monkeypatch.setattr(build, "_compile", None)
    assert not isinstance(build.library(_SOURCE), str)


def another(path: Path) -> None:
    path.write_bytes(b"somebody else's")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def nobodys(path: Path) -> None:
    path.with_suffix(build.DIGEST).unlink()


def no_text(path: Path) -> None:
    path.with_suffix(build.DIGEST).write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("harm", few([cut, open_to_all, another, a_link, nobodys, no_text], 2))
def test_a_library_that_is_not_what_was_built_is_built_again(
    product: Product, home: Path, harm: Callable[[Path], None]
) -> None:
    build.library(_SOURCE)
    whole = built(home).read_bytes()
    harm(built(home))
    build.library.cache_clear()
    assert not isinstance(build.library(_SOURCE), str)
    assert built(home).read_bytes() == whole and not built(home).is_symlink()


def test_a_folder_that_others_may_write_is_not_used(product: Product, home: Path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o777)
    assert not isinstance(build.library(_SOURCE), str)
    assert list(home.iterdir()) == []


def test_a_user_without_a_home_builds_for_each_process(product: Product, home: Path, tmp_path, monkeypatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(build.Path, "home", no_home)
    monkeypatch.setattr(build.tempfile, "tempdir", str(tmp_path))
    assert not isinstance(build.library(_SOURCE), str)
    assert list(tmp_path.iterdir()) == [], "the library is loaded, and its file is gone"


def test_where_nothing_can_be_kept_it_is_built_for_this_process(product: Product, home: Path) -> None:
    home.parent.parent.mkdir(exist_ok=True)
    home.parent.write_text("a file stands in the way")
    assert not isinstance(build.library(_SOURCE), str)


def test_without_a_compiler_the_reason_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.delenv("CC", raising=False)
    said = "Native products could not be built: no C compiler was found (cc, gcc or clang)."
    assert build.library(_SOURCE) == said == product_for(torch.float32, CPU)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'x.c:1:2: error: no vectors here' >&2; exit 1", "cc failed (no vectors here)"),
        ("echo 'error: cannot write /home/alice/x' >&2; exit 1", "cc failed (it gave no reason)"),
        ("exit 1", "cc failed (it gave no reason)"),
        ("exit 0", "cc wrote no library"),
        ("kill -9 $$", "cc failed (it gave no reason)"),
    ],
)
def test_a_compiler_that_fails_is_quoted(home: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    """Without a path: the sentence is kept with results, which are shared."""
    compiler = home.parent.parent / "cc"
    compiler.write_text(f'#!/bin/sh\n[ "$7" = -march=native ] && [ "$8" = -dM ] && exit 0\n{script}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    assert build.library(_SOURCE) == f"Native products could not be built: {said}."
    assert list(home.iterdir()) == [], "nothing half-made stays"


def test_it_can_be_switched_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SWITCH, "0")
    assert product_for(torch.float32, CPU) == "Native products are switched off (SPECDEC_NATIVE=0)."
    assert not home.exists()


def test_a_switch_counts_from_the_next_call_on(product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared_tiny("llama", 1, layers=2)
    assert lean_check.lean_model(model).not_native is None
    monkeypatch.setenv(build.SWITCH, "0")
    assert "switched off" in lean_check.lean_model(model).not_native
    monkeypatch.delenv(build.SWITCH)
    assert lean_check.lean_model(model).not_native is None
