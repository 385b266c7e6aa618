/* The filter: words, and fields with a value such as `status:4xx`. A minus before one excludes matches. */

import { isMarked, SYMBOLS } from "./columns";
import type { Row } from "./protocol";

type Test = (row: Row, value: string) => boolean | undefined;

export interface Filter {
  unknown: string[];
  passes: (row: Row) => boolean;
}

const UNITS: Record<string, number> = { "": 1, k: 1e3, m: 1e6, s: 1e3 };
const COMPARED = /^(>=|<=|>|<|=)?(\d+(?:\.\d+)?)([kms]?)$/;

function compare(has: number | null, value: string): boolean | undefined {
  const [, sign = "=", digits, unit] = COMPARED.exec(value) ?? [];
  if (digits === undefined) return undefined;
  const wanted = Number(digits) * UNITS[unit];
  if (has === null) return false;
  return { ">": has > wanted, "<": has < wanted, ">=": has >= wanted, "<=": has <= wanted, "=": Math.round(has) === wanted }[sign];
}

/* Return whether a row has the value; undefined if the value is not valid for the field. */
const FIELDS: Record<string, Test> = {
  status: (row, value) =>
    /^[\dx]{1,3}$/.test(value) ? [...value].every((digit, i) => digit === "x" || String(row.status ?? "")[i] === digit) : undefined,
  method: (row, value) => row.method.toLowerCase() === value,
  path: (row, value) => row.path.toLowerCase().includes(value),
  ms: (row, value) => compare(row.ms, value),
  bytes: (row, value) => compare(row.bytes, value),
  left: (row, value) => compare(row.remaining, value),
  is: (row, value) => (Object.hasOwn(SYMBOLS, value) ? isMarked(row, value) : undefined),
};
const NOTHING = { method: "", path: "" } as Row;

export const KNOWN = Object.keys(FIELDS).join(", ");

export function parseFilter(text: string): Filter {
  const unknown: string[] = [];
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((typed): Filter["passes"] => {
    const wanted = !/^-./.test(typed);
    const term = wanted ? typed : typed.slice(1);
    const [, name = "", value = ""] = /^(\w+):(?!\/\/)(.+)$/.exec(term) ?? [];
    const has = Object.hasOwn(FIELDS, name) ? FIELDS[name] : undefined;
    if (has?.(NOTHING, value) !== undefined) return (row) => has!(row, value) === wanted;
    if (name) unknown.push(term);
    return (row) => `${row.method} ${row.path} ${row.status}`.toLowerCase().includes(term) === wanted;
  });
  return { unknown, passes: (row) => tests.every((test) => test(row)) };
}
