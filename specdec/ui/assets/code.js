// The lines that decode with these settings: in specdec, transformers, vLLM, SGLang and llama.cpp. A recording from
// elsewhere may hold anything, so every value is written as a literal of Python or JSON, or refused; in a shell each
// stands in single quotes. The first line of each names the version whose documentation and sources it follows.
const given = (pairs) => pairs.map(([name, value]) => `${name}=${value}`).join(", ");
const object = (pairs, write = (value) => value) =>
  `{${pairs.map(([name, value]) => `"${name}": ${write(value)}`).join(", ")}}`;

function json(value) {
  const plain =
    value === null || value === undefined || ["boolean", "string"].includes(typeof value) || Number.isFinite(value);
  if (!plain) throw new Error("It holds a value that is no number and no text.");
  // A terminal acts on control characters even within quotes; JSON leaves those above 7e as they are.
  return JSON.stringify(value ?? null).replace(/[\x7f-\x9f]/g, (mark) => `\\u00${mark.charCodeAt(0).toString(16)}`);
}

const PYTHON = { null: "None", true: "True", false: "False" };
const py = (value) => PYTHON[json(value)] ?? json(value); // Python reads the others as the same number or text

// One argument of a shell, which is no option and ends no line.
function sh(value) {
  if (typeof value !== "string" || /^-|[\x00-\x1f\x7f-\x9f]/.test(value))
    throw new Error("It holds a name that no model has.");
  return `'${value.replaceAll("'", "'\\''")}'`;
}

const command = (...parts) => `${parts.flat().join(" \\\n  ")}\n`;

// `settings` as a link carries them, `started` of the speculative lane.
export function codeFor(settings, started) {
  const { params, pair, gamma, acceptance, accept_top_k } = started;
  const embedded = pair.name === "embedded";
  const named = (role, { name, local }) => (embedded ? `specdec/embedded/${role}` : local ? `path/to/${name}` : name);
  const drafting = pair.draft ?? {};
  const method = gamma === 0 || !pair.draft ? "none" : drafting.kind;
  const facts = {
    params,
    gamma,
    method,
    embedded,
    acceptance,
    accept_top_k,
    chat: Boolean(settings.chat),
    target: named("target", pair.target),
    draft: method === "model" ? named("draft", drafting) : "",
    layers: drafting.layers,
    apart: drafting.own_tokenizer || drafting.rows !== pair.target.rows, // which others take for two tokenizers
    translated: drafting.own_tokenizer,
    rows: Math.abs(drafting.rows - pair.target.rows),
    hub: { target: !pair.target.local, draft: !drafting.local },
    prompt: settings.chat ? `[{"role": "user", "content": ${json(settings.prompt)}}]` : json(settings.prompt), // JSON and Python
  };
  return {
    specdec: specdec(facts),
    transformers: transformers(facts),
    vLLM: vllm(facts),
    SGLang: sglang(facts),
    "llama.cpp": llamacpp(facts),
  };
}

const NEUTRAL = { top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1, ignore_eos: false };
const FIXED = 5; // where a tool has no way to choose the draft length
const changed = (params) =>
  Object.entries(NEUTRAL)
    .filter(([name, neutral]) => params[name] !== neutral)
    .map(([name]) => [name, py(params[name])]);

function specdec({ params, gamma, method, embedded, acceptance, accept_top_k, target, draft, layers, prompt }) {
  const drafts = {
    none: "None",
    "prompt-lookup": "specdec.PromptLookup()",
    "early-exit": `specdec.EarlyExit(${layers})`,
    model: py(draft),
  }[method];
  const pair =
    embedded && ["model", "none"].includes(method) ? "" : embedded ? `draft=${drafts}` : `${py(target)}, ${drafts}`;
  const seed = params.temperature ? [["seed", py(params.seed)]] : [];
  const fields = [
    ["max_new_tokens", py(params.max_new_tokens)],
    ["temperature", py(params.temperature)],
    ...changed(params),
    ...seed,
  ];
  const extra =
    acceptance === "lossless"
      ? []
      : [
          ["acceptance", py(acceptance)],
          ["accept_top_k", py(accept_top_k)],
        ];
  const length = typeof gamma === "number" ? py(gamma) : py("auto");
  return `import specdec

pair = specdec.load_pair(${pair})
params = specdec.SamplingParams(${given(fields)})
events = specdec.speculative(pair, ${prompt}, ${given([["gamma", length], ["params", "params"], ...extra])})
result = specdec.collect(events, pair.tokenizer)
print(result.text)
`;
}

function transformers({ params, gamma, method, acceptance, target, draft, layers, apart, chat, prompt }) {
  const fixed = typeof gamma === "number";
  // Neutral values too: a field that is left out is filled from the model's own generation config.
  const sampling = params.temperature
    ? [
        ["do_sample", "True"],
        ...["temperature", "top_k", "top_p"].map((name) => [name, py(params[name])]),
        ["min_p", py(params.min_p || null)],
      ]
    : [["do_sample", "False"]];
  const fields = [
    ["max_new_tokens", py(params.max_new_tokens)],
    ...sampling,
    ["repetition_penalty", py(params.repetition_penalty)],
    ...(params.ignore_eos ? [["eos_token_id", "None"]] : []),
  ];
  const drafting = {
    none: [],
    "prompt-lookup": [
      ["prompt_lookup_num_tokens", fixed ? py(gamma) : "5"],
      ["max_matching_ngram_size", "3"],
    ],
    "early-exit": [["assistant_early_exit", py(layers)]],
    model: [
      ["assistant_model", "draft"],
      ...(apart
        ? [
            ["tokenizer", "tokenizer"],
            ["assistant_tokenizer", "draft_tokenizer"],
          ]
        : []),
    ],
  }[method];
  const guide = { model: "draft", "early-exit": "target" }[method];
  const lines = [
    `tokenizer = AutoTokenizer.from_pretrained(${py(target)})`,
    `target = AutoModelForCausalLM.from_pretrained(${py(target)})`,
  ];
  if (method === "model") lines.push(`draft = AutoModelForCausalLM.from_pretrained(${py(draft)})`);
  if (method === "model" && apart) lines.push(`draft_tokenizer = AutoTokenizer.from_pretrained(${py(draft)})`);
  if (guide && fixed) {
    lines.push(
      `${guide}.generation_config.num_assistant_tokens = ${py(gamma)}`,
      `${guide}.generation_config.num_assistant_tokens_schedule = "constant"`,
      `${guide}.generation_config.assistant_confidence_threshold = 0.0`,
    );
  }
  if (!fixed) lines.push("# transformers' own way to choose the draft length stands for auto");
  if (acceptance !== "lossless") lines.push("# transformers has no top-k acceptance: this is lossless");
  lines.push(
    chat
      ? `inputs = tokenizer.apply_chat_template(${prompt}, add_generation_prompt=True, return_tensors="pt", return_dict=True)`
      : `inputs = tokenizer(${prompt}, return_tensors="pt")`,
  );
  if (params.temperature) lines.push(`torch.manual_seed(${py(params.seed)})`);
  return `# transformers 5.23
${params.temperature ? "import torch\n" : ""}from transformers import AutoModelForCausalLM, AutoTokenizer

${lines.join("\n")}
ids = target.generate(**inputs, ${given([...drafting, ...fields])})
print(tokenizer.decode(ids[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
`;
}

// What stands otherwise in all three servers.
function remarks(tool, { gamma, acceptance }, ...more) {
  return [
    typeof gamma === "number" ? "" : `# ${tool}'s draft length is fixed; ${FIXED} stands for auto`,
    acceptance === "lossless" ? "" : `# ${tool} has no such top-k acceptance: this is lossless`,
    ...more,
  ].filter(Boolean);
}

function vllm(facts) {
  const { params, gamma, method, target, draft, apart, prompt, chat } = facts;
  if (method === "early-exit") return "# vLLM 0.33 has no early exit of this kind.\n";
  const length = ["num_speculative_tokens", typeof gamma === "number" ? gamma : FIXED];
  const config = {
    none: null,
    "prompt-lookup": [["method", "ngram"], length, ["prompt_lookup_max", 3], ["prompt_lookup_min", 1]],
    model: [
      ["method", "draft_model"],
      ["model", draft],
      length,
      ...(apart
        ? [["use_heterogeneous_vocab", true]]
        : params.temperature
          ? [["draft_sample_method", "probabilistic"]]
          : []),
    ],
  }[method];
  const refused = config && params.temperature && params.min_p;
  const fields = [
    ["max_tokens", py(params.max_new_tokens)],
    ["temperature", py(params.temperature)],
    ...changed(params).filter(([name]) => name !== "min_p" || !refused),
    ...(params.temperature ? [["seed", py(params.seed)]] : []),
  ];
  const lines = [
    "# vLLM 0.33",
    ...remarks("vLLM", facts, refused && "# vLLM takes no min_p where it drafts: it is left out"),
    `# As a server: vllm serve ${sh(target)}${config ? ` --speculative-config ${sh(object(config, json))}` : ""}`,
  ];
  return `${lines.join("\n")}
from vllm import LLM, SamplingParams

llm = LLM(
    model=${py(target)},${config ? `\n    speculative_config=${object(config, py)},` : ""}
)
params = SamplingParams(${given(fields)})
outputs = llm.${chat ? "chat" : "generate"}(${prompt}, params)
print(outputs[0].outputs[0].text)
`;
}

// Both servers speak OpenAI's protocol and take further fields in it.
const request = (port, { chat, prompt }, fields) => `# in another shell, once it listens
${command(
  `curl http://localhost:${port}/v1/${chat ? "chat/" : ""}completions`,
  "-H 'Content-Type: application/json'",
  `-d ${sh(object([[chat ? "messages" : "prompt", prompt], ...fields]))}`,
)}`;

function sglang(facts) {
  const { params, gamma, method, target, draft, apart } = facts;
  if (method === "early-exit") return "# SGLang 0.5.23 has no early exit of this kind.\n";
  if (method === "model" && apart)
    return "# SGLang 0.5.23 drafts only with a model of the\n# target's tokenizer and number of vocabulary rows.\n";
  const length = typeof gamma === "number" ? gamma : FIXED;
  const verified = `--speculative-num-draft-tokens ${json(length + 1)}`; // the token before the draft is counted
  const options = {
    none: [],
    "prompt-lookup": ["--speculative-algorithm NGRAM", verified, "--speculative-ngram-max-bfs-breadth 1"],
    model: [
      "--speculative-algorithm STANDALONE",
      `--speculative-draft-model-path ${sh(draft)}`,
      `--speculative-num-steps ${json(length)} --speculative-eagle-topk 1 ${verified}`,
    ],
  }[method];
  const drafts = method !== "none";
  const refused = drafts && params.temperature && params.min_p;
  // Neutral values too: a field that is left out is filled from the model's own generation config.
  const sampling = params.temperature
    ? [
        ["top_k", json(params.top_k || -1)],
        ["top_p", json(params.top_p)],
        ...(refused ? [] : [["min_p", json(params.min_p)]]),
        ["seed", json(params.seed)],
      ]
    : [];
  const fields = [
    ["max_tokens", json(params.max_new_tokens)],
    ["temperature", json(params.temperature)],
    ...sampling,
    ["repetition_penalty", json(params.repetition_penalty)],
    ...(params.ignore_eos ? [["ignore_eos", "true"]] : []),
  ];
  const lines = [
    "# SGLang 0.5.23",
    ...remarks(
      "SGLang",
      facts,
      method === "prompt-lookup" && "# prompt lookup is NGRAM: it matches more than 3 tokens, and earlier requests",
      method === "model" &&
        params.temperature &&
        "# SGLang drafts the likeliest tokens at any temperature; the text is sampled all the same",
      refused && "# SGLang takes no min_p where it drafts: it is left out",
      drafts && params.repetition_penalty !== 1 && "# SGLang leaves a draft's own tokens out of the repetition penalty",
    ),
  ];
  return `${lines.join("\n")}\n${command(`sglang serve --model-path ${sh(target)}`, options)}${request(30000, facts, fields)}`;
}

function llamacpp(facts) {
  const { params, gamma, method, embedded, translated, rows, hub, target, draft } = facts;
  if (method === "early-exit") return "# llama.cpp b11434 has no early exit of this kind.\n";
  if (embedded) return "# llama.cpp b11434 cannot convert the embedded pair:\n# it does not know its tokenizer.\n";
  if (method === "model" && (translated || rows > 128)) {
    return "# llama.cpp b11434 drafts only with a model of the\n# target's tokenizer, its rows at most 128 more or fewer.\n";
  }
  const length = typeof gamma === "number" ? gamma : FIXED;
  const match = Math.min(3, length); // a match that is longer than the draft would draft nothing
  const gguf = (name, role) =>
    `python convert_hf_to_gguf.py ${sh(name)}${hub[role] ? " --remote" : ""} --outfile ${role}.gguf\n`;
  const options = {
    none: [],
    "prompt-lookup": [
      `--spec-type ngram-simple --spec-ngram-simple-size-n ${json(match)} --spec-ngram-simple-size-m ${json(length)}`,
    ],
    model: [
      `-md draft.gguf --spec-type draft-simple --spec-draft-n-max ${json(length)}`,
      ...(params.temperature ? ["--spec-draft-sampling probabilistic"] : []),
    ],
  }[method];
  // Its own defaults are not neutral, and it cuts before the temperature where the others cut after it.
  const sampling = params.temperature
    ? [
        ...["top_k", "top_p", "min_p"].map((name) => [name, json(params[name])]),
        ["seed", json(params.seed % 2 ** 31)],
        ["samplers", '["penalties", "temperature", "top_k", "top_p", "min_p"]'],
      ]
    : [];
  const penalty =
    params.repetition_penalty === 1
      ? []
      : [
          ["repeat_penalty", json(params.repetition_penalty)],
          ["repeat_last_n", "65536"],
        ];
  const fields = [
    ["max_tokens", json(params.max_new_tokens)],
    ["temperature", json(params.temperature)],
    ...sampling,
    ...penalty,
    ...(params.ignore_eos ? [["ignore_eos", "true"]] : []),
  ];
  const lines = [
    "# llama.cpp b11434; it reads GGUF files, which its own folder converts",
    ...remarks(
      "llama.cpp",
      facts,
      method === "prompt-lookup" && `# the nearest to prompt lookup: it matches ${match} tokens, no fewer`,
    ),
  ];
  return `${lines.join("\n")}
${gguf(target, "target")}${method === "model" ? gguf(draft, "draft") : ""}${command(
    "llama-server -m target.gguf",
    options,
  )}${request(8080, facts, fields)}`;
}
