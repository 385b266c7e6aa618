/* Formats JSON as text, so that no value changes. JSON.parse would change large numbers. */

const ESCAPED = /\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\(?:u([0-9a-f]{4})|.)/gi;
const MOST_INDENTED = 60;
const SPACE = " \n\r\t";
const END = ' \n\r\t,:{}[]"';

/** Return the character of an escape, or the escape if the character is not visible. */
function unescape(escape: string, high?: string, low?: string, unit?: string): string {
  const text = String.fromCharCode(...[high, low, unit].filter((each) => each !== undefined).map((each) => parseInt(each, 16)));
  return /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u.test(text) && !/["\\]/.test(text) ? text : escape;
}

/** Format JSON with an indent of two. `readable` also replaces escapes by their characters. */
export function layOutJson(text: string, { readable = false } = {}): string {
  const lines = Array.from({ length: MOST_INDENTED + 1 }, (_, depth) => `\n${"  ".repeat(depth)}`);
  const line = () => lines[Math.min(Math.max(depth, 0), MOST_INDENTED)];
  const skip = (at: number) => {
    while (at < text.length && SPACE.includes(text[at])) at += 1;
    return at;
  };
  let out = "";
  let depth = 0;
  let at = skip(0);
  let isOpened = false;
  // Not a regular expression, which takes three times as long for two megabytes.
  while (at < text.length) {
    const start = at;
    const sign = text[at];
    const wasOpened = isOpened;
    isOpened = sign === "{" || sign === "[";
    at += 1;
    if (sign === '"') {
      while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
      at += 1;
      const string = text.slice(start, at);
      out += readable && string.includes("\\") ? string.replace(ESCAPED, unescape) : string;
    } else if (isOpened) {
      const isEmpty = "}]".includes(text[skip(at)] ?? " ");
      depth += 1;
      out += isEmpty ? sign : sign + line();
    } else if (sign === "}" || sign === "]") {
      depth -= 1;
      out += wasOpened ? sign : line() + sign;
    } else if (sign === ",") out += `,${line()}`;
    else if (sign === ":") out += ": ";
    else {
      while (at < text.length && !END.includes(text[at])) at += 1;
      out += text.slice(start, at);
    }
    at = skip(at);
  }
  return out;
}
