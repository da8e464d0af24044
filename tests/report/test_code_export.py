"""The code to take home runs, says what differs, and never contains a stranger's value as code."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from shell import commands, options

import specdec
from specdec.report.code_export import take_home
from specdec.ui.tabs.code import code_answer, expression_of

ROOT = Path(specdec.__file__).parent.parent
HOSTILE = "<img src=x onerror='window.bitten=1'>${window.bitten=1}{{bitten}}\u202eabc\u200b\u2066def 👩‍🚀\n\t</script>"


MODEL = {"layers": 2, "dtype": "float32", "rows": 1, "local": True, "bits": None}
STARTED = {
    "gamma": 5, "acceptance": "lossless", "accept_top_k": None,
    "params": {"max_new_tokens": 6, "temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1,
               "seed": 2**40, "ignore_eos": False},
    "pair": {"name": "embedded", "device": "cpu", "compiled": False, "target": {"name": "target"} | MODEL,
             "draft": {"kind": "model", "text": "draft", "name": "draft", "own_tokenizer": False} | MODEL},
}  # fmt: skip
LOOKUP = {"draft": {"kind": "prompt-lookup", "text": "prompt-lookup", "max_ngram": 3, "min_ngram": 1}}
EARLY = {"draft": {"kind": "early-exit", "text": "early-exit:3", "layers": 3}}
BLOCK = {"draft": {"kind": "dflash", "text": "dflash:c/d", "name": "c/d", "local": False, "one_pass": True}}
HEAD = {"draft": {"kind": "eagle3", "text": "eagle3:c/d", "name": "c/d", "local": False, "rows": 1}}
ASSISTANT = {"draft": HEAD["draft"] | {"kind": "gemma4-assistant", "text": "gemma4-assistant:c/d"}}
MTP = {"draft": {"kind": "mtp", "text": "mtp", "layers": 1}}


WAYS = [
    ({}, {"gamma": 0}, {}),
    ({}, {"gamma": "auto"}, {}),
    ({}, {"acceptance": "top-k", "accept_top_k": 3}, {}),
    ({}, {"acceptance": "block"}, {"temperature": 0.7}),
    ({}, {}, {"temperature": 0.7, "top_k": 5, "min_p": 0.1, "ignore_eos": True}),
    (LOOKUP, {}, {}),
    ({}, {"gamma": "confidence:0.4"}, {}),
    (LOOKUP, {"gamma": "auto"}, {}),
    (LOOKUP, {"gamma": 0}, {}),
    (EARLY, {}, {}),
    ({"draft": None}, {"gamma": 0}, {}),
    ({}, {}, {"grammar": {"kind": "json-schema", "text": '{"enum": ["a", "\u2028"]}'}, "draft_mask": False}),
    ({}, {}, {"grammar": {"kind": "regex", "text": "'\"[0-9]+"}, "temperature": 0.7}),
    (LOOKUP, {}, {"grammar": {"kind": "lark", "text": 'start: "{" /[a-z]+/ "}"'}}),
]
TARGET = MODEL | {"name": "a/b", "local": False}
DRAFT = MODEL | {"kind": "model", "text": "c/d", "name": "c/d", "local": False, "own_tokenizer": False}
HUB = {"name": None, "target": TARGET, "draft": DRAFT}


def codes_of(pair=None, settings=None, params=None, **asked) -> dict[str, str]:
    """The lines for one way to draft; `asked` is what the form holds."""
    started = STARTED | (settings or {})
    started |= {"params": STARTED["params"] | (params or {}), "pair": STARTED["pair"] | (pair or {})}
    record = {"settings": {"prompt": "Once upon a time", "chat": 0} | asked, "started": started}
    return take_home(json.dumps(record), expression_of)


@pytest.mark.parametrize(
    ("facts", "loaded"),
    [
        ({"torch_passes": None}, 'load_pair("a/b", "c/d", draft_weights="same")'),
        ({"torch_passes": None, "dtype": "int8"}, 'load_pair("a/b", "c/d")'),
        ({"torch_passes": "It is on a GPU."}, 'load_pair("a/b", "c/d")'),
        ({}, 'load_pair("a/b", "c/d")'),
    ],
)
def test_the_code_reads_the_draft_s_weights_as_the_run_did(facts: dict, loaded: str) -> None:
    assert loaded in codes_of(HUB | {"draft": DRAFT | facts})["specdec"]


COPY = {"kind": "combined", "text": "suffix+draft", "max_ngram": 3}


@pytest.mark.parametrize(
    ("pair", "loaded"),
    [
        ({"draft": DRAFT | COPY | {"name": "draft", "local": True}}, 'load_pair(draft="suffix+embedded")'),
        (HUB | {"draft": DRAFT | COPY | {"text": "suffix+c/d"}}, 'load_pair("a/b", "suffix+c/d")'),
        (HUB | {"draft": DRAFT | COPY | {"name": "draft", "local": True}}, 'load_pair("a/b", "suffix+path/to/draft")'),
        (HUB | {"draft": COPY | {"text": "suffix+mtp"}}, "specdec.Combined(specdec.Suffix(), specdec.Mtp())"),
        (
            HUB | {"draft": DRAFT | COPY | {"text": "suffix+c/d", "torch_passes": None}},
            'load_pair("a/b", "suffix+c/d", draft_weights="same")',
        ),
    ],
)
def test_a_combination_is_loaded_by_its_text(pair: dict, loaded: str) -> None:
    codes = codes_of(pair)
    assert loaded in codes["specdec"]
    assert all("no method of the kind combined" in code for tool, code in codes.items() if tool != "specdec")


def served(code: str, folder: Path) -> list[str]:
    """vLLM's command for a server, from a comment of its Python code."""
    return commands(re.search("^# As a server: (.*)$", code, re.M)[1], folder)[0]


@pytest.mark.full
def test_the_code_of_every_way_to_draft_runs(tmp_path):
    """The code for transformers and for specdec runs unchanged. vLLM's is valid Python, the others' valid shell."""
    for pair, settings, params in WAYS:
        codes = codes_of(pair, settings, params)
        assert list(codes) == ["specdec", "transformers", "vLLM", "SGLang", "llama.cpp"]
        for name in list(codes)[1:]:
            assert re.match(rf"# {re.escape(name)} b?\d", codes[name])
        ast.parse(codes["vLLM"])
        for name in ("SGLang", "llama.cpp"):
            commands(codes[name], tmp_path)
            commands(codes_of(HUB | pair, settings, params)[name], tmp_path)
        for name in ("specdec", "transformers"):
            code = codes[name].replace("specdec/embedded", str(ROOT / "specdec" / "embedded"))
            exec(compile(code, f"{name}, {pair} {settings} {params}", "exec"), {})


def test_the_servers_draft_as_the_page_did(tmp_path):
    """Each server gets its own options for method and draft length: a draft model, prompt lookup, or nothing."""
    sampled = {"temperature": 0.7, "top_p": 0.9, "seed": 2**40}
    codes = codes_of(HUB, params=sampled)
    config = {"method": "draft_model", "model": "c/d", "num_speculative_tokens": 5}
    command = served(codes["vLLM"], tmp_path)
    assert command[:3] == ["vllm", "serve", "a/b"]
    assert json.loads(options(command)["--speculative-config"]) == config | {"draft_sample_method": "probabilistic"}
    serve, ask_it = commands(codes["SGLang"], tmp_path)
    assert " ".join(serve) == (
        "sglang serve --model-path a/b --speculative-algorithm STANDALONE --speculative-draft-model-path c/d "
        "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6"
    )
    neutral = {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0.7, "top_p": 0.9, "min_p": 0}
    assert ask_it[:2] == ["curl", "http://localhost:30000/v1/completions"]
    said = {"top_k": -1, "repetition_penalty": 1, "seed": 2**40}
    assert json.loads(options(ask_it)["-d"]) == neutral | said  # it does not accept top-k 0
    *converted, serve, ask_it = commands(codes["llama.cpp"], tmp_path)
    assert [" ".join(line) for line in converted] == [
        "python convert_hf_to_gguf.py a/b --remote --outfile target.gguf",
        "python convert_hf_to_gguf.py c/d --remote --outfile draft.gguf",
    ]
    assert " ".join(serve) == (
        "llama-server -m target.gguf -md draft.gguf --spec-type draft-simple --spec-draft-n-max 5 "
        "--spec-draft-sampling probabilistic"
    )
    samplers = ["penalties", "temperature", "top_k", "top_p", "min_p"]
    assert json.loads(options(ask_it)["-d"]) == neutral | {"top_k": 0, "seed": 0, "samplers": samplers}

    codes = codes_of(HUB | LOOKUP, {"gamma": 2}, prompt="Hi", chat=1)
    config = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"]) == config
    serve, ask_it = commands(codes["SGLang"], tmp_path)
    assert options(serve)["--speculative-algorithm"] == "NGRAM"
    assert options(serve)["--speculative-num-draft-tokens"] == "3"
    assert ask_it[1] == "http://localhost:30000/v1/chat/completions"
    assert json.loads(options(ask_it)["-d"])["messages"] == [{"role": "user", "content": "Hi"}]
    converted, serve, _ = commands(codes["llama.cpp"], tmp_path)
    assert options(serve)["--spec-type"] == "ngram-simple"
    assert options(serve)["--spec-ngram-simple-size-m"] == "2"
    assert options(serve)["--spec-ngram-simple-size-n"] == "2"  # 3 would never draft 2

    codes = codes_of(HUB, {"gamma": 0})
    assert served(codes["vLLM"], tmp_path) == ["vllm", "serve", "a/b"]
    assert commands(codes["SGLang"], tmp_path)[0] == ["sglang", "serve", "--model-path", "a/b"]
    assert commands(codes["llama.cpp"], tmp_path)[1] == ["llama-server", "-m", "target.gguf"]


def test_vllm_reads_a_grammar_with_the_library_of_the_other_lanes(tmp_path):
    code = codes_of(HUB, params={"grammar": {"kind": "regex", "text": "[a-z]+"}})["vLLM"]
    assert json.loads(options(served(code, tmp_path))["--structured-outputs-config"]) == {"backend": "guidance"}
    calls = {each.func.id: each.keywords for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Call)
             and isinstance(each.func, ast.Name)}  # fmt: skip
    given = {each.arg: each.value for each in calls["LLM"]}
    assert ast.literal_eval(given["structured_outputs_config"]) == {"backend": "guidance"}
    without = codes_of(HUB)["vLLM"]
    assert "structured" not in without


def test_the_servers_draft_with_the_layers_that_a_run_had(tmp_path):
    """The servers draft with the run's EAGLE-3 head, DFlash or DSpark head, MTP layers or Gemma 4 assistant."""
    codes = codes_of(HUB | HEAD)
    config = {"method": "eagle3", "model": "c/d", "num_speculative_tokens": 5}
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"]) == config
    serve, _ = commands(codes["SGLang"], tmp_path)
    assert options(serve)["--speculative-algorithm"] == "EAGLE3"
    assert options(serve)["--speculative-draft-model-path"] == "c/d"
    assert "no method" in codes["transformers"] and "no method" in codes["llama.cpp"]

    parallel = {"draft": HEAD["draft"] | {"one_pass": True, "most_guesses": 4}}
    codes = codes_of(HUB | parallel)
    config |= {"num_speculative_tokens": 4, "parallel_drafting": True}
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"]) == config
    assert "no head that drafts in parallel" in codes["SGLang"] and "gamma=5" in codes["specdec"]
    codes = codes_of(HUB | BLOCK)
    config = {"method": "dflash", "model": "c/d", "num_speculative_tokens": 5}
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"]) == config
    serve, _ = commands(codes["SGLang"], tmp_path)
    assert options(serve)["--speculative-algorithm"] == "DFLASH"
    assert options(serve)["--speculative-draft-model-path"] == "c/d"
    assert options(serve)["--speculative-num-draft-tokens"] == "6"  # the block, whose first token is known

    sequential = {"draft": BLOCK["draft"] | {"kind": "dspark", "text": "dspark:c/d", "most_guesses": 4}}
    codes = codes_of(HUB | sequential)
    config = {"method": "dspark", "model": "c/d", "num_speculative_tokens": 4}
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"]) == config
    serve, _ = commands(codes["SGLang"], tmp_path)
    assert options(serve)["--speculative-algorithm"] == "DSPARK"
    assert options(serve)["--speculative-dspark-block-size"] == "4"  # guesses, in a block whose rows all guess

    codes = codes_of(HUB | MTP)
    assert "specdec.Mtp()" in codes["specdec"] and "use_mtp=True" in codes["transformers"]
    ast.parse(codes["transformers"])
    config = {"method": "mtp", "num_speculative_tokens": 5}
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"]) == config
    serve, _ = commands(codes["SGLang"], tmp_path)
    assert options(serve)["--speculative-num-draft-tokens"] == "6"
    assert "--speculative-draft-model-path" not in options(serve)
    _, serve, _ = commands(codes["llama.cpp"], tmp_path)
    assert options(serve)["--spec-type"] == "draft-mtp" and options(serve)["--spec-draft-n-max"] == "5"

    codes = codes_of(HUB | ASSISTANT)
    assert 'specdec.Gemma4Assistant("c/d")' in codes["specdec"] and "no method" in codes["transformers"]
    config = {"method": "mtp", "model": "c/d", "num_speculative_tokens": 5}
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"]) == config
    serve, _ = commands(codes["SGLang"], tmp_path)
    assert options(serve)["--speculative-algorithm"] == "NEXTN"
    assert options(serve)["--speculative-draft-model-path"] == "c/d"


def test_the_code_says_what_a_server_cannot_do(tmp_path):
    """A server without the method gets a comment only. Code that differs from the page's run says so."""
    codes = codes_of(HUB | EARLY)
    for name in ("vLLM", "SGLang", "llama.cpp"):
        assert re.fullmatch("#.* no method of the kind early-exit.\n", codes[name])
    assert re.fullmatch("#.* cannot convert the embedded pair:\n#.*\n", codes_of()["llama.cpp"])
    ours = {"settings": {"gamma": "auto", "acceptance": "top-k", "accept_top_k": 3}}
    codes = codes_of(HUB, **ours, params={"temperature": 1, "min_p": 0.1})
    for name in ("vLLM", "SGLang", "llama.cpp"):
        assert "5 stands for auto" in codes[name]
        assert "no such top-k acceptance" in codes[name]
        assert ("no min_p where it drafts" in codes[name]) == (name != "llama.cpp")
    codes = codes_of(HUB, {"acceptance": "cautious"})
    assert "acceptance='cautious'" in codes["specdec"].replace('"', "'")
    assert "# vLLM does not have this acceptance: this is lossless" in codes["vLLM"]
    assert "min_p=" not in codes["vLLM"]  # a request with it is refused
    assert "min_p=0.1" in codes_of(HUB, {"gamma": 0}, {"temperature": 1, "min_p": 0.1})["vLLM"]


def test_the_code_for_two_tokenizers_names_both(tmp_path):
    """For two tokenizers transformers' code names both, vLLM's has an option, and the others say what they need."""
    codes = codes_of(HUB | {"draft": DRAFT | {"rows": 2}})
    ast.parse(codes["transformers"])
    assert 'draft_tokenizer = AutoTokenizer.from_pretrained("c/d")' in codes["transformers"]
    assert "tokenizer=tokenizer, assistant_tokenizer=draft_tokenizer" in codes["transformers"]
    assert '"use_heterogeneous_vocab": True' in codes["vLLM"]
    assert json.loads(options(served(codes["vLLM"], tmp_path))["--speculative-config"])["use_heterogeneous_vocab"]
    assert re.fullmatch("# SGLang .* only with a model of the\n# target's tokenizer.*\n", codes["SGLang"])
    assert "-md draft.gguf" in codes["llama.cpp"]
    for other in ({"rows": 200}, {"own_tokenizer": True}):
        codes = codes_of(HUB | {"draft": DRAFT | other})
        assert re.fullmatch("# llama.cpp .* only .*\n#.* tokenizer.*\n", codes["llama.cpp"])


def test_hostile_values_stay_arguments_of_the_shell(tmp_path):
    """Quotes, substitutions, redirections and line breaks of a recording run nothing and end no line."""
    bite = "'; >bitten; ' \"$(>bitten)\" `>bitten` && >bitten | >bitten & !! \\ $HOME ~ * {a,b} \\' #🚀"
    pair = {"name": None, "target": TARGET | {"name": bite}, "draft": DRAFT | {"name": f"c/{bite}"}}
    prompt = f"{bite}\n>bitten\r\n\x1b[201~\x9b201~{HOSTILE}\n# {bite}\nEOF"
    for chat in (0, 1):
        codes = codes_of(pair, prompt=prompt, chat=chat)
        command = served(codes["vLLM"], tmp_path)
        assert command[2] == bite
        assert json.loads(options(command)["--speculative-config"])["model"] == f"c/{bite}"
        ast.parse(codes["vLLM"])
        serve, ask_sglang = commands(codes["SGLang"], tmp_path)
        assert options(serve)["--model-path"] == bite
        assert options(serve)["--speculative-draft-model-path"] == f"c/{bite}"
        target, draft, _, ask_llama = commands(codes["llama.cpp"], tmp_path)
        assert (target[2], draft[2]) == (bite, f"c/{bite}")
        for command in (ask_sglang, ask_llama):
            body = json.loads(options(command)["-d"])
            assert (body["messages"][0]["content"] if chat else body["prompt"]) == prompt
        for lines in codes.values():
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", lines)  # a terminal would obey them


@pytest.mark.parametrize("name", ["--trust-remote-code", "a/b\n>bitten", "a/b\x1b[201~", {"a": "b"}])
def test_an_impossible_model_name_gives_no_code(name):
    """A model name that is an option, has a line break or is no text gives no code."""
    for role in ("target", "draft"):
        with pytest.raises(specdec.InvalidInput, match="names a model that cannot exist|its pair cannot be read"):
            codes_of(HUB | {role: HUB[role] | {"name": name}})


def test_no_expression_of_a_recording_becomes_code() -> None:
    """The expression that builds a draft method is written by us, from the text form of a known method."""
    bite = "__import__('os').system('id')"
    forged = [LOOKUP["draft"] | {"python": bite}, EARLY["draft"] | {"python": "subprocess.Popen('id')"}]
    for draft, own in zip(forged, ("specdec.PromptLookup()", "specdec.EarlyExit(3)"), strict=True):
        code = codes_of(HUB | {"draft": draft})["specdec"]
        assert own in code and "os" not in code and "Popen" not in code
    for draft in ({"kind": "echo", "text": "echo:2"}, {"kind": "early-exit", "text": f"early-exit:{bite}"}):
        with pytest.raises(specdec.InvalidInput, match="There is no code for this run"):
            codes_of(HUB | {"draft": draft})


@pytest.mark.parametrize(
    "change",
    [
        {"gamma": 2.5}, {"gamma": None}, {"params": {"temperature": "0)\nimport os"}}, {"params": {"seed": [1]}},
        {"params": {"top_p": 7}}, {"acceptance": 3}, {"pair": {"target": "a/b"}},
        {"pair": {"draft": {"kind": "model"}}},
    ],
)  # fmt: skip
def test_a_record_that_is_no_run_is_refused_in_a_sentence(change: dict) -> None:
    with pytest.raises(specdec.InvalidInput, match="There is no code for this run"):
        codes_of(change.pop("pair", None), change, change.pop("params", None))


def test_the_page_answers_any_request_for_code() -> None:
    for record in ("", "null", "[" * 99999, "{}", '{"settings": {"prompt": 5}}'):
        assert "There is no code" in json.loads(code_answer(record))["problem"]


def test_a_gguf_file_is_named_as_each_tool_names_one(tmp_path):
    """transformers gets the folder and the file, llama.cpp the file itself; the other tools get no lines."""
    target = HUB["target"] | {"name": "a/b:q.gguf"}
    draft = HUB["draft"] | {"name": "d.gguf", "local": True}
    codes = codes_of(HUB | {"target": target, "draft": draft})
    assert 'target = AutoModelForCausalLM.from_pretrained("a/b", gguf_file="q.gguf")' in codes["transformers"]
    assert 'draft = AutoModelForCausalLM.from_pretrained("path/to", gguf_file="d.gguf")' in codes["transformers"]
    for tool in ("vLLM", "SGLang"):
        assert all(line.startswith("#") for line in codes[tool].splitlines())
    assert 'cp "$(hf download a/b q.gguf)" target.gguf' in codes["llama.cpp"]
    assert "cp path/to/d.gguf draft.gguf" in codes["llama.cpp"] and "convert_hf" not in codes["llama.cpp"]


SCHEMA = {"type": "object", "properties": {"a": {"enum": ["it's"]}}}


def test_each_tool_is_asked_for_the_grammar_in_its_own_words(tmp_path) -> None:
    codes = codes_of(HUB, {}, {"grammar": {"kind": "json-schema", "text": json.dumps(SCHEMA)}})
    assert "StructuredOutputsParams(json=" in codes["vLLM"] and "x-guidance" in codes["vLLM"]
    assert 'structured_outputs_config={"backend": "guidance"}' in codes["vLLM"]
    ast.parse("\n".join(line for line in codes["vLLM"].splitlines() if not line.startswith("#")))
    for tool, field, value in (("SGLang", "json_schema", json.dumps(SCHEMA)), ("llama.cpp", "json_schema", SCHEMA)):
        (call,) = (each for each in commands(codes[tool], tmp_path) if each[0] == "curl")
        assert json.loads(options(call)["-d"])[field] == value
        assert f"# {tool} reads the grammar with its own library: the text may be another one" in codes[tool]
    codes = codes_of(HUB, {}, {"grammar": {"kind": "lark", "text": 'start: "a"'}})
    assert "SGLang 0.5.23 takes no grammar of this kind: lark" in codes["SGLang"]
    assert "takes no grammar of this kind: lark" in codes["llama.cpp"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("start: A\nA: ~/b/", True),
        ('start: "a" B\nB: /a\\/~/ & ~/b/', True),
        ('start: "~" B // ~\nB: /~+\\/~/', False),
        ('start: "\\"~" # ~\n', False),
        ('start: "a"~3 "b" ~ 2..4', False),
        ('start: %json {"enum": ["~"]}', False),
        ('%llguidance {"allow_invalid_utf8": true}\nstart: /[^a]*/', True),
    ],
)
def test_vllm_s_code_says_where_it_allows_more(text: str, told: bool) -> None:
    code = codes_of(HUB, {}, {"grammar": {"kind": "lark", "text": text}})["vLLM"]
    assert ("vLLM also allows special tokens where" in code) == told
    ast.parse("\n".join(line for line in code.splitlines() if not line.startswith("#")))
    assert "special tokens" not in codes_of(HUB, {}, {"grammar": {"kind": "regex", "text": "~/"}})["vLLM"]


def test_a_function_in_a_recording_gives_no_code() -> None:
    with pytest.raises(specdec.SpecdecError, match="has only the name of that"):
        codes_of({}, {}, {"grammar": {"kind": "function", "text": "brackets"}})


def test_the_transformers_code_writes_what_the_run_wrote(capsys) -> None:
    text = '{"enum": ["a cat", "a dog", 7]}'
    codes = codes_of({}, {}, {"grammar": {"kind": "json-schema", "text": text}, "max_new_tokens": 12})
    params = specdec.SamplingParams(12, grammar=specdec.Grammar("json-schema", text))
    pair = specdec.load_pair()
    expected = specdec.collect(specdec.speculative(pair, "Once upon a time", params=params), pair.tokenizer).text
    exec(compile(codes["transformers"], "transformers", "exec"), {})
    assert capsys.readouterr().out.strip().startswith(expected.strip())
