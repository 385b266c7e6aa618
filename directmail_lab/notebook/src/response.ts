/* The response of an interaction: its body, the body as a table, its headers, and the request as it was sent. */

import { createBody } from "./body";
import { formatTime } from "./columns";
import { compareResponses } from "./compare";
import { div, make, makeButton, plural, setText, soft } from "./dom";
import type { LoadEditor } from "./editor";
import { ask, type Details, type Pair, type Send } from "./protocol";
import { createTabs } from "./tabs";

const HOW_TO_COMPARE = "To compare another response with this one, select its row by Control+click, or select it and press c.";
const FORMATS: Record<string, string> = { curl: "curl", request: "dm" };

export interface ResponseOptions {
  send: Send;
  loadEditor: LoadEditor;
  /** Returns what to show when there is no response. */
  hint: () => HTMLElement;
  onWhole: () => void;
  onEdit: () => void;
  onInsert: () => void;
  onClose: () => void;
}

const definitions = (pairs: Pair[]) =>
  make("dl", {}, ...pairs.flatMap(([name, textContent]) => [make("dt", { textContent: name }), make("dd", { textContent })]));

/* The media types of tables as text, which frame() reads. */
const CSV = /^(text|application)\/(csv|tab-separated-values)$/;

export function createResponse({ send, loadEditor, hint, onWhole, onEdit, onInsert, onClose }: ResponseOptions) {
  let shown: Details | null = null;
  let tabled = 0;
  const heading = make("h3");
  const status = make("b", { className: "dml-b-status" });
  const facts = make("span", { className: "dml-soft" });
  const problem = make("p", { className: "dml-b-problem", role: "alert" });
  const notSent = soft("");
  const copied = div("dml-b-copied");
  const bodyOf = (label: string, message: "request" | "response") =>
    createBody({ label, loadEditor, onWhole, onSave: () => told(save(message)), onCopy: (text) => copy(text) });
  const body = bodyOf("Response body", "response");
  const sentBody = bodyOf("Request body", "request");
  const table = make("div", { className: "dml-b-table", tabIndex: 0 });
  const comparison = make("div", { className: "dml-b-table dml-b-compare", tabIndex: 0 });
  const headers = make("div", { className: "dml-b-text", tabIndex: 0 });
  const sent = div("dml-b-text");
  const sentHead = make("div", {});
  sent.append(sentHead, div("dml-b-tools", ...sentBody.tools), sentBody.root);
  const copying = make("details", { className: "dml-b-menu" }, make("summary", { textContent: "Copy as" }));
  copying.append(div("", ...Object.entries(FORMATS).map(([format, name]) =>
    makeButton(name, () => told(copyAs(format)), { ariaLabel: `Copy as ${name}` }))));
  copying.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !copying.contains(relatedTarget as Node)) copying.open = false;
  });
  const editing = makeButton("Edit", onEdit, { title: "Change the request and send it again (e)" });
  const inserting = makeButton("Insert cell", onInsert, { title: "Insert a cell that sends it (i)" });
  const closing = makeButton("×", onClose, { title: "Close (Escape)", ariaLabel: "Close" });
  const tabs = createTabs(
    "Response",
    [
      { name: "body", label: "Body", panel: body.root, tools: body.tools },
      { name: "table", label: "Table", panel: table, onShow: () => told(showTable()) },
      { name: "headers", label: "Headers", panel: headers },
      { name: "sent", label: "Request as sent", panel: sent },
      { name: "compare", label: "Compare", panel: comparison },
    ],
  );
  const earlier = make("p", { className: "dml-b-earlier", textContent: "Response to the earlier request" });
  const head = div("dml-b-line dml-b-title", heading, div("dml-b-tools", editing, inserting, copying, closing));
  const whole = div("dml-b-pane", earlier, head, div("dml-b-line", status, facts), notSent, problem, copied, tabs.bar, body.root, table, headers, sent, comparison);
  const empty = div("dml-b-empty", hint());
  const root = make("section", { className: "dml-b-response", tabIndex: -1, ariaLabel: "Response" }, whole, empty);
  root.addEventListener("pointerdown", ({ target }) => {
    if (!copying.contains(target as Node)) copying.open = false;
  });
  clear();

  const told = (promise: Promise<unknown>) =>
    promise.then(() => setText(problem, ""), (error: Error) => setText(problem, error.message));

  function show(details: Details) {
    const { row, reason, note, reading, request, response, buffers, uri } = details;
    shown = details;
    tabled = 0;
    whole.hidden = false;
    empty.hidden = true;
    copied.replaceChildren();
    copying.open = false;
    heading.title = row.path;
    setText(heading, `${row.number} ${row.method} ${row.path}`);
    setText(status, `${row.status ?? ""} ${reason}`.trim());
    root.dataset.mark = row.mark;
    const known = Object.fromEntries(reading);
    setText(problem, known.Problem && known.Problem !== reason ? known.Problem : "");
    setText(notSent, note);
    setText(facts, [
      /[/+]json$/.test(response.body.media_type) ? "JSON" : response.body.media_type,
      response.body.kind !== "absent" && row.status !== null && plural(response.body.size, "byte"),
      row.ms !== null && (row.ms < 1000 ? `${Math.round(row.ms)} ms` : `${(row.ms / 1000).toFixed(1)} s`),
      known.Remaining && `${known.Remaining}${known.Limit ? ` of ${known.Limit}` : ""} left`,
      row.time !== null && `${formatTime(row.time, 0)} UTC`,
    ].filter(Boolean).join(" · "));
    body.show(response.body, buffers[1]);
    headers.replaceChildren(...(reading.length ? [definitions(reading), make("hr")] : []), definitions(response.headers));
    tabs.label("headers", `Headers (${response.headers.length})`);
    sentHead.replaceChildren(make("p", { className: "dml-b-uri", textContent: `${row.method} ${uri}` }), definitions(request.headers));
    sentBody.show(request.body, buffers[0]);
    tabs.hide("table", response.body.kind !== "json" && !CSV.test(response.body.media_type));
    comparison.replaceChildren(soft(HOW_TO_COMPARE));
    tabs.show(tabs.isHidden(tabs.current()) || tabs.current() === "compare" ? "body" : tabs.current());
  }

  /** Show what differs from another response. */
  function compare(first: Details) {
    comparison.replaceChildren(compareResponses(first, shown!));
    tabs.show("compare");
  }

  /* Show the first rows of the frame that dm.frame() makes of the body. */
  async function showTable() {
    if (!shown || tabled === shown.number) return;
    const { number } = shown;
    table.replaceChildren(soft("Reading …"));
    const { columns, rows, shape } = await ask(send, "table", { number }).catch((error) => {
      table.replaceChildren(soft(error.message));
      return {};
    });
    if (!columns || shown?.number !== number) return;
    tabled = number;
    const cells = (tag: "th" | "td", texts: string[]) => make("tr", {}, ...texts.map((textContent) => make(tag, { textContent })));
    const caption = [`dm.frame(): ${plural(shape[0], "row")}, ${plural(shape[1], "column")}`];
    if (rows.length < shape[0]) caption.push(`the first ${rows.length} rows`);
    if (columns.length < shape[1]) caption.push(`the first ${columns.length} columns`);
    const content = make("table", {}, make("caption", { className: "dml-soft", textContent: caption.join("; ") }));
    content.append(make("thead", {}, cells("th", columns)), make("tbody", {}, ...rows.map((row: string[]) => cells("td", row))));
    table.replaceChildren(content);
  }

  async function copyAs(format: string) {
    copying.open = false;
    copying.querySelector("summary")!.focus(); // the focused button is hidden now, and JupyterLab would get the keys
    const { text } = await ask(send, "copy", { number: shown!.number, format });
    await copy(text, true);
  }

  /** Copy a text. Show it if `isShown`, or if the browser does not allow copying. */
  async function copy(text: string, isShown = false) {
    const done = await (navigator.clipboard?.writeText(text) ?? Promise.reject()).then(() => true, () => false);
    const said = make("p", { className: "dml-soft", role: "status", textContent: done ? "Copied to the clipboard." : "The browser does not allow copying. Select the text and copy it." });
    copied.replaceChildren(said);
    if (isShown || !done) copied.append(make("pre", { tabIndex: 0, ariaLabel: "Text to copy", textContent: text }));
  }

  // Save a body as a download. Its type is generic, so that the browser never opens it as a page.
  async function save(message: "request" | "response") {
    const { name, buffers } = await ask(send, "body", { number: shown!.number, message });
    const href = URL.createObjectURL(new Blob([buffers[0]], { type: "application/octet-stream" }));
    make("a", { download: name, href }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }

  function clear(said = "") {
    shown = null;
    body.clear();
    sentBody.clear();
    delete root.dataset.mark;
    whole.hidden = true;
    empty.hidden = false;
    empty.replaceChildren(said ? make("p", { className: "dml-b-problem", textContent: said }) : hint());
  }

  const destroy = () => [body, sentBody].forEach((each) => each.destroy());
  return { root, editing, inserting, show, compare, clear, copy, destroy };
}
