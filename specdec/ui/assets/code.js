// The lines that decode with these settings: in specdec, transformers and vLLM. A recording from elsewhere may hold
// anything, so every value is written as a Python literal, or refused.
const given = (pairs) => pairs.map(([name, value]) => `${name}=${value}`).join(", ");

function py(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number" && Number.isFinite(value)) return String(value);
  if (typeof value === "string") return JSON.stringify(value); // which Python reads as the same text
  throw new Error("It holds a value that is no number and no text.");
}

// `settings` as a link carries them, `started` of the speculative lane.
export function codeFor(settings, started) {
  const { params, pair, gamma, acceptance, accept_top_k } = started;
  const embedded = pair.name === "embedded";
  const named = (role) => (embedded ? `specdec/embedded/${role}` : pair[`${role}_local`] ? `path/to/${pair[role]}` : pair[role]);
  const method = gamma === 0 || !pair.draft ? "none" : pair.draft_layers ? "model" : /lookup/.test(pair.draft) ? "lookup" : "early exit";
  const facts = {
    params, gamma, method, embedded, acceptance, accept_top_k, chat: Boolean(settings.chat),
    target: named("target"), draft: named("draft"), layers: Number(/\d+/.exec(pair.draft ?? "")?.[0] ?? 0),
    apart: pair.translated || pair.draft_rows !== pair.target_rows, // transformers takes the two for two tokenizers
    prompt: settings.chat ? `[{"role": "user", "content": ${py(settings.prompt)}}]` : py(settings.prompt),
  };
  return { specdec: specdec(facts), transformers: transformers(facts), vLLM: vllm(facts) };
}

const NEUTRAL = { top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1, ignore_eos: false };
const changed = (params) => Object.entries(NEUTRAL).filter(([name, neutral]) => params[name] !== neutral).map(([name]) => [name, py(params[name])]);

function specdec({ params, gamma, method, embedded, acceptance, accept_top_k, target, draft, layers, prompt }) {
  const drafts = { none: "None", lookup: "specdec.PromptLookup()", "early exit": `specdec.EarlyExit(${layers})`, model: py(draft) }[method];
  const pair = embedded && ["model", "none"].includes(method) ? "" : embedded ? `draft=${drafts}` : `${py(target)}, ${drafts}`;
  const seed = params.temperature ? [["seed", py(params.seed)]] : [];
  const fields = [["max_new_tokens", py(params.max_new_tokens)], ["temperature", py(params.temperature)], ...changed(params), ...seed];
  const extra = acceptance === "lossless" ? [] : [["acceptance", py(acceptance)], ["accept_top_k", py(accept_top_k)]];
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
    ? [["do_sample", "True"], ...["temperature", "top_k", "top_p"].map((name) => [name, py(params[name])]), ["min_p", py(params.min_p || null)]]
    : [["do_sample", "False"]];
  const fields = [["max_new_tokens", py(params.max_new_tokens)], ...sampling, ["repetition_penalty", py(params.repetition_penalty)],
    ...(params.ignore_eos ? [["eos_token_id", "None"]] : [])];
  const drafting = {
    none: [], lookup: [["prompt_lookup_num_tokens", fixed ? py(gamma) : "5"]], "early exit": [["assistant_early_exit", py(layers)]],
    model: [["assistant_model", "draft"], ...(apart ? [["tokenizer", "tokenizer"], ["assistant_tokenizer", "draft_tokenizer"]] : [])],
  }[method];
  const guide = { model: "draft", "early exit": "target" }[method];
  const lines = [`tokenizer = AutoTokenizer.from_pretrained(${py(target)})`, `target = AutoModelForCausalLM.from_pretrained(${py(target)})`];
  if (method === "model") lines.push(`draft = AutoModelForCausalLM.from_pretrained(${py(draft)})`);
  if (method === "model" && apart) lines.push(`draft_tokenizer = AutoTokenizer.from_pretrained(${py(draft)})`);
  if (guide && fixed) {
    lines.push(`${guide}.generation_config.num_assistant_tokens = ${py(gamma)}`,
      `${guide}.generation_config.num_assistant_tokens_schedule = "constant"`,
      `${guide}.generation_config.assistant_confidence_threshold = 0.0`);
  }
  if (!fixed) lines.push("# transformers' own way to choose the draft length stands for auto");
  if (acceptance !== "lossless") lines.push("# transformers has no top-k acceptance: this is lossless");
  lines.push(chat
    ? `inputs = tokenizer.apply_chat_template(${prompt}, add_generation_prompt=True, return_tensors="pt", return_dict=True)`
    : `inputs = tokenizer(${prompt}, return_tensors="pt")`);
  if (params.temperature) lines.push(`torch.manual_seed(${py(params.seed)})`);
  return `${params.temperature ? "import torch\n" : ""}from transformers import AutoModelForCausalLM, AutoTokenizer

${lines.join("\n")}
ids = target.generate(**inputs, ${given([...drafting, ...fields])})
print(tokenizer.decode(ids[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
`;
}

function vllm({ params, gamma, method, acceptance, target, draft, prompt, chat }) {
  if (method === "early exit") return "# vLLM has no early exit of this kind.\n";
  const length = typeof gamma === "number" ? py(gamma) : "5";
  const config = {
    none: "", model: `{"method": "draft_model", "model": ${py(draft)}, "num_speculative_tokens": ${length}}`,
    lookup: `{"method": "ngram", "num_speculative_tokens": ${length}, "prompt_lookup_max": 3}`,
  }[method];
  const remarks = [typeof gamma === "number" ? "" : "# vLLM's draft length is fixed; 5 stands for auto\n",
    acceptance === "lossless" ? "" : "# vLLM has no such top-k acceptance: this is lossless\n"].join("");
  const fields = [["max_tokens", py(params.max_new_tokens)], ["temperature", py(params.temperature)], ...changed(params),
    ...(params.temperature ? [["seed", py(params.seed)]] : [])];
  return `from vllm import LLM, SamplingParams

${remarks}llm = LLM(
    model=${py(target)},${config ? `\n    speculative_config=${config},` : ""}
)
params = SamplingParams(${given(fields)})
outputs = llm.${chat ? "chat" : "generate"}(${prompt}, params)
print(outputs[0].outputs[0].text)
`;
}
