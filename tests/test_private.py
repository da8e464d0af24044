"""Private names of other packages stand in a few modules, exist in the installed versions, and are missed if not."""

from __future__ import annotations

import ast
import logging
import pickle
from functools import partial
from types import SimpleNamespace

import gradio as gr
import house
import numpy as np
import pytest
import torch
import uvicorn.config
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from fakes import byte_tokenizer, tiny
from gguf_files import write_gguf
from gradio import queueing, route_utils, routes
from gradio.routes import App
from jinja2 import DictLoader
from torch import nn
from transformers import DynamicCache, GenerationConfig
from transformers.integrations.gguf import kernels, reader

import specdec
from specdec.forward import accelerate_private, hf_private, torch_private
from specdec.models import gguf_private
from specdec.private import Package
from specdec.ui import web_private

# --- where private names stand ---------------------------------------------------------------------------------------

MODULES = (torch_private, accelerate_private, hf_private, gguf_private, web_private)
PRIVATE = {house.modules()[module.__name__] for module in MODULES}
FOLDERS = ("specdec", "benchmarks", "scripts", "training", "examples")
OTHERS = [path for folder in FOLDERS for path in sorted((house.ROOT / folder).rglob("*.py")) if path not in PRIVATE]

DOCUMENTED = {"_replace", "_exit"}  # of named tuples and of ``os``, whose documents have these names
# What the scan cannot tell from a private name of another package, by the end of the file's path.
OURS = {
    "drafters/synthetic.py": {"_choose"},  # ``super()`` is a drafter of ours
    "gpu/models.py": {"_graphs"},  # of our graph engine, whose graphs are counted
    "benchmarks/step_faults.py": {"_ratios"},  # of our verify step, which it imports by name
}
SETTERS = {
    "specdec/private.py",  # sets what it has found
    "benchmarks/step_faults.py",  # makes our verify step wrong, to see that a test of it notices
    "cli/terminal.py",  # closed standard streams are replaced in ``sys``
    "benchmarks/mutants.py",  # changes a syntax tree
}
# Attributes of objects that are not ours, which may be assigned because their owner's documents have them.
PUBLIC = {
    "__doc__", "__file__", "__traceback__", "__cause__", "__context__", "op", "orelse",  # Python, and its ``ast``
    "showwarning",  # ``warnings``, whose documents say to replace it
    "maxstring", "maxother",  # ``reprlib``
    "description", "epilog",  # a parser of ``argparse``
    "data",  # a parameter of torch
    "compile", "generation_config", "name_or_path", "num_hidden_layers", "layer_types", "vocab_size", "eos_token_id",
    "pre_tokenizer",  # a model, a config and a tokenizer
    "time_step_limit",  # a Mamba-2 layer; set only where it was found
    "elem_classes",  # a component of Gradio
    "specdec_revision",  # ours, on a model
}  # fmt: skip


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and name.strip("_") != "" and name[0] == "_" != name[1]


def defined(tree: ast.Module) -> set[str]:
    """The attributes that the classes of a file have."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found |= {part.name for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))}
            found |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
            found |= {name.id for part in node.body if isinstance(part, ast.Assign) for name in part.targets}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def imported(tree: ast.Module) -> set[str]:
    """The names of our own that a file imports."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {a.asname or a.name for node in froms if node.module.split(".")[0] in FOLDERS for a in node.names}


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in OTHERS}
ATTRIBUTES = set().union(*map(defined, TREES.values()))  # of any class of ours


def names_of_others() -> set[str]:
    """The private names of other packages that the private modules use."""
    found = set()
    for path in PRIVATE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = (
                node.value if isinstance(node, ast.Constant) else node.attr if isinstance(node, ast.Attribute) else ""
            )
            found |= {name} if is_private(name) else set()
    return found


FOREIGN = names_of_others()


def reaches(tree: ast.Module, file: str = "") -> list[str]:
    """Where a file uses a private name of another package, or sets what such a package may have renamed."""
    ours, names = imported(tree), defined(tree) | DOCUMENTED
    names |= next((known for end, known in OURS.items() if file.endswith(end)), set())

    def is_ours(owner: ast.AST) -> bool:
        return is_self(owner) or (isinstance(owner, ast.Name) and owner.id in ours)

    def fault(node: ast.AST) -> bool:
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] not in FOLDERS:
                return any(map(is_private, [*module.split("."), *(alias.name for alias in node.names)]))
            case ast.Import():
                return any(is_private(part) for alias in node.names for part in alias.name.split("."))
            case ast.Attribute(value=owner, attr=name) if is_private(name) and is_self(owner):
                return name not in ATTRIBUTES | names  # a class of ours may extend one of another package
            case ast.Attribute(value=owner, attr=name) if is_private(name) and not is_ours(owner):
                return name not in names
            case ast.Attribute(value=owner, attr=name, ctx=ast.Store() | ast.Del()) if not is_ours(owner):
                return name not in ATTRIBUTES | PUBLIC
            case ast.Call(func=ast.Name("setattr" | "delattr") | ast.Attribute(attr="object"), args=[owner, *_]):
                return not is_ours(owner) and not file.endswith(tuple(SETTERS))
            case ast.Call(func=ast.Name("getattr" | "hasattr"), args=[owner, ast.Constant(name), *_]):
                return is_private(name) and not is_ours(owner)
            case ast.Constant(value=name) if is_private(name):
                return name in FOREIGN  # such as a key of ``vars``
        return False

    return [f"{file}:{node.lineno}: {ast.unparse(node)[:100]}" for node in ast.walk(tree) if fault(node)]


def test_private_names_of_other_packages_stand_in_their_modules() -> None:
    found = [line for path, tree in TREES.items() for line in reaches(tree, path.relative_to(house.ROOT).as_posix())]
    assert found == []
    assert {"_modules", "_hf_hook", "_is_stateful", "_read_metadata", "_queue"} <= FOREIGN


@pytest.mark.parametrize(
    "line",
    [
        "from torch.nn.modules.module import _has_any_global_hook",
        "from starlette._utils import get_route_path",
        "import torch._dynamo",
        "torch._C._cuda_init()",
        "model.config._attn_implementation",
        "self.demo._queue",
        "del module._modules",
        "queue.sleep_when_free = 1",
        "app.middleware_stack = wrap(app)",
        "getattr(model, '_is_stateful', False)",
        "setattr(module, 'traceback', None)",
        "mock.patch.object(kernels, 'is_kernels_available', None)",
        "vars(module).get('_hf_hook')",
    ],
)
def test_a_private_name_elsewhere_is_noticed(line) -> None:
    assert reaches(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "self._pair",
        "turn._replace(a=1)",
        "from specdec.engine import verify\nverify._ratios",
        "model.config.name_or_path",
    ],
)
def test_other_names_are_let_through(line) -> None:
    assert reaches(ast.parse(line)) == []


# --- a name that is missing ------------------------------------------------------------------------------------------

RENAMED = SimpleNamespace(new_name=1)


@pytest.mark.parametrize(
    "use",
    [
        lambda package: package.get(RENAMED, "old_name"),
        lambda package: package.set(RENAMED, "old_name", 2),
        lambda package: package.require(RENAMED, "new_name", "old_name"),
        lambda package: package.function("torch.nn", "old_name"),
        lambda package: package.function("torch.old_name", "new_name"),
    ],
    ids=["get", "set", "require", "function", "module"],
)
def test_a_renamed_attribute_is_an_error(use) -> None:
    """The error names the package, its version and the attribute, and says what to do. Nothing is set."""
    with pytest.raises(specdec.LibraryChanged, match="old_name, which specdec uses. Install") as caught:
        use(Package("torch"))
    assert str(caught.value).startswith(f"torch {torch.__version__.split('+')[0]}")
    assert isinstance(caught.value, specdec.SpecdecError) and vars(RENAMED) == {"new_name": 1}
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_attribute_that_exists_is_read_and_set() -> None:
    package, owner = Package("torch"), SimpleNamespace(name=1)
    assert package.get(owner, "name") == 1
    package.set(owner, "name", 2)
    assert owner.name == 2 and package.function("torch.nn", "Linear") is nn.Linear


# Every function of the private modules that sets something, and what it sets.
SETS = {
    "messages": (web_private.replace_messages, "pending_messages_per_session"),
    "rest": (web_private.look_less_often, "progress_update_sleep_when_free"),
    "statistics": (lambda queue, _: web_private.compute_no_statistics(queue), "ANAYLTICS_CACHE_FREQUENCY"),
    "gateway": (web_private.put_in_front, "middleware_stack"),
    "candidates": (hf_private.draft_with, "_get_candidate_generator"),
    "layers": (hf_private.replace_layers, "layer_class_to_replicate"),
}


@pytest.mark.parametrize("name", SETS)
def test_setting_what_was_renamed_is_an_error(name) -> None:
    """None of the functions that set something creates the attribute."""
    use, attribute = SETS[name]
    theirs = SimpleNamespace(layers=[], sleep_when_free=1, ANALYTICS_MAX_EVENTS=1)
    with pytest.raises(specdec.LibraryChanged, match=f"no types.SimpleNamespace.{attribute}, "):
        use(theirs, 1)
    assert not hasattr(theirs, attribute)


# --- the installed versions ------------------------------------------------------------------------------------------


def test_torch_has_the_names() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert torch_private.children_of(module) == dict(module.named_children())
    assert torch_private.parameters_of(module[0]) == dict(module[0].named_parameters())
    twin = torch_private.copy_with(module, {"0": module[0]})
    assert len(twin) == 1 and len(module) == 2 and twin[0] is module[0]
    before = torch_private.identity_of(module[0].bias)
    with torch.no_grad():
        module[0].bias.add_(1)
    assert torch_private.identity_of(module[0].bias) != before
    assert not torch_private.has_global_hook()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert torch_private.has_global_hook()
    handle.remove()


def test_torchs_passes_are_wrapped_whether_compiled_or_not() -> None:
    plain, compiled = nn.Identity(), nn.Identity()
    compiled.compile(backend="eager")
    twin = nn.Identity()
    torch_private.copy_compiled(compiled, twin)
    assert [torch_private.is_compiled(module) for module in (plain, compiled, twin)] == [False, True, True]
    for module in (plain, twin):
        torch_private.wrap_pass(module, lambda run: lambda x: run(x) + 1)
        assert module(torch.zeros(1)).item() == 1
    assert compiled(torch.zeros(1)).item() == 0


def test_accelerate_has_the_names() -> None:
    class Doubled(nn.Module):
        factor = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    module = Doubled()
    assert not accelerate_private.is_spread(module) and accelerate_private.execution_device(module) is None
    add_hook_to_module(module, AlignDevicesHook(execution_device="cpu"))
    assert accelerate_private.is_spread(nn.Sequential(module))
    assert accelerate_private.execution_device(nn.Sequential(module)) == torch.device("cpu")
    twin = torch_private.copy_with(module, {})
    twin.factor = 3
    assert twin(torch.ones(1)).item() == 2  # the copied hook runs the original
    accelerate_private.move_forward(module, twin)
    assert twin(torch.ones(1)).item() == 3 and module(torch.ones(1)).item() == 2


def test_transformers_has_the_names() -> None:
    model = tiny("llama")
    assert hf_private.keeps_logits(model) and hf_private.attention_of(model) == "sdpa"
    assert not hf_private.is_stateful(model) and not hf_private.is_stateful(type(model))
    config = GenerationConfig(do_sample=True, top_k=1)
    process = hf_private.logits_processors(model, config, 2, torch.device("cpu"))
    assert process(torch.tensor([[1, 2]]), torch.tensor([[1.0, 3.0, 2.0]])).isfinite().tolist() == [
        [False, True, False]
    ]
    cache = DynamicCache(config=model.config)
    hf_private.replace_layers(cache, cache.layers[:1])
    assert len(cache.layers) == 1
    hf_private.draft_with(model, partial(print, "a draft"))
    assert hf_private.compiled_everywhere()._compile_all_devices is True


def test_a_renamed_setting_of_transformers_mtp_generator_is_an_error(monkeypatch) -> None:
    """Our generator sets what transformers' own would set; a name that transformers does not use is noticed."""
    layer = SimpleNamespace(eh_proj=nn.Linear(1, 1))
    model = SimpleNamespace(layers=[layer], config=tiny("llama").config)
    make = partial(hf_private.LoadedMtp, model, generation_config=GenerationConfig(), logits_processor=None)
    monkeypatch.setattr(hf_private, "MtpCache", lambda config: SimpleNamespace(activate_past_recording=lambda: None))
    assert make().num_mtp_layers == 1

    def other(self) -> None:
        self.device = self.num_mtp_layers = None

    monkeypatch.setattr(hf_private.MTPCandidateGenerator, "__init__", other)
    with pytest.raises(specdec.LibraryChanged, match="MTPCandidateGenerator.model_kwargs_overrides"):
        make()


def test_transformers_reads_gguf_files_with_the_names(tmp_path) -> None:
    pytest.importorskip("gguf")
    tokenizer = byte_tokenizer()
    path = write_gguf(tmp_path / "tiny.gguf", tiny("llama", vocab_size=len(tokenizer)), tokenizer)
    data = np.fromfile(path, np.uint8)
    metadata, count, position = gguf_private.metadata_in(data, "tiny", ("tokenizer.ggml.tokens",))
    assert metadata["general.architecture"] == "llama"
    assert len(metadata["tokenizer.ggml.tokens"]) == len(tokenizer)
    tensors, end = gguf_private.tensors_in(data, count, position)
    assert len(tensors) == count > 0 and position < end < len(data)
    assert {gguf_private.plain_dtypes()[kind] for _, _, kind, _ in tensors} == {torch.float32}


def test_gguf_is_guarded_for_a_while_only() -> None:
    gguf = pytest.importorskip("gguf")
    before = kernels.is_kernels_available, gguf.get_tensor_name_map
    with gguf_private.guarded():
        assert kernels.is_kernels_available() is False
        table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
        assert gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) is table
    assert before == (kernels.is_kernels_available, gguf.get_tensor_name_map)


@pytest.mark.parametrize(
    ("module", "name", "use"),
    [
        (reader, "_read_metadata", lambda: gguf_private.metadata_in(np.zeros(1), "tiny", ())),
        (reader, "_read_tensor_table", lambda: gguf_private.tensors_in(np.zeros(1), 1, 0)),
        (reader, "_TORCH_DTYPE", gguf_private.plain_dtypes),
        (kernels, "is_kernels_available", lambda: gguf_private.guarded().__enter__()),
        (routes.templates, "env", lambda: web_private.change_templates(lambda text: text)),
        (queueing, "traceback", lambda: web_private.replace_tracebacks(print)),
        (uvicorn.config, "LOGGING_CONFIG", lambda: web_private.replace_log(logging.Formatter)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_module_that_lost_a_name_is_an_error(monkeypatch, module, name, use) -> None:
    monkeypatch.delattr(module, name)
    with pytest.raises(specdec.LibraryChanged, match=f"{name}, "):
        use()
    assert not hasattr(module, name)


def test_gradios_queue_has_the_names() -> None:
    demo = gr.Blocks()
    queue, messages = web_private.queue_of(demo), {}
    assert not web_private.is_stopped(queue) and web_private.jobs_of(queue) == {}
    queue.close()
    assert web_private.is_stopped(web_private.queue_of(demo))
    web_private.replace_messages(queue, messages)
    assert web_private.messages_of(queue) is messages
    web_private.look_less_often(queue, 0.5)
    web_private.compute_no_statistics(queue)


def test_gradios_app_has_the_names() -> None:
    app = App()
    app.middleware_stack = rest = object()
    web_private.put_in_front(app, lambda inner: ("gateway", inner))
    assert app.middleware_stack == ("gateway", rest)
    assert not web_private.has_password(app)
    app.auth, app.cookie_id, app.tokens = {"name": "word"}, "x", {"token": "name"}
    assert web_private.has_password(app)
    assert web_private.is_logged_in(app, {"access-token-x": "token"})
    assert not web_private.is_logged_in(app, {"access-token-x": "other", "access-token": "token"})
    assert web_private.get_route_path({"path": "/tool/a", "root_path": "/tool"}) == "/a"


def test_gradios_html_is_changed(monkeypatch) -> None:
    monkeypatch.setattr(routes.templates.env, "loader", DictLoader({"page.html": "Hello {{ name }}"}))
    web_private.change_templates(lambda text: text.replace("Hello", "Good day"))
    assert routes.templates.env.from_string("{% include 'page.html' %}").render(name="Ada") == "Good day Ada"


def test_gradios_tracebacks_are_replaced(monkeypatch) -> None:
    for module in (queueing, routes, route_utils):
        monkeypatch.setattr(module, "traceback", module.traceback)
    said = []
    web_private.replace_tracebacks(lambda: said.append("error"))
    for module in (queueing, routes, route_utils):
        module.traceback.print_exc()
    assert len(said) == 3


def test_uvicorn_logs_with_the_formatter(monkeypatch) -> None:
    settings = {"handlers": {"default": {"formatter": "default"}}, "formatters": {"default": {}}}
    assert {name: set(uvicorn.config.LOGGING_CONFIG[name]) >= {"default"} for name in settings} == dict.fromkeys(
        settings, True
    )
    monkeypatch.setattr(uvicorn.config, "LOGGING_CONFIG", settings)
    web_private.replace_log(logging.Formatter)
    assert settings["formatters"]["default"] == {"()": logging.Formatter}
    assert settings["handlers"]["default"] == {"formatter": "default", "level": "ERROR"}
    del settings["formatters"]["default"]
    with pytest.raises(specdec.LibraryChanged, match='"default" among the formatters'):
        web_private.replace_log(logging.Formatter)
    assert settings["formatters"] == {}
