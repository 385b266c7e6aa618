/* The form for a request. Python's `Composer` checks the request and sends it.
 *
 * The form sends exactly what it shows: the address unchanged, and the recorded bytes of a recorded body that
 * was not edited.
 */

import { activeElement, div, make, makeButton, makeSelect, newId, plural, setText, soft } from "./dom";
import { createEditor, type LoadEditor } from "./editor";
import { layOutJson } from "./json";
import { createPairs } from "./pairs";
import type { Details, Pair, Response as Answer, Row, Send } from "./protocol";
import { createTabs } from "./tabs";

const METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];
const WITH_BODY = ["POST", "PUT", "PATCH"];
const WAITING_MS = 500;
const COUNTING_MS = 100;
const FORM_TYPE = "application/x-www-form-urlencoded";
const TYPES: Record<string, string> = { json: "application/json", form: FORM_TYPE, text: "text/plain; charset=utf-8" };
const KINDS: Record<string, string> = { none: "No body", json: "JSON", form: "Form", multipart: "Multipart", text: "Text", file: "File", recorded: "As recorded" };
const MOST_SUGGESTED = 200;
const KEPT = "This draft was not sent. To replace it, do that once more.";
const HEADERS = "Accept Accept-Language Cache-Control Content-Type Idempotency-Key If-Match If-Modified-Since If-None-Match Prefer Range X-Request-Id".split(" ");
// Headers that the session sets itself.
const SET_ANEW = /^((host|content-length|transfer-encoding|connection|accept-encoding|user-agent):|accept: \*\/\*$)/i;

/** A question before a write. The token sends the write, once. */
interface Question {
  question: string;
  token: string;
}

export interface ComposerOptions {
  send: Send;
  loadEditor: LoadEditor;
  /** Called when a request has ended, with its number if it has one. */
  onSent: (number: number | null) => void;
  onInsert: (code: string) => void;
  onLeave: () => void;
  draft: Draft;
}

/** What was typed and not sent. */
export interface Draft {
  values?: { method: string; address: string; headers: Pair[]; fields: Pair[]; kind: string; text: string };
}

const options = (values: string[]) => values.map((value) => make("option", { value }));
const queryOf = (address: string) => address.split("#")[0].split("?").slice(1).join("?");
const lower = (text: string) => text.toLowerCase();
const count = (name: string, pairs: Pair[]) => (pairs.length ? `${name} (${pairs.length})` : name);

export function createComposer({ send, loadEditor, onSent, onInsert, onLeave, draft }: ComposerOptions) {
  const id = newId();
  let recorded: Details | null = null;
  let bodyChanged = false;
  let dirty = false;
  let busy = false;
  let asked: Question | null = null;
  let before: HTMLElement | null = null; // the element that had the focus before the question

  const method = makeSelect("Method", Object.fromEntries(METHODS.map((name) => [name, name])));
  const address = make("input", { ariaLabel: "Address", className: "dml-e-path", spellcheck: false, autocomplete: "off", placeholder: "/v1/…" });
  const [paths, names, headerNames] = ["paths", "names", "headers"].map((name) => make("datalist", { id: `${id}-${name}` }));
  headerNames.append(...options(HEADERS));
  address.setAttribute("list", paths.id);
  const sending = make("button", { type: "submit", className: "dml-primary", title: "Send (Ctrl+Enter)" });
  const aborting = makeButton("Abort", () => abort(), { hidden: true, title: "Abort (Escape)" });
  const inserting = makeButton("Insert cell", () => insert(), { title: "Insert a cell that sends this request (i)" });
  const left = make("span", { className: "dml-soft", role: "status" });
  const clock = make("span", { className: "dml-soft", "aria-hidden": "true" });
  const parameters = createPairs("Parameter", () => {
    const query = String(new URLSearchParams(parameters.read()));
    address.value = address.value.split("?")[0] + (query && `?${query}`);
  }, names.id);
  const headers = createPairs("Header", () => undefined, headerNames.id);
  const fields = createPairs("Field", () => (bodyChanged = true));
  const kind = makeSelect("Body", KINDS);
  const asRecorded = kind.querySelector<HTMLOptionElement>("[value=recorded]")!;
  const file = make("input", { type: "file", ariaLabel: "Body file", multiple: true });
  const box = div("dml-b-editor");
  const untouched = soft("");
  const editor = createEditor({ parent: box, label: "Body text", onChange: () => ((bodyChanged = dirty = true), mark(), onChange(), keep()) }, loadEditor);
  const formatting = makeButton("Format", () => format(), { title: "Format the JSON" });
  const bodyPanel = div("dml-e-body", untouched, fields.root, file, box);
  const tabs = createTabs("Request", [
    { name: "parameters", label: "Parameters", panel: parameters.root },
    { name: "headers", label: "Headers", panel: headers.root },
    { name: "body", label: "Body", panel: bodyPanel, tools: [kind, formatting] },
  ], left, clock);
  const alert = make("div", { className: "dml-b-problem dml-e-said", role: "alert" });
  const question = make("span", { id: `${id}-question` });
  const refusing = makeButton("Do not send", () => ask(null));
  const confirming = makeButton("", () => confirm(), { className: "dml-primary" });
  const asking = make("div", { className: "dml-e-asking", role: "alertdialog", "aria-labelledby": question.id, hidden: true }, question, refusing, confirming);
  const line = div("dml-b-line", method, address, sending, aborting, inserting);
  const root = make("form", { className: "dml-b-pane dml-b-request", ariaLabel: "Request" }, line, asking, alert, tabs.bar);
  root.append(parameters.root, headers.root, bodyPanel, paths, names, headerNames);
  const isText = () => kind.value === "json" || kind.value === "text";
  // Mark whether this is another request than the one whose response is shown.
  const mark = () => root.toggleAttribute("data-is-other", busy || dirty);
  const say = (text: string) => setText(alert, text);
  root.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  root.addEventListener("input", ({ target }) => {
    if (target === address) parameters.fill(new URLSearchParams(queryOf(address.value)));
    if (target === kind) onKind();
    if (target === method && kind.value === "none" && WITH_BODY.includes(method.value)) {
      kind.value = "json";
      onKind();
      tabs.show("body");
    }
    dirty = true;
    mark();
    onChange();
    keep();
  });
  address.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (!/^\s*curl\s/.test(text)) return;
    event.preventDefault(); // the credentials in it must never be on the page
    say("Nothing was pasted: the form reads no curl command. Type its method, its path and its headers.");
  });
  show();

  /* The contents of the form. */
  function show() {
    mark();
    setText(sending, "Send");
    sending.hidden = busy;
    aborting.hidden = !busy;
    box.hidden = !isText();
    fields.root.hidden = kind.value !== "form" && kind.value !== "multipart";
    file.hidden = kind.value !== "file" && kind.value !== "multipart";
    formatting.hidden = kind.value !== "json";
    asRecorded.hidden = asRecorded.disabled = !recorded || recorded.request.body.editable || ["none", "absent"].includes(recorded.request.body.kind);
    const size = recorded?.request.body.size ?? 0;
    const recordedHint = `${plural(size, "byte")}, sent as recorded. You can replace this body, but not edit it.`;
    setText(untouched, kind.value === "recorded" ? recordedHint : kind.value === "multipart" ? "The field without a value takes the files." : "");
    tabs.label("parameters", count("Parameters", parameters.read()));
    tabs.label("headers", count("Headers", headers.read()));
    tabs.label("body", kind.value === "none" ? "Body" : `Body: ${KINDS[kind.value]}`);
  }

  function onChange() {
    say("");
    ask(null); // the question was about the request before this change
    show();
  }

  function onKind() {
    bodyChanged = kind.value !== "recorded";
    // The recorded Content-Type describes the recorded body only.
    if (bodyChanged) headers.fill(headers.read().filter(([name]) => lower(name) !== "content-type"));
    if (isText()) editor.setLanguage(kind.value === "json" ? "json" : "text");
    if (isText()) editor.fill(editor.text(), kind.value as "json" | "text");
  }

  function format() {
    try {
      JSON.parse(editor.text());
      editor.replace(layOutJson(editor.text()));
      say("");
    } catch (error) {
      say(`Nothing was formatted. ${(error as Error).message}`);
    }
  }

  /** Fill the form with an interaction's request, without the host; or empty the form. */
  function fill(details: Details | null) {
    recorded = details;
    const { row, uri = "", path = "", request, buffers } = details ?? ({} as Partial<Details>);
    const body = request?.body ?? { kind: "none", editable: true, media_type: "" };
    const text = body.editable && body.kind !== "none" ? new TextDecoder().decode(buffers![0]) : "";
    const isForm = body.media_type === FORM_TYPE && body.kind === "text" && text === String(new URLSearchParams(text));
    const query = queryOf(uri);
    const isNone = ["none", "absent"].includes(body.kind);
    put({
      method: row?.method ?? "GET",
      address: path + (query && `?${query}`),
      headers: (request?.headers ?? []).filter((pair) => !SET_ANEW.test(pair.join(": "))),
      fields: isForm ? [...new URLSearchParams(text)] : [],
      kind: isForm ? "form" : isNone ? "none" : body.editable ? body.kind : "recorded",
      text,
    });
    bodyChanged = dirty = false;
    draft.values = undefined;
    say(body.kind === "absent" && row && !["GET", "HEAD", "OPTIONS"].includes(row.method) ? "The body was not kept: add it yourself." : "");
    ask(null);
    show();
  }

  function put(values: NonNullable<Draft["values"]>) {
    method.value = values.method;
    if (!method.value) method.append(make("option", { value: values.method, textContent: values.method, selected: true }));
    address.value = values.address;
    parameters.fill(new URLSearchParams(queryOf(values.address)));
    headers.fill(values.headers);
    fields.fill(values.fields);
    kind.value = values.kind;
    file.value = "";
    editor.fill(isText() ? values.text : "", isText() ? (kind.value as "json" | "text") : "text");
    tabs.show(kind.value === "none" ? "parameters" : "body");
  }

  function keep() {
    draft.values = { method: method.value, address: address.value, headers: headers.read(), fields: fields.read(), kind: kind.value, text: editor.text() };
  }

  /** Fill the form with what was typed before the page was shown anew; or empty it. */
  function restore() {
    const { values } = draft;
    fill(null);
    if (!values) return;
    put({ ...values, kind: values.kind === "recorded" ? "none" : values.kind });
    dirty = bodyChanged = true;
    draft.values = values;
    show();
  }

  /** Return whether a draft is kept: the first time that it would be replaced. */
  function keepsDraft(): boolean {
    const isKept = dirty && alert.textContent !== KEPT;
    if (isKept) say(KEPT);
    return isKept;
  }

  /** Suggest the paths and the parameters' names of the last interactions. */
  function suggest(rows: Row[]) {
    const seen = rows.slice(-MOST_SUGGESTED).filter(({ status }) => status !== 404).map(({ path }) => path.split("?"));
    const namesOf = ([, query = ""]: string[]) => [...new URLSearchParams(query).keys()];
    paths.replaceChildren(...options([...new Set(seen.map(([path]) => path))]));
    names.replaceChildren(...options([...new Set(seen.flatMap(namesOf))]));
  }

  /* Sending. A write needs a confirmation. Its token sends the write, once. */
  function ask(next: Question | null) {
    if (next && !asking.contains(activeElement(root))) before = activeElement(root) as HTMLElement;
    const wasInside = asking.contains(activeElement(root));
    asked = next;
    asking.hidden = next === null;
    setText(question, next?.question ?? "");
    setText(confirming, `Send ${method.value} ↵`);
    if (next) confirming.focus();
    else if (wasInside) (before?.isConnected ? before : sending).focus();
  }

  /** Return the request in the form, and its body. */
  async function read(): Promise<[object, string | ArrayBuffer]> {
    const written = { method: method.value, address: address.value, headers: headers.read() };
    const isRecorded = recorded !== null && !bodyChanged && kind.value !== "none";
    if (isRecorded) return [{ ...written, body_of: recorded!.number, digest: recorded!.request.body.digest }, ""];
    const chosen = file.files?.[0];
    const isEmpty = kind.value === "json" && !editor.text().trim();
    if (isEmpty) return [written, ""];
    if (kind.value === "json") JSON.parse(editor.text());
    if (kind.value === "file" && !chosen) throw new Error("Choose a file for the body.");
    if (kind.value === "multipart") return multipart(written);
    const type = kind.value === "file" ? chosen!.type || "application/octet-stream" : TYPES[kind.value];
    if (type && !written.headers.some(([name]) => lower(name) === "content-type")) written.headers.unshift(["Content-Type", type]);
    if (kind.value === "file") return [written, await chosen!.arrayBuffer()];
    if (kind.value === "form") return [written, String(new URLSearchParams(fields.read()))];
    return isText() ? [{ ...written, is_text: true }, editor.text()] : [written, ""];
  }

  async function multipart(written: { headers: Pair[] }): Promise<[object, ArrayBuffer]> {
    const form = new FormData();
    const pairs = fields.read();
    for (const [name, value] of pairs) if (value) form.append(name, value);
    const name = pairs.find(([, value]) => !value)?.[0] ?? "file";
    for (const each of file.files ?? []) form.append(name, each);
    const encoded = new Response(form); // the browser encodes it, and chooses the boundary
    const others = written.headers.filter(([header]) => lower(header) !== "content-type");
    return [{ ...written, headers: [["Content-Type", encoded.headers.get("content-type")!], ...others] }, await encoded.arrayBuffer()];
  }

  async function submit() {
    if (busy || asked) return;
    try {
      const [request, body] = await read();
      await transmit({ action: "send", request }, body);
    } catch (error) {
      say(`Nothing was sent. ${(error as Error).message}`);
    }
  }

  async function confirm() {
    if (!asked || busy) return;
    const { token } = asked;
    ask(null);
    await transmit({ action: "confirm", token });
  }

  async function transmit(...request: Parameters<Send>) {
    busy = true;
    say("");
    const hadFocus = activeElement(root) === sending;
    show();
    if (hadFocus) aborting.focus();
    const started = performance.now();
    let waiting = "";
    const polling = setInterval(async () => (waiting = await waitingFor()), WAITING_MS);
    const counting = setInterval(() => {
      setText(left, waiting || "Sending");
      setText(clock, `${((performance.now() - started) / 1000).toFixed(1)} s`);
    }, COUNTING_MS);
    const { number = null, problem = "", ...rest }: Answer = await send(...request);
    clearInterval(polling);
    clearInterval(counting);
    const isAborting = activeElement(root) === aborting;
    busy = false;
    setText(left, "");
    setText(clock, "");
    show();
    if (isAborting) sending.focus();
    if (rest.token) return ask(rest);
    if (problem) say(problem);
    else dirty = false;
    if (!dirty) draft.values = undefined;
    mark();
    onSent(number);
  }

  async function waitingFor(): Promise<string> {
    const { seconds } = await send({ action: "waiting" });
    if (seconds === null || seconds === undefined) return "";
    return seconds > 0 ? `Waiting: the allowance renews in ${Math.ceil(seconds / 10) * 10} s` : "Waiting for the allowance";
  }

  const abort = () => send({ action: "abort" });

  async function insert() {
    try {
      const [request, body] = await read();
      const { text, problem } = await send({ action: "cell", request }, body);
      if (problem) say(problem);
      else onInsert(text);
    } catch (error) {
      say((error as Error).message);
    }
  }

  /** Handle a key, and return whether it was handled. A key that is held down sends nothing. */
  function onKey(event: KeyboardEvent): boolean {
    const isEnter = event.key === "Enter";
    const sends = isEnter && (event.ctrlKey || event.metaKey);
    if (isEnter && (event.repeat || (sends && asked))) return !box.contains(event.target as Node) || sends;
    if (sends) submit();
    else if (event.key !== "Escape") return false;
    else if (asked) ask(null);
    else if (busy) abort();
    else if (event.defaultPrevented) return false; // the editor closed its search
    else if (box.contains(event.target as Node)) tabs.focus();
    else onLeave();
    return true;
  }

  return { root, fill, restore, keepsDraft, suggest, insert, onKey, abort, destroy: () => editor.destroy(), focus: () => address.focus(), isBusy: () => busy, isDirty: () => dirty };
}

export type Composer = ReturnType<typeof createComposer>;
