/* The form that writes a request. Python's `Explorer` checks it and sends it.
 *
 *   makeForm(view) -> { root, open(details), onKey(event) }
 *
 * `open` fills it with the details of an interaction, whose host is left out; without, it is as it was
 * left, and empty after it was sent.
 */

const METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];
const WAITING_MS = 500;
const FORM_TYPE = "application/x-www-form-urlencoded";
const TYPES = { json: "application/json", form: FORM_TYPE, text: "text/plain; charset=utf-8" };
const KINDS = { none: "No body", json: "JSON", form: "Form", text: "Text", file: "File" };
// Headers that the session sets anew.
const SET_ANEW = /^((host|content-length|transfer-encoding|connection|accept-encoding|user-agent):|accept: \*\/\*$)/i;
const makeSelect = (ariaLabel, values) =>
  make("select", { ariaLabel }, ...Object.entries(values).map(([value, text]) => make("option", { value }, text)));

function makeForm(view) {
  const id = newId();
  const form = { view, busy: false, token: null, isSent: false };
  form.method = makeSelect("Method", Object.fromEntries(METHODS.map((name) => [name, name])));
  form.path = make("input", { ariaLabel: "Path", spellcheck: false, autocomplete: "off", placeholder: "/v1/…" });
  form.base = div("dml-soft");
  form.parameters = makePairs("Parameter");
  form.headers = makePairs("Header");
  form.fields = makePairs("Field");
  form.kind = makeSelect("Body", KINDS);
  form.text = make("textarea", { ariaLabel: "Text of the body", rows: 6, spellcheck: false });
  form.file = make("input", { type: "file", ariaLabel: "File of the body" });
  form.sending = make("button", { type: "submit", className: "dml-primary" });
  form.left = make("span", { className: "dml-soft", role: "status" });
  form.cancelling = makeButton("Cancel", () => cancel(form), { hidden: true });
  form.said = make("p", { className: "dml-b-problem", role: "alert" });
  form.question = make("p", { id: `${id}-question` });
  form.refusing = makeButton("Do not send", () => ask(form, null));
  form.confirming = makeButton("", () => confirm(form), { className: "dml-primary" });
  form.asking = make("div", { className: "dml-e-asking", role: "alertdialog", "aria-labelledby": form.question.id });
  form.asking.append(form.question, form.refusing, " ", form.confirming);
  const closing = makeButton("Close", () => leave(view));
  const actions = div("dml-b-actions", form.sending, form.cancelling, form.left, closing);
  const address = div("dml-e-address", form.method, form.path);
  const content = div("dml-b-content", form.base, address, form.said, form.asking);
  content.append(form.parameters.root, form.headers.root, form.kind, form.fields.root, form.text, form.file);
  form.root = make("form", { className: "dml-e-form", hidden: true }, actions, content);
  form.root.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(form);
  });
  form.root.addEventListener("input", (event) => onInput(form, event));
  fill(form, {});
  return { root: form.root, open: (details) => openForm(form, details), onKey: (event) => onFormKey(form, event) };
}

/* Names and values, each pair on or off. Below the last is always an empty pair. */
function makePairs(noun) {
  const pairs = [];
  const box = div("dml-e-pairs");
  const add = (name = "", value = "") => {
    const label = `${noun} ${pairs.length + 1}`;
    const pair = {
      on: make("input", { type: "checkbox", checked: true, ariaLabel: `Send ${label.toLowerCase()}` }),
      name: make("input", { ariaLabel: `${label} name`, placeholder: "name", value: name, spellcheck: false }),
      value: make("input", { ariaLabel: `${label} value`, placeholder: "value", value, spellcheck: false }),
    };
    pairs.push(pair);
    box.append(pair.on, pair.name, pair.value);
  };
  box.addEventListener("input", ({ target }) => {
    if (target === pairs.at(-1).name) add();
  });
  const root = make("div", { role: "group", ariaLabel: `${noun}s` }, make("b", { textContent: `${noun}s` }), box);
  const isSent = ({ on, name }) => on.checked && name.value;
  const read = () => pairs.filter(isSent).map(({ name, value }) => [name.value, value.value]);
  const fillWith = (values) => {
    box.replaceChildren();
    pairs.length = 0;
    for (const pair of [...values, []]) add(...pair);
  };
  return { root, read, fill: fillWith };
}

function fill(form, { row, uri = "", path = "", request, buffers }) {
  const headers = request?.headers.filter((pair) => !SET_ANEW.test(pair.join(": "))) ?? [];
  const { kind = "none", media_type: mediaType } = request?.body ?? {};
  const text = ["json", "text"].includes(kind) ? new TextDecoder().decode(buffers[0]) : "";
  const isForm = kind === "text" && mediaType === FORM_TYPE;
  const method = row?.[METHOD] ?? "GET";
  if (!METHODS.includes(method)) form.method.append(make("option", { value: method, textContent: method }));
  form.method.value = method;
  form.path.value = path;
  form.parameters.fill(new URLSearchParams(uri.split("#")[0].split("?").slice(1).join("?")));
  form.headers.fill(headers);
  form.fields.fill(isForm ? new URLSearchParams(text) : []);
  form.kind.value = isForm ? "form" : kind in KINDS ? kind : "file";
  form.text.value = isForm ? "" : text;
  form.isSent = false;
}

function openForm(form, details) {
  if (details || form.isSent) fill(form, details ?? {});
  setText(form.base, `Below ${form.view.baseUrl}`);
  setText(form.said, "");
  ask(form, null);
  form.path.focus();
}

function onInput(form, { target, inputType }) {
  setText(form.said, "");
  ask(form, null); // what was asked is no longer what is written
  // A path that was chosen: the id to put in is selected.
  const id = target === form.path && inputType !== "deleteContentBackward" && form.path.value.match(/\{\w+\}/);
  if (id && !inputType?.startsWith("insertText")) form.path.setSelectionRange(id.index, id.index + id[0].length);
}

/* Sending. A write is asked for first; the token of the question sends it, once. */
function ask(form, asked) {
  form.token = asked?.token ?? null;
  form.asking.hidden = asked === null;
  const method = form.method.value;
  setText(form.question, asked?.question ?? "");
  setText(form.sending, `Send ${method}`);
  setText(form.confirming, `Send ${method}`);
  form.text.hidden = !["json", "text"].includes(form.kind.value);
  form.fields.root.hidden = form.kind.value !== "form";
  form.file.hidden = form.kind.value !== "file";
  if (asked) form.refusing.focus();
}

async function readForm(form) {
  const kind = form.kind.value;
  const [file] = form.file.files;
  if (kind === "json") JSON.parse(form.text.value);
  if (kind === "file" && !file) throw new Error("Choose the file that is the body.");
  const headers = form.headers.read();
  const type = kind === "file" ? file.type || "application/octet-stream" : TYPES[kind];
  if (type && !headers.some(([name]) => name.toLowerCase() === "content-type")) headers.unshift(["Content-Type", type]);
  const fields = String(new URLSearchParams(form.fields.read()));
  const text = { json: form.text.value, text: form.text.value, form: fields };
  const body = kind === "file" ? await file.arrayBuffer() : (text[kind] ?? "");
  const address = { method: form.method.value, path: form.path.value, parameters: form.parameters.read() };
  return [{ action: "send", request: { ...address, headers } }, body];
}

async function submit(form) {
  if (form.busy || form.token) return;
  try {
    await send(form, ...(await readForm(form)));
  } catch (error) {
    setText(form.said, `Nothing was sent. ${error.message}`);
  }
}

async function confirm(form) {
  const { token } = form;
  ask(form, null);
  if (token && !form.busy) await send(form, { action: "confirm", token });
}

async function send(form, ...asked) {
  form.busy = true;
  form.cancelling.hidden = false;
  form.sending.disabled = true;
  setText(form.said, "");
  setText(form.left, "Sending …");
  const counting = setInterval(() => countDown(form), WAITING_MS);
  const { number, problem, ...question } = await form.view.send(...asked);
  clearInterval(counting);
  form.busy = form.sending.disabled = false;
  form.cancelling.hidden = true;
  setText(form.left, "");
  if (question.token) return ask(form, question);
  if (problem) {
    setText(form.said, problem);
    form.path.focus();
    return;
  }
  form.isSent = true;
  form.view.awaited = number;
  load(form.view);
}

async function countDown(form) {
  const { seconds } = await form.view.send({ action: "waiting" });
  if (!form.busy || seconds === undefined) return;
  const until = seconds > 0 ? `, ${Math.ceil(seconds)} s` : "";
  setText(form.left, seconds === null ? "Sending …" : `Waits until the allowance renews${until}`);
}

const cancel = (form) => form.view.send({ action: "cancel" });

function onFormKey(form, event) {
  const isEscape = event.key === "Escape";
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(form);
  else if (isEscape && form.token) {
    ask(form, null);
    form.sending.focus();
  } else if (isEscape && form.busy) cancel(form);
  else if (isEscape) leave(form.view);
  else return;
  event.preventDefault();
}
