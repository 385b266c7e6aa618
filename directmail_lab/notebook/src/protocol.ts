/* The types of what Python's `browser_data` and `composer` send; see there. */

/** The outcome of an interaction. */
export type Mark = "" | "refused" | "failed" | "aborted";

/** The fields of Python's `Row`. A value that is not known is null. */
export interface Row {
  time: number | null;
  method: string;
  path: string;
  status: number | null;
  remaining: number | null;
  ms: number | null;
  bytes: number | null;
  mark: Mark;
  number: number;
  /** Whether it was replayed from a cassette while the session could send. */
  replayed: boolean;
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
  number: number;
  row: Row;
  uri: string;
  path: string;
  reason: string;
  /** Says that nothing was sent, or "". */
  note: string;
  reading: Pair[];
  request: Message;
  response: Message;
  buffers: Uint8Array<ArrayBuffer>[];
}

export type Response = any;

/** Send a request to Python. The response has the bodies as `buffers`. */
export type Send = (request: { action: string; [name: string]: unknown }, body?: string | ArrayBuffer) => Promise<Response>;

/** Send a request. If the response has a problem, throw it as an error. */
export async function ask(send: Send, action: string, details: object = {}): Promise<Response> {
  const { problem, ...response } = await send({ action, ...details });
  if (problem) throw new Error(problem);
  return response;
}

/** Return rows from arrays of values. They are sent as arrays, because there may be many. */
export const rowsOf = (fields: string[], rows: unknown[][]) =>
  rows.map((values) => Object.fromEntries(fields.map((name, i) => [name, values[i]])) as unknown as Row);
