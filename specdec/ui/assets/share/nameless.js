// Turns records into lists and back. A link needs no names of fields, because the schema of recordings has them in a
// fixed order. A change of that order is a new version of recordings or results.
import { SCHEMA } from "../race/recording_schema.js";

// A value that fits a rule of the schema, with a list in place of each object whose fields the schema names.
export function withoutNames(value, rule) {
  if (value === null || value === undefined) return null;
  const { const: constant, properties, required, items } = resolved(rule);
  if (constant !== undefined) return null;
  if (properties)
    return cut(
      Object.entries(properties).map(([name, part]) => {
        const field = withoutNames(value[name], part);
        return mayMiss(name, part, required) && value[name] !== undefined ? [field] : field;
      }),
    );
  return items ? value.map((item) => withoutNames(item, items)) : value;
}

// The value again, with what its rule says is constant. What it does not have is null, or missing if it can be missing.
export function withNames(value, rule) {
  const { const: constant, properties, required, items } = resolved(rule);
  if (constant !== undefined) return constant;
  if (value === null) return null;
  if (items) return value.map((item) => withNames(item, items));
  if (!properties) return value;
  const fields = Object.entries(properties).map(([name, part], at) => {
    const field = value[at] ?? null;
    if (!mayMiss(name, part, required)) return [name, withNames(field, part), mayBeNull(part)];
    return [name, withNames(field?.[0] ?? null, part), field !== null];
  });
  return Object.fromEntries(
    fields.filter(([, field, stays]) => field !== null || stays).map((each) => each.slice(0, 2)),
  );
}

// The rules of a line of a recording, and of a type that the schema names.
export const ruleOf = (kind) => SCHEMA.types[SCHEMA.lines[kind]];
export const typeOf = (name) => SCHEMA.types[name];

// The rule of a value that is not null.
function resolved(rule) {
  if (rule.anyOf) return resolved(rule.anyOf.find(({ type }) => type !== "null"));
  return rule.$ref ? resolved(SCHEMA.types[rule.$ref]) : rule;
}

// A field that can be null and can be missing is in a list where it is there.
const mayMiss = (name, part, required = []) => mayBeNull(part) && !required.includes(name);

const mayBeNull = ({ type, anyOf = [] }) => type === "null" || anyOf.some((rule) => rule.type === "null");

// Without the nulls at the end.
function cut(values) {
  return values.slice(0, values.findLastIndex((value) => value !== null) + 1);
}
