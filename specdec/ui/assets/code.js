// The lines that decode with these settings: in specdec, transformers and vLLM.
const text = (value) => JSON.stringify(value); // a JSON string is a Python string
const given = (pairs) => pairs.filter(([, value]) => value !== undefined).map(([name, value]) => `${name}=${value}`).join(", ");

// `settings` as a link carries them, `started` of the speculative lane.
export function codeFor(settings, started) {
  const { params, pair, gamma, acceptance, accept_top_k } = started;
  const embedded = pair.name === "embedded";
  const target = embedded ? "specdec/embedded/target" : pair.target;
  const draft = embedded ? "specdec/embedded/draft" : pair.draft;
  const method = pair.draft_layers ? "model" : /lookup/.test(pair.draft ?? "") ? "lookup" : "early exit";
  const layers = Number(/\d+/.exec(pair.draft ?? "")?.[0]);
  const prompt = settings.chat ? `[{"role": "user", "content": ${text(settings.prompt)}}]` : text(settings.prompt);
  const facts = { params, target, draft, method, layers, prompt, gamma, chat: settings.chat, embedded, acceptance, accept_top_k };
  return { specdec: specdec(facts), transformers: transformers(facts), vLLM: vllm(facts) };
}

const changed = (params, names) => Object.entries(names)
  .filter(([name, neutral]) => params[name] !== neutral && params[name] !== null)
  .map(([name]) => [name, typeof params[name] === "boolean" ? "True" : params[name]]);
const NEUTRAL = { top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 };

function specdec({ params, target, draft, method, layers, prompt, gamma, embedded, acceptance, accept_top_k }) {
  const drafts = { lookup: "specdec.PromptLookup()", "early exit": `specdec.EarlyExit(${layers})`, model: text(draft) }[method];
  const pair = embedded && method === "model" ? "" : embedded ? `draft=${drafts}` : `${text(target)}, ${drafts}`;
  const seed = params.temperature ? [["seed", params.seed]] : [];
  const fields = [["max_new_tokens", params.max_new_tokens], ["temperature", params.temperature],
    ...changed(params, { ...NEUTRAL, ignore_eos: false }), ...seed];
  const extra = acceptance === "lossless" ? [] : [["acceptance", text(acceptance)], ["accept_top_k", accept_top_k]];
  const length = typeof gamma === "number" ? gamma : text("auto");
  return `import specdec

pair = specdec.load_pair(${pair})
params = specdec.SamplingParams(${given(fields)})
events = specdec.speculative(pair, ${prompt}, ${given([["gamma", length], ["params", "params"], ...extra])})
result = specdec.collect(events, pair.tokenizer)
print(result.text)
`;
}

function transformers({ params, target, draft, method, layers, prompt, gamma, chat }) {
  const sampling = params.temperature
    ? [["do_sample", "True"], ["temperature", params.temperature], ["top_k", params.top_k], ["top_p", params.top_p], ...changed(params, { min_p: 0, repetition_penalty: 1 })]
    : [["do_sample", "False"], ...changed(params, { repetition_penalty: 1 })];
  const eos = params.ignore_eos ? [["eos_token_id", "None"]] : [];
  const drafting = { lookup: [["prompt_lookup_num_tokens", gamma]], "early exit": [["assistant_early_exit", layers]], model: [["assistant_model", "draft"]] }[method];
  const constant = typeof gamma === "number"
    ? `draft.generation_config.num_assistant_tokens = ${gamma}
draft.generation_config.num_assistant_tokens_schedule = "constant"
draft.generation_config.assistant_confidence_threshold = 0.0
` : "";
  const load = method === "model" ? `draft = AutoModelForCausalLM.from_pretrained(${text(draft)})\n${constant}` : "";
  const encode = chat
    ? `tokenizer.apply_chat_template(${prompt}, add_generation_prompt=True, return_tensors="pt", return_dict=True)`
    : `tokenizer(${prompt}, return_tensors="pt")`;
  return `from transformers import AutoModelForCausalLM, AutoTokenizer${params.temperature ? ", set_seed" : ""}

tokenizer = AutoTokenizer.from_pretrained(${text(target)})
target = AutoModelForCausalLM.from_pretrained(${text(target)})
${load}inputs = ${encode}
${params.temperature ? `set_seed(${params.seed})\n` : ""}ids = target.generate(
    **inputs, ${given([...drafting, ["max_new_tokens", params.max_new_tokens], ...sampling, ...eos])}
)
print(tokenizer.decode(ids[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
`;
}

function vllm({ params, target, draft, method, prompt, gamma, chat }) {
  if (method === "early exit") return "# vLLM has no early exit of this kind.\n";
  const length = typeof gamma === "number" ? gamma : 5;
  const auto = typeof gamma === "number" ? "" : "# vLLM's draft length is fixed; 5 stands for auto.\n";
  const config = method === "model"
    ? `{"method": "draft_model", "model": ${text(draft)}, "num_speculative_tokens": ${length}}`
    : `{"method": "ngram", "num_speculative_tokens": ${length}, "prompt_lookup_max": 3}`;
  const fields = [["max_tokens", params.max_new_tokens], ["temperature", params.temperature], ...changed(params, { ...NEUTRAL, ignore_eos: false }),
    ...(params.temperature ? [["seed", params.seed]] : [])];
  return `from vllm import LLM, SamplingParams

${auto}llm = LLM(
    model=${text(target)},
    speculative_config=${config},
)
params = SamplingParams(${given(fields)})
outputs = llm.${chat ? "chat" : "generate"}(${prompt}, params)
print(outputs[0].outputs[0].text)
`;
}
