/* What Python's `browser_data` and `composer` send: see there. */

/** Of the outcome; or that the row is the head of a session, above its interactions. */
export type Mark = "" | "exhausted" | "failed" | "aborted" | "unreadable" | "session";

/** What is null is not known. */
export interface Row {
  at: number | null;
  method: string;
  path: string;
  status: number | null;
  remaining: number | null;
  ms: number | null;
  bytes: number | null;
  mark: Mark;
  attempt: number;
  /** The number of the interaction in its own session or file. All else goes by its place in the list. */
  number: number;
}

export type Pair = [name: string, value: string];

export interface Body {
  kind: "none" | "json" | "text" | "image" | "binary" | "absent";
  media_type: string;
  size: number;
  truncated: boolean;
  editable: boolean;
  digest: string;
}

export interface Message {
  headers: Pair[];
  body: Body;
}

export interface Details {
  /** Its place in the list. */
  number: number;
  row: Row;
  uri: string;
  path: string;
  reason: string;
  reading: Pair[];
  request: Message;
  response: Message;
  buffers: Uint8Array<ArrayBuffer>[];
}

export type Response = any;

/** Send a request to Python; the response has the bodies as `buffers`. */
export type Send = (request: { action: string; [name: string]: unknown }, body?: string | ArrayBuffer) => Promise<Response>;

/** Send a request, and throw the problem that it has as an error. */
export async function ask(send: Send, action: string, details: object = {}): Promise<Response> {
  const { problem, ...response } = await send({ action, ...details });
  if (problem) throw new Error(problem);
  return response;
}

const FIELDS = ["at", "method", "path", "status", "remaining", "ms", "bytes", "mark", "attempt", "number"];

/** Rows come as arrays: there may be many. */
export const rowOf = (values: unknown[]) => Object.fromEntries(FIELDS.map((name, i) => [name, values[i]])) as unknown as Row;
