// Checks whether a record is a line of a recording, by the schema that the server's code makes.
import { SCHEMA } from "./recording_schema.js";

const TYPES = {
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
  number: (value) => Number.isFinite(value),
  integer: (value) => Number.isSafeInteger(value),
  null: (value) => value === null,
  array: (value) => Array.isArray(value),
  object: (value) => value !== null && typeof value === "object" && !Array.isArray(value),
};

// The keywords of JSON Schema that ours uses. `type` always comes first, so the others know the type.
const WORDS = {
  type: (value, type) => TYPES[type](value),
  const: (value, only) => value === only,
  enum: (value, some) => some.includes(value),
  maxLength: (value, most) => value.length <= most,
  minimum: (value, least) => value >= least,
  maximum: (value, most) => value <= most,
  exclusiveMaximum: (value, bound) => value < bound,
  minItems: (value, least) => value.length >= least,
  maxItems: (value, most) => value.length <= most,
  items: (value, rule) => value.every((item) => fits(item, rule)),
  prefixItems: (value, rules) => rules.every((rule, place) => fits(value[place], rule)),
  maxProperties: (value, most) => Object.keys(value).length <= most,
  required: (value, names) => names.every((name) => Object.hasOwn(value, name)),
  properties: (value, rules) =>
    Object.entries(rules).every(([name, rule]) => !Object.hasOwn(value, name) || fits(value[name], rule)),
  additionalProperties: (value, rule, { properties = {} }) =>
    rule === true ||
    Object.keys(value).every((name) => Object.hasOwn(properties, name) || (rule && fits(value[name], rule))),
  anyOf: (value, rules) => rules.some((rule) => fits(value, rule)),
  $ref: (value, name) => fits(value, SCHEMA.types[name]),
};

function fits(value, rule) {
  for (const word in rule) if (!WORDS[word](value, rule[word], rule)) return false;
  return true;
}

// The field of a record that does not fit the schema, "kind" if it is no line at all, or null.
export function wrongField(record) {
  if (!TYPES.object(record) || !Object.hasOwn(SCHEMA.lines, record.event)) return "kind";
  const { properties, required = [] } = SCHEMA.types[SCHEMA.lines[record.event]];
  const wrong = Object.keys(properties).find((name) =>
    Object.hasOwn(record, name) ? !fits(record[name], properties[name]) : required.includes(name),
  );
  return wrong ?? null;
}
