/* A recording as one HTML file. Python's `page` made all responses and put them into the file; only the search is written again here.
 *
 * In a browser that is too old, what the file shows without this script stays.
 */

import { createBrowser } from "./panel";
import type { Response as Answer, Send } from "./protocol";

/** A message's body: as it is shown, as it is saved, and as it is searched. What equals the one before is left out. */
interface Content {
  shown: string;
  saved?: string;
  text?: string;
}

interface Packed {
  detail: Answer;
  copy: Record<string, Answer>;
  body: Record<"request" | "response", Answer>;
  table: Answer;
  contents: Record<"request" | "response", Content> | null;
}

const MESSAGES = ["request", "response"] as const;
const ESCAPED = /\\u([0-9a-f]{4})/gi;

const fromBase64 = (text: string) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** Return the bytes of a text, which is in base64 if it begins with "b". */
const bytesOf = (packed: string) => (packed[0] === "b" ? fromBase64(packed.slice(1)) : new TextEncoder().encode(packed.slice(1)));

function createSend(scripts: HTMLScriptElement[], size: number, head: Answer): Send {
  const parts = scripts.map(() => undefined as Promise<Packed[]> | undefined);
  const packedOf = async (number: number) => {
    const part = Math.floor((number - 1) / size);
    return (await (parts[part] ??= unpack(scripts[part])))[(number - 1) % size];
  };
  const searched = new WeakMap<Packed, string>();

  function textOf(packed: Packed): string {
    const texts = MESSAGES.map((message) => {
      const { shown, saved = shown, text } = packed.contents![message];
      return text ?? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(saved));
    });
    return texts.join("\n").replace(ESCAPED, (_, digits) => String.fromCharCode(parseInt(digits, 16))).toLowerCase();
  }

  /* The same as `_search` of Python's `browser_data`. */
  async function search(words: string[], headers: string[], first: number, limit: number) {
    const found: number[][] = [...words, ...headers].map(() => []);
    for (let number = first; number < first + limit && number <= head.total; number += 1) {
      const packed = await packedOf(number);
      if (!packed.contents) continue; // it cannot be read
      if (words.length && !searched.has(packed)) searched.set(packed, textOf(packed));
      const pairs: string[][] = MESSAGES.flatMap((message) => packed.detail[message].headers);
      const has = (wanted: string) => {
        const [, name, value] = /^([^=]*)=?(.*)$/s.exec(wanted)!;
        return pairs.some(([own, text]) => own.toLowerCase() === name && text.toLowerCase().includes(value));
      };
      const hits = [...words.map((word) => searched.get(packed)!.includes(word)), ...headers.map(has)];
      hits.forEach((isFound, i) => isFound && found[i].push(number));
    }
    return { found };
  }

  return async (request) => {
    const { action, number, message, first, limit, words, headers, format } = request as any;
    if (action === "list") return { ...head, rows: head.rows.slice(first - 1, first - 1 + limit) };
    if (action === "search") return search(words, headers, first, limit);
    const { detail, copy, body, table, contents } = await packedOf(number);
    if (action === "copy") return copy[format];
    if (action === "table") return table;
    if (!contents) return detail;
    const { shown, saved = shown } = contents[message as "request"] ?? {};
    if (action === "body") return { ...body[message as "request"], buffers: [bytesOf(saved)] };
    return { ...detail, buffers: MESSAGES.map((each) => bytesOf(contents[each].shown)) };
  };
}

async function unpack(script: HTMLScriptElement): Promise<any> {
  const packed = new Blob([fromBase64(script.text)]).stream();
  return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json();
}

async function start() {
  const root = document.getElementById("recording")!;
  const [first, ...scripts] = document.querySelectorAll<HTMLScriptElement>('script[type="text/plain"]');
  const { size, head } = await unpack(first);
  const about = root.querySelector(".dml-p-about")!;
  root.replaceChildren();
  const send = createSend(scripts, size, head);
  createBrowser(root, { send, loadEditor: null, fill: true });
  about.append(" · select a row to see it");
  root.querySelector(".dml-top")!.after(about);
  root.querySelector<HTMLElement>("[role=grid]")!.focus();
  return send;
}

const isSupported = "DecompressionStream" in globalThis && CSS.supports("color", "light-dark(red, red)");

export const opened = isSupported ? start() : null;
