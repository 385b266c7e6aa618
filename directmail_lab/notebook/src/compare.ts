/* What differs between two responses: in the status, the headers and the body. */

import { div, formatCount, make, soft } from "./dom";
import type { Body, Details, Pair } from "./protocol";

const MOST = 500;
const MOST_CHARACTERS = 200;
const BEFORE = 60; // characters that are shown before the first one that differs
const NAME = /^[A-Za-z_]\w*$/;
// A string, which stays as it is, or a number.
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/gs;
const MARKED = /"\\u0000(?:([-\d][^"]*)"|(?=\\u0000))/g;

/** A field, and its value in both; undefined if there is none. */
type Difference = [field: string, first: string | undefined, second: string | undefined];

/** Parse JSON with numbers as texts, because JSON.parse would make different large numbers equal. A number begins with one
 * null character, and a text that begins with null characters gets another one. */
const parse = (text: string) =>
  JSON.parse(text.replace(TOKEN, (token) => (token[0] === '"' ? token.replace(/^"(?=\\u0000)/, '"\\u0000') : `"\\u0000${token}"`)));
const written = (value: unknown) => (value === undefined ? undefined : JSON.stringify(value).replace(MARKED, (_, number) => number ?? '"'));
const isNested = (value: unknown) => typeof value === "object" && value !== null;
const memberOf = (value: any, name: string) => (Object.hasOwn(value, name) ? value[name] : undefined);

function* compareJson(...texts: [string, string]): Generator<Difference> {
  const [first, second] = texts.map(parse);
  const rest: [path: string, first: any, second: any][] = [["", first, second]];
  for (let each = rest.pop(); each; each = rest.pop()) {
    const [path, one, other] = each;
    if (one === other) continue;
    if (!isNested(one) || !isNested(other) || Array.isArray(one) !== Array.isArray(other)) {
      yield [path.replace(/^\./, "") || "(all)", written(one), written(other)];
      continue;
    }
    const names = [...new Set([...Object.keys(one), ...Object.keys(other)])].reverse();
    for (const name of names) {
      const step = Array.isArray(one) ? `[${name}]` : NAME.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
      rest.push([path + step, memberOf(one, name), memberOf(other, name)]);
    }
  }
}

/** Compare line by line, after the lines at the start and at the end that are equal. */
function* compareLines(...texts: [string, string]): Generator<Difference> {
  const [first, second] = texts.map((text) => text.split("\n"));
  let start = 0;
  let end = 0;
  const shortest = Math.min(first.length, second.length);
  while (start < shortest && first[start] === second[start]) start += 1;
  while (end < shortest - start && first.at(-1 - end) === second.at(-1 - end)) end += 1;
  const [ones, others] = [first, second].map((lines) => lines.slice(start, lines.length - end));
  for (let at = 0; at < Math.max(ones.length, others.length); at += 1) {
    if (ones[at] !== others[at]) yield [`line ${start + at + 1}`, ones[at], others[at]];
  }
}

function valueOf(pairs: Pair[], header: string): string | undefined {
  const values = pairs.filter(([name]) => name.toLowerCase() === header).map(([, value]) => value);
  return values.length ? values.join(", ") : undefined;
}

function* compareHeaders(...both: [Pair[], Pair[]]): Generator<Difference> {
  for (const name of new Set(both.flat().map((pair) => pair[0].toLowerCase()))) {
    const [first, second] = both.map((pairs) => valueOf(pairs, name));
    if (first !== second) yield [name, first, second];
  }
}

const describe = ({ kind, size, digest }: Body) =>
  kind === "absent" ? "not kept" : `${kind}, ${formatCount(size)} bytes, SHA-256 ${digest}…`;

function* compareBodies(...both: [Details, Details]): Generator<Difference> {
  const [first, second] = both.map(({ response }) => response.body);
  const texts = both.map(({ buffers }) => new TextDecoder().decode(buffers[1])) as [string, string];
  const kinds = [first.kind, second.kind];
  const isCut = first.truncated || second.truncated;
  if (!isCut && kinds.every((kind) => kind === "json")) yield* compareJson(...texts);
  else if (kinds.every((kind) => ["json", "text", "none"].includes(kind))) {
    yield* compareLines(...texts);
    if (isCut && texts[0] === texts[1] && first.digest !== second.digest) yield ["(all)", describe(first), describe(second)];
  } else if (first.digest !== second.digest || kinds.includes("absent")) yield ["(all)", describe(first), describe(second)];
}

function* compareStatus(...both: [Details, Details]): Generator<Difference> {
  const [first, second] = both.map(({ row, reason }) => `${row.status ?? ""} ${reason}`.trim());
  if (first !== second) yield ["status", first, second];
}

/** What of a text is seen: neither a line end nor which of the equal forms a letter has. */
const seen = (text: string) => text.normalize("NFC").replace(/[\s\p{C}]/gu, "");
const escape = (text: string) => text.replace(/[^ -~…]|^ | $/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Shorten two values such that the first character that differs is shown, also if both look the same. */
function shorten(first = "", second = "") {
  let same = 0;
  while (same < first.length && first[same] === second[same]) same += 1;
  const from = Math.max(0, same - BEFORE);
  const parts = [first, second].map((text) =>
    text.length <= MOST_CHARACTERS ? text : `${from ? "…" : ""}${text.slice(from, from + MOST_CHARACTERS)}${text.length > from + MOST_CHARACTERS ? "…" : ""}`);
  return seen(parts[0]) === seen(parts[1]) ? parts.map(escape) : parts;
}

/** Return a table of what differs between two responses, by field, with both values. */
export function compareResponses(first: Details, second: Details): HTMLElement {
  const both: [Details, Details] = [first, second];
  const sections: Record<string, Generator<Difference>> = {
    Status: compareStatus(...both),
    Headers: compareHeaders(first.response.headers, second.response.headers),
    Body: compareBodies(...both),
  };
  const heads = ["", ...both.map(({ row }) => `${row.number} ${row.method} ${row.path}`)];
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((textContent) => make("th", { scope: "col", textContent })))));
  let left = MOST;
  for (const [name, differences] of Object.entries(sections)) {
    const body = table.appendChild(make("tbody"));
    const title = body.appendChild(make("tr", {}, make("th", { scope: "rowgroup", colSpan: 3, textContent: `${name}: equal` })));
    for (const [field, one, other] of differences) {
      title.firstChild!.textContent = name;
      if (!left) break;
      left -= 1;
      const cells = shorten(one, other).map((textContent, i) => make("td", [one, other][i] === undefined ? { className: "dml-soft", textContent: "absent" } : { textContent }));
      body.append(make("tr", {}, make("th", { scope: "row", textContent: field }), ...cells));
    }
  }
  const notes = [];
  if (!left) notes.push(`The first ${MOST} differences.`);
  if (both.some(({ response }) => response.body.truncated)) notes.push("Only the parts of the bodies that are shown are compared.");
  return div("", ...notes.map(soft), table);
}
