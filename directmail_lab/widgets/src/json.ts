/* JSON as text: laid out anew without a change to any value, which JSON.parse would make to large numbers. */

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const ESCAPED = /\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\(?:u([0-9a-f]{4})|.)/gi;
const MOST_INDENTED = 60;

/** Return a letter in the place of its escape, where the letter can be seen. */
function unescape(escape: string, high?: string, low?: string, unit?: string): string {
  const text = String.fromCharCode(...[high, low, unit].filter((each) => each !== undefined).map((each) => parseInt(each, 16)));
  return /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u.test(text) && !/["\\]/.test(text) ? text : escape;
}

/** Lay JSON out with an indent of two; `readable` also shows letters in the place of their escapes. */
export function layOutJson(text: string, { readable = false } = {}): string {
  const tokens = text.match(TOKEN) ?? [];
  const parts: string[] = [];
  let depth = 0;
  const line = () => parts.push("\n", "  ".repeat(Math.min(depth, MOST_INDENTED)));
  tokens.forEach((token, i) => {
    const before = tokens[i - 1] ?? "";
    const isEnd = token === "}" || token === "]";
    if (isEnd) {
      depth -= 1;
      if (before !== "{" && before !== "[") line();
    } else if (before === "{" || before === "[" || before === ",") line();
    parts.push(readable && token[0] === '"' && token.includes("\\") ? token.replace(ESCAPED, unescape) : token);
    if (token === ":") parts.push(" ");
    if (token === "{" || token === "[") depth += 1;
  });
  return parts.join("");
}
