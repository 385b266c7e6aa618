/* A browser of interactions: a list, and beside it the details of one.
 *
 *   createBrowser(root, { send, onChange, onSelect, makeForm, fill = false }) -> { destroy() }
 *
 * `send` takes a request of Python's `page.handle_request`, and resolves to its response, with the
 * bodies as `buffers`. `onChange` takes a callback to call when there is more, with { restart: true }
 * if all is new, and with { title } while a file is read.
 * `onSelect` is told the number of the selected one; `makeForm` is explorer.js's, where requests can be sent.
 * With `fill` the browser is as high as `root`. A row is an array, whose null is what is not known.
 */

const [AT, METHOD, PATH, STATUS, REMAINING, ELAPSED, BYTES, MARK] = Array(8).keys();
const ROW_PX = 24;
const SPARE_ROWS = 8;
const FIRST_ROWS = 200;
const MAX_ROWS = 5000;
const MAX_SEARCHED = 2000;
const MAX_MEMBERS = 200;
const MAX_STRING = 5000;
const NOT_TEXT = "Not text, so not shown here. Save it to look at it.";
const NOTHING_SHOWN = { none: "Empty.", absent: "No longer kept.", binary: NOT_TEXT };
const SYMBOLS = { exhausted: "×", failed: "▲", unreadable: "?" };

const { format } = new Intl.NumberFormat("en");
const formatCount = (number) => (number === null ? "" : format(number));
const formatMs = (ms) => ms?.toFixed(ms < 100 ? 1 : 0) ?? "";
const formatTime = (ms, start) => (ms === null ? "" : new Date(ms).toISOString().slice(start, 19).replace("T", " "));
const note = (textContent) => make("p", { className: "dml-soft", textContent });
const pre = (textContent) => make("pre", { textContent });

// Name, heading, the text of a cell, the value to sort by, and the width that a list with it needs.
const COLUMNS = [
  ["number", "#", (_, number) => String(number), (_, number) => number, 0],
  ["time", "Time (UTC)", (row, _, view) => formatTime(row[AT], view.spansDays ? 5 : 11), (row) => row[AT], 560],
  ["method", "Method", (row) => row[METHOD], (row) => row[METHOD], 0],
  ["path", "Path", (row) => row[PATH], (row) => row[PATH], 0],
  ["status", "Status", (row) => `${row[STATUS] ?? ""} ${SYMBOLS[row[MARK]] ?? ""}`.trim(), (row) => row[STATUS], 0],
  ["left", "Left", (row) => formatCount(row[REMAINING]), (row) => row[REMAINING], 0],
  ["elapsed", "ms", (row) => formatMs(row[ELAPSED]), (row) => row[ELAPSED], 0],
  ["bytes", "Bytes", (row) => formatCount(row[BYTES]), (row) => row[BYTES], 560],
  ["timeline", "When", (row) => (row[AT] === null ? "" : " "), (row) => row[AT], 680],
];
const NAMES = COLUMNS.map(([name]) => name);
const textOf = (view, column, number) => (number ? COLUMNS[column][2](view.rows[number - 1], number, view) : "");

async function request(view, action, details) {
  const { problem, ...response } = await view.send({ action, ...details });
  if (problem) throw new Error(problem);
  return response;
}

// What went wrong is said below the list.
const told = (view, promise) => promise.catch((error) => setText(view.status, error.message));

/* The filter: for each field, which values it can have, and whether a row has one. */
const FIELDS = {
  status: [/^[\dx]{1,3}$/, (row, value) => [...value].every((digit, i) => digit === "x" || String(row[STATUS] ?? "")[i] === digit)],
  method: [/./, (row, value) => row[METHOD].toLowerCase() === value],
  path: [/./, (row, value) => row[PATH].toLowerCase().includes(value)],
  is: [/^(exhausted|failed|unreadable)$/, (row, value) => row[MARK] === value],
  number: [/^\d+(-\d+)?(,\d+(-\d+)?)*$/, (_, value, number) => value.split(",").some((range) => isIn(range, number))],
};

function isIn(range, number) {
  const [first, last = first] = range.split("-").map(Number);
  return first <= number && number <= last;
}

function parseFilter({ filter, bodies }) {
  const [words, unknown] = [[], []];
  const tests = filter.value.toLowerCase().split(/\s+/).filter(Boolean).map((typed) => {
    const wanted = !/^-./.test(typed);
    const term = wanted ? typed : typed.slice(1);
    const [, name, value] = term.match(/^(\w+):(?!\/\/)(.+)$/) ?? [];
    const [values, has] = Object.hasOwn(FIELDS, name) ? FIELDS[name] : [];
    if (values?.test(value)) return (row, number) => has(row, value, number) === wanted;
    if (name) unknown.push(term);
    if (term.length > 1) words.push(term);
    const inBody = (number) => bodies.get(term)?.found.has(number) ?? false;
    return (row, number) =>
      (`${row[METHOD]} ${row[PATH]} ${row[STATUS]}`.toLowerCase().includes(term) || inBody(number)) === wanted;
  });
  return { words, unknown, passes: (row, number) => tests.every((test) => test(row, number)) };
}

/* Python looks for the filter's words in the bodies, in one part of the recording after the other. */
async function searchBodies(view) {
  const turn = (view.searches += 1);
  const searched = (word) => view.bodies.get(word) ?? { found: new Set(), until: 0 };
  for (;;) {
    const words = view.words.filter((word) => searched(word).until < view.rows.length);
    view.searching = words.length > 0;
    arrange(view);
    if (!view.searching) return;
    const first = Math.min(...words.map((word) => searched(word).until)) + 1;
    const { found } = await request(view, "search", { words, first, limit: MAX_SEARCHED });
    if (turn !== view.searches || view.destroyed) return;
    const until = Math.min(first + MAX_SEARCHED - 1, view.rows.length);
    words.forEach((word, i) => view.bodies.set(word, { found: new Set([...searched(word).found, ...found[i]]), until }));
  }
}

function onFilter(view) {
  arrange(view);
  clearTimeout(view.typing);
  view.typing = setTimeout(() => told(view, searchBodies(view)), 250);
}

/* The list. Only the rows in view have nodes. Above them is the widest cell of each column, unseen. */
const makeCells = (role) => NAMES.map((name) => make("div", { className: `dml-c-${name}`, role }));

function makeList(view, id) {
  const heads = makeCells("columnheader");
  heads.forEach((head, i) => head.append(makeButton(COLUMNS[i][1], () => sortBy(view, i), { className: "" })));
  const head = make("div", { className: "dml-b-row dml-b-head", role: "row" }, ...heads);
  const widest = makeCells("presentation");
  const [above, below] = [div("dml-b-space"), div("dml-b-space")];
  const sizes = make("div", { className: "dml-b-row dml-b-sizes", "aria-hidden": "true" }, ...widest);
  const grid = make("div", { className: "dml-b-grid", role: "grid", tabIndex: 0, id }, head, sizes, above, below);
  grid.setAttribute("aria-label", "Interactions");
  grid.addEventListener("scroll", () => schedule(view, draw));
  return { grid, heads, widest, above, below, nodes: [] };
}

function makeRow(view) {
  const cells = makeCells("gridcell");
  const root = make("div", { className: "dml-b-row", role: "row" }, ...cells);
  const bar = cells.at(-1).appendChild(make("div"));
  root.addEventListener("click", () => {
    select(view, root.number);
    open(view);
  });
  return { root, cells, bar };
}

function showRow(view, { root, cells, bar }, position) {
  const number = view.shown[position];
  const row = view.rows[number - 1];
  root.number = number;
  root.id = `${view.list.grid.id}-${number}`;
  root.dataset.mark = row[MARK];
  root.setAttribute("aria-rowindex", position + 2);
  root.setAttribute("aria-selected", String(number === view.selected));
  cells.slice(0, -1).forEach((cell, i) => setText(cell, textOf(view, i, number)));
  cells[3].title = row[PATH];
  cells[4].setAttribute("aria-label", `${row[STATUS] ?? ""} ${row[MARK]}`.trim());
  const scale = 100 / Math.max(view.until - view.since, 1);
  bar.hidden = row[AT] === null;
  bar.style.left = `${scale * (row[AT] - (row[ELAPSED] ?? 0) - view.since)}%`;
  bar.style.width = `${scale * (row[ELAPSED] ?? 0)}%`;
}

/* Columns are as wide as their widest cell. The path gets what is left, up to its own width. One in
 * which nothing is known is left out, and some where there is no room for them. */
function layOut(view) {
  const { grid, heads, widest } = view.list;
  const has = COLUMNS.map(([, , , , room], i) => view.widest[i] !== undefined && grid.clientWidth >= room);
  const rest = has.at(-1) ? "max-content" : "1fr";
  const tracks = { path: `minmax(8em, ${rest})`, timeline: "minmax(60px, 1fr)" };
  grid.style.gridTemplateColumns = NAMES.filter((_, i) => has[i]).map((name) => tracks[name] ?? "max-content").join(" ");
  widest.slice(0, -1).forEach((cell, i) => setText(cell, textOf(view, i, view.widest[i])));
  for (const cells of [heads, widest, ...view.list.nodes.map((node) => node.cells)]) {
    cells.forEach((cell, i) => (cell.hidden = !has[i]));
  }
}

function draw(view) {
  const { grid, above, below, nodes } = view.list;
  const first = Math.max(0, Math.floor(grid.scrollTop / ROW_PX) - SPARE_ROWS);
  const last = Math.min(view.shown.length, first + Math.ceil(grid.clientHeight / ROW_PX) + 2 * SPARE_ROWS);
  above.style.height = `${Math.min(first, last) * ROW_PX}px`;
  below.style.height = `${(view.shown.length - last) * ROW_PX}px`;
  while (nodes.length < last - first) {
    nodes.push(makeRow(view));
    below.before(nodes.at(-1).root);
  }
  nodes.forEach((node, i) => {
    node.root.hidden = first + i >= last;
    if (!node.root.hidden) showRow(view, node, first + i);
    else node.root.id = "";
  });
  layOut(view);
  const selected = document.getElementById(`${grid.id}-${view.selected}`);
  grid.setAttribute("aria-activedescendant", selected?.id ?? "");
}

/* Filter and sort the rows, and draw them. */
function arrange(view) {
  const { words, unknown, passes } = parseFilter(view);
  const [column, descending] = view.order;
  Object.assign(view, { words, unknown });
  view.shown = view.rows.map((_, i) => i + 1).filter((number) => passes(view.rows[number - 1], number));
  if (column || descending) {
    const keys = view.rows.map((row, i) => COLUMNS[column][3](row, i + 1));
    const sign = descending ? -1 : 1;
    const compare = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : sign * (a < b ? -1 : 1));
    view.shown.sort((a, b) => compare(keys[a - 1], keys[b - 1]) || a - b);
  }
  view.list.heads.forEach((head, i) => {
    head.ariaSort = i !== column ? null : descending ? "descending" : "ascending";
  });
  view.list.grid.setAttribute("aria-rowcount", view.shown.length + 1);
  showCount(view);
  draw(view);
}

function showCount({ rows, shown, total, count, searching, unknown }) {
  const parts = [plural(total, "interaction")];
  if (rows.length < total) parts[0] = `${format(rows.length)} of ${parts[0]} read`;
  if (shown.length < rows.length) parts.unshift(`${format(shown.length)} shown`);
  for (const [mark, symbol] of Object.entries(SYMBOLS)) {
    const marked = rows.filter((row) => row[MARK] === mark).length;
    if (marked) parts.push(`${symbol} ${format(marked)} ${mark}`);
  }
  if (searching) parts.push("searching the bodies …");
  if (unknown.length) parts.push(`${unknown.join(", ")}: looked for as text, the fields are ${Object.keys(FIELDS).join(", ")}`);
  setText(count, parts.join(" · "));
}

function sortBy(view, column) {
  const [before, descending] = view.order;
  view.order = [column, before === column && !descending];
  arrange(view);
}

/* Rows are loaded in parts, a small one first: the list is there at once, however long it is. */
async function load(view, { restart = false } = {}) {
  view.restarts ||= restart;
  view.loadsAgain = true;
  if (view.loading) return;
  view.loading = true;
  const slow = setTimeout(() => (view.progress.hidden = false), 300);
  await told(view, loadParts(view));
  clearTimeout(slow);
  view.progress.hidden = true;
  view.loading = false;
  if (view.words.length) onFilter(view);
}

async function loadParts(view) {
  while (!view.destroyed && (view.rows.length < view.total || view.loadsAgain)) {
    view.loadsAgain = false;
    if (view.restarts) clear(view);
    const first = view.rows.length + 1;
    addRows(view, await request(view, "list", { first, limit: first > 1 ? MAX_ROWS : FIRST_ROWS }));
    view.progress.value = view.rows.length / Math.max(view.total, 1);
  }
}

function clear(view) {
  const empty = { rows: [], shown: [], words: [], widest: [], bodies: new Map(), since: Infinity, until: -Infinity };
  Object.assign(view, empty, { restarts: false, selected: null, awaited: null });
  if (view.form?.root.hidden ?? true) close(view);
  else draw(view);
}

function addRows(view, { title, base_url: baseUrl, note: problem, total, rows, sends }) {
  const { grid, heads } = view.list;
  view.baseUrl = baseUrl;
  view.sends = sends;
  view.writing.hidden = !sends;
  const follows = view.rows.length && grid.scrollTop + grid.clientHeight >= grid.scrollHeight - ROW_PX;
  setText(view.title, title);
  view.title.title = baseUrl ?? "";
  setText(view.status, problem ?? (total ? "" : "No request was sent yet."));
  for (const row of rows) {
    const number = view.rows.push(row);
    NAMES.forEach((_, i) => {
      if (textOf(view, i, number).length > textOf(view, i, view.widest[i]).length) view.widest[i] = number;
    });
    if (row[AT] === null) continue;
    view.since = Math.min(view.since, row[AT] - (row[ELAPSED] ?? 0));
    view.until = Math.max(view.until, row[AT]);
  }
  // An empty part is the last, whatever the total.
  view.total = rows.length ? total : view.rows.length;
  grid.parentNode.style.setProperty("--dml-rows", view.total);
  view.spansDays = Math.floor(view.since / 864e5) !== Math.floor(view.until / 864e5);
  const seconds = (view.until - view.since) / 1000;
  setText(heads.at(-1).firstChild, seconds > 0 ? `When, over ${seconds.toPrecision(3)} s` : "When");
  arrange(view);
  if (follows) grid.scrollTop = grid.scrollHeight;
  if (view.awaited && view.awaited <= view.rows.length) showAwaited(view);
}

/* Show the response to what was just sent, as soon as its row is there. */
function showAwaited(view) {
  select(view, view.awaited);
  view.awaited = null;
  open(view).then(() => view.side.focus());
}

/* The selection. */
function select(view, number) {
  const { grid } = view.list;
  const top = view.shown.indexOf(number) * ROW_PX;
  const room = grid.clientHeight - 2 * ROW_PX;
  if (number !== view.selected) view.onSelect?.(number);
  view.selected = number;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top > grid.scrollTop + room) grid.scrollTop = top - room;
  draw(view);
}

function move(view, key) {
  const page = Math.max(1, Math.floor(view.list.grid.clientHeight / ROW_PX) - 2);
  const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
  if (!(key in steps)) return false;
  const last = view.shown.length - 1;
  const next = view.shown.indexOf(view.selected) + steps[key];
  if (last >= 0) {
    select(view, view.shown[Math.min(last, Math.max(0, next))]);
    // An arrow that is held down opens only the row that it stops at.
    clearTimeout(view.opening);
    if (!view.side.hidden) view.opening = setTimeout(() => open(view), 60);
  }
  return true;
}

/* The side: the details of an interaction. The last request wins. */
function revokeUrls(view) {
  for (const url of view.urls.splice(0)) URL.revokeObjectURL(url);
}

async function open(view) {
  const number = view.selected;
  if (number === null) return;
  const turn = (view.turn += 1);
  showSide(view);
  select(view, number); // the list may be lower now
  const details = await request(view, "detail", { number }).catch(({ message }) => ({ problem: message }));
  if (turn !== view.turn || view.destroyed) return;
  revokeUrls(view);
  const copies = Object.entries({ curl: "curl", httpx: "httpx", request: "dm.request" }).map(([kind, name]) =>
    makeButton(name, () => told(view, copy(view, number, kind)), { ariaLabel: `Copy as ${name}` }),
  );
  const inserting = makeButton("Insert cell", () => told(view, insertCell(view, number)), { hidden: !view.onSelect });
  const editing = makeButton("Edit", () => edit(view), { title: "Change it and send it again (e)", hidden: !view.sends });
  const closing = makeButton("Close", () => leave(view));
  const problem = make("p", { className: "dml-b-problem", textContent: details.problem });
  view.content.replaceChildren(...(details.problem ? [problem] : renderDetails(view, details)));
  const copying = make("span", { className: "dml-soft", textContent: "Copy as" });
  view.actions.replaceChildren(editing, inserting, copying, ...copies, closing);
  draw(view);
}

function close(view) {
  view.turn += 1;
  view.side.hidden = true;
  revokeUrls(view);
  view.content.replaceChildren();
  draw(view);
}

function leave(view) {
  close(view);
  view.list.grid.focus();
}

/* What the side shows: the form where one is written, else the details. */
function showSide(view, form = null) {
  view.side.hidden = false;
  view.side.setAttribute("aria-label", form ? "Request" : "Details");
  view.actions.hidden = view.content.hidden = form !== null;
  if (view.form) view.form.root.hidden = form === null;
}

function write(view, details) {
  view.turn += 1;
  showSide(view, view.form);
  view.form.open(details);
}

const edit = (view) =>
  told(view, request(view, "detail", { number: view.selected }).then((details) => write(view, details)));

/* In JupyterLab and Notebook our extension inserts the cell, and cancels the event; elsewhere the code is copied. */
async function insertCell(view, number) {
  const { text: detail } = await request(view, "copy", { number, format: "request" });
  const event = new CustomEvent("directmail-lab:insert-cell", { bubbles: true, composed: true, cancelable: true, detail });
  if (view.side.dispatchEvent(event)) await copy(view, number, "request");
}

async function copy(view, number, format) {
  const { text } = await request(view, "copy", { number, format });
  const copied = navigator.clipboard?.writeText(text) ?? Promise.reject();
  const said = await copied.then(() => "Copied to the clipboard.", () => "Select this text to copy it.");
  view.content.querySelector(".dml-b-copy")?.remove();
  const code = make("pre", { tabIndex: 0, ariaLabel: "The copied text", textContent: text });
  view.content.prepend(div("dml-b-copy", make("p", { className: "dml-soft", role: "status", textContent: said }), code));
}

/* The first rows that dm.frame would make of a body, in place of its tree. */
async function showTable(view, number, place) {
  const { columns, rows, shape } = await request(view, "table", { number });
  const cells = (tag, texts) => make("tr", {}, ...texts.map((textContent) => make(tag, { textContent })));
  const caption = `dm.frame: ${plural(shape[0], "row")}, ${plural(shape[1], "column")}`;
  const head = make("caption", { className: "dml-soft", textContent: `${caption}; the first ${rows.length}` });
  const table = make("table", {}, head, make("thead", {}, cells("th", columns)));
  table.append(make("tbody", {}, ...rows.map((row) => cells("td", row))));
  place.replaceChildren(make("div", { className: "dml-b-table", tabIndex: 0, role: "region", ariaLabel: "Table" }, table));
}

// Whatever it is, it is only ever saved.
async function saveBody(view, number, message) {
  const { name, buffers } = await request(view, "body", { number, message });
  make("a", { download: name, href: blobUrl(view, buffers[0], "application/octet-stream") }).click();
}

/* Details. */
function renderDetails(view, { number, row, uri, reason, reading, request, response, buffers }) {
  const facts = [
    `${row[STATUS]} ${reason}`.trim(),
    row[ELAPSED] !== null && `${formatMs(row[ELAPSED])} ms`,
    row[AT] !== null && `${formatTime(row[AT], 0)} UTC`,
  ];
  const status = make("p", { className: "dml-b-facts", textContent: facts.filter(Boolean).join(" · ") });
  status.dataset.mark = row[MARK];
  const values = reading.flatMap(([name, value]) => [`${name} `, make("b", { textContent: value }), " "]);
  const body = (title, name, message, bytes) => {
    const { kind, media_type: mediaType, size, truncated } = message.body;
    if (kind === "none" || kind === "absent") return fold(title, renderBody(view, message.body));
    const heading = `${title} (${mediaType || kind}, ${truncated ? "the start of " : ""}${plural(size, "byte")})`;
    const saving = makeButton("Save body", () => told(view, saveBody(view, number, name)));
    const shown = renderBody(view, message.body, bytes);
    if (kind !== "json" || name !== "response") return fold(heading, saving, shown);
    return fold(heading, saving, makeButton("Table", () => told(view, showTable(view, number, shown))), shown);
  };
  const headers = (title, { headers: pairs }) => {
    const nodes = pairs.flatMap(([name, textContent]) => [make("dt", { textContent: name }), make("dd", { textContent })]);
    return fold(`${title} (${pairs.length})`, make("dl", {}, ...nodes));
  };
  return [
    make("h3", { textContent: `${number} ${row[METHOD]} ${row[PATH]}` }),
    status,
    make("p", { className: "dml-b-reading" }, ...values),
    note(uri),
    body("Response body", "response", response, buffers[1]),
    headers("Response headers", response),
    headers("Request headers", request),
    body("Request body", "request", request, buffers[0]),
  ];
}

const fold = (heading, ...content) =>
  make("details", { open: !heading.startsWith("Request body") }, make("summary", { textContent: heading }), ...content);

function renderBody(view, { kind, media_type: mediaType, truncated }, bytes) {
  if (kind in NOTHING_SHOWN) return note(NOTHING_SHOWN[kind]);
  if (kind === "image") return div("", renderImage(view, bytes, mediaType));
  const text = new TextDecoder().decode(bytes);
  return div("", kind === "json" ? renderJson(text) : pre(text), truncated ? note("The rest is not shown.") : "");
}

function blobUrl(view, bytes, type) {
  view.urls.push(URL.createObjectURL(new Blob([bytes], { type })));
  return view.urls.at(-1);
}

function renderImage(view, bytes, mediaType) {
  const image = make("img", { alt: `The body, ${mediaType}`, src: blobUrl(view, bytes, mediaType) });
  image.addEventListener("error", () => image.replaceWith(note(NOT_TEXT)));
  return image;
}

/* JSON as a tree, whose branches are made when they are opened. A number is a String of what was sent:
 * 12345678901234567890 has no exact double. */
function renderJson(source) {
  let value;
  try {
    value = JSON.parse(source, (_, member, context) =>
      typeof member === "number" ? new String(context?.source ?? member) : member,
    );
  } catch {
    return pre(source); // nested too deeply
  }
  return div("dml-b-tree", renderTree("", value, 0));
}

function renderTree(name, value, depth) {
  const label = name === "" ? [] : [make("span", { textContent: name }), ": "];
  if (value === null || typeof value !== "object" || value instanceof String) {
    return div("dml-b-leaf", ...label, renderLeaf(value));
  }
  const members = Object.entries(value);
  const size = Array.isArray(value) ? `[${format(members.length)}]` : `{${format(members.length)}}`;
  label.push(make("span", { className: "dml-soft", textContent: size }));
  if (!members.length) return div("dml-b-leaf", ...label);
  const root = make("details", {}, make("summary", {}, ...label));
  const more = makeButton("", () => appendMembers());
  const appendMembers = () => {
    more.remove();
    for (const [key, member] of members.splice(0, MAX_MEMBERS)) root.append(renderTree(key, member, depth + 1));
    setText(more, `${format(members.length)} more`);
    if (members.length) root.append(more);
  };
  root.addEventListener("toggle", appendMembers, { once: true });
  root.open = depth === 0 || (depth === 1 && members.length <= MAX_MEMBERS);
  return root;
}

function renderLeaf(value) {
  const isNumber = value instanceof String;
  const text = isNumber ? String(value) : JSON.stringify(value);
  const textContent = text.length > MAX_STRING ? `${text.slice(0, MAX_STRING)}…` : text;
  return make("span", { className: `dml-b-${isNumber ? "number" : typeof value}`, textContent });
}

/* The keyboard. */
function onKey(view, event) {
  const { list, filter } = view;
  const isTyping = event.target.matches("input, textarea, select");
  const inFilter = event.target === filter;
  const inList = event.target === list.grid;
  if (view.form?.root.contains(event.target)) return view.form.onKey(event);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (inFilter && filter.value) {
      filter.value = "";
      onFilter(view);
    } else if (inList) close(view);
    list.grid.focus();
  } else if (event.key === "/" && !isTyping) filter.focus();
  else if (event.key === "n" && !isTyping && view.sends) write(view);
  else if (event.key === "e" && !isTyping && view.sends && view.selected !== null) edit(view);
  else if (inFilter && (event.key === "ArrowDown" || event.key === "Enter")) {
    list.grid.focus();
    if (view.selected === null) move(view, "ArrowDown");
  } else if (inList && event.key === "Enter") {
    open(view).then(() => view.side.focus());
  } else if (!inList || !move(view, event.key)) return;
  event.preventDefault();
}

export function createBrowser(root, { send, onChange, onSelect, makeForm, fill = false }) {
  const view = { send, onSelect, total: 0, order: [0, false], turn: 0, searches: 0, urls: [] };
  view.title = div("dml-title");
  view.count = make("div", { className: "dml-soft", role: "status" });
  const placeholder = "Filter: text  status:4xx  method:POST  is:exhausted";
  view.filter = make("input", { type: "search", ariaLabel: "Filter", placeholder });
  view.filter.addEventListener("input", () => onFilter(view));
  view.progress = make("progress", { hidden: true, ariaLabel: "Reading" });
  view.status = make("div", { className: "dml-soft dml-b-status", role: "status", textContent: "Reading …" });
  view.list = makeList(view, newId());
  view.actions = div("dml-b-actions");
  view.content = div("dml-b-content");
  view.side = make("section", { className: "dml-b-side", tabIndex: -1, hidden: true }, view.actions, view.content);
  view.form = makeForm?.(view);
  if (view.form) view.side.append(view.form.root);
  showSide(view);
  view.writing = makeButton("New request", () => write(view), { title: "Write a request (n)", hidden: true });
  const top = div("dml-top", view.title, view.count, view.progress, view.filter, view.writing);
  const middle = div("dml-b-middle", view.list.grid, view.side);
  const className = `dml dml-box dml-browser${fill ? " dml-b-fills" : ""}`;
  const whole = make("section", { className, ariaLabel: "Recorded interactions" }, top, middle, view.status);
  keepKeys(whole);
  whole.addEventListener("keydown", (event) => onKey(view, event));
  const resized = new ResizeObserver(() => schedule(view, draw));
  resized.observe(view.list.grid);
  root.append(whole);
  clear(view);
  onChange?.((change) => {
    if (!change.title) return load(view, change);
    setText(view.title, change.title);
    if (change.part) view.progress.value = change.part;
  });
  load(view);
  return {
    filter: (text) => {
      view.filter.value = text;
      onFilter(view);
    },
    destroy: () => {
      view.destroyed = true;
      [view.opening, view.typing].forEach(clearTimeout);
      cancelAnimationFrame(view.frame);
      resized.disconnect();
      revokeUrls(view);
      whole.remove();
    },
  };
}
