/* A browser of interactions: a list, and beside it the details of one.
 *
 *   createBrowser(root, source, { fill = false } = {}) -> { destroy() }
 *
 * `root` is an empty element; with `fill` the browser is as high as it. `source` is made by
 * `createSource(send, onChange)`. `send` takes a request of Python's `browsing.handle_request`, and
 * resolves to its response, with the bodies as `buffers`. `onChange` takes a callback to call when
 * there is more: with { part } (a response to "list") where that is known, with { restart: true } if
 * all is new; it returns a function that ends the calls.
 *
 * A row is an array, see COLUMNS; null stands for what is not known. An index counts from 0. This file
 * comes after `dom.js` in one module.
 */

const [AT, METHOD, PATH, STATUS, REMAINING, ELAPSED, BYTES, MARK] = Array(8).keys();
const ROW_PX = 24;
const SPARE_ROWS = 8;
const FIRST_ROWS = 200;
const MAX_ROWS = 5000;
const MAX_MEMBERS = 200;
const MAX_STRING = 5000;
const SYMBOLS = { exhausted: "×", failed: "▲", unreadable: "?" };

// Name, heading, the value to sort by, and the text of the cell.
const COLUMNS = [
  ["number", "#", (_, index) => index, (_, index) => String(index + 1)],
  ["time", "Time (UTC)", (row) => row[AT], (row, _, view) => formatTime(row[AT], view.spansDays ? 5 : 11)],
  ["method", "Method", (row) => row[METHOD], (row) => row[METHOD]],
  ["path", "Path", (row) => row[PATH], (row) => row[PATH]],
  ["status", "Status", (row) => row[STATUS], (row) => `${row[STATUS] ?? ""} ${SYMBOLS[row[MARK]] ?? ""}`.trim()],
  ["left", "Left", (row) => row[REMAINING], (row) => formatCount(row[REMAINING])],
  ["elapsed", "ms", (row) => row[ELAPSED], (row) => formatMs(row[ELAPSED])],
  ["bytes", "Bytes", (row) => row[BYTES], (row) => formatCount(row[BYTES])],
];

const formatCount = (number) => number?.toLocaleString("en") ?? "";
const formatMs = (ms) => ms?.toFixed(ms < 100 ? 1 : 0) ?? "";
const formatTime = (ms, start) => (ms === null ? "" : new Date(ms).toISOString().slice(start, 19).replace("T", " "));
const note = (textContent) => make("p", { className: "dml-soft", textContent });
const pre = (textContent) => make("pre", { textContent });

export function createSource(send, onChange = () => () => {}) {
  const request = async (action, details = {}) => {
    const { problem, ...response } = await send({ action, ...details });
    if (problem) throw new Error(problem);
    return response;
  };
  return { request, onChange };
}

/* The filter. */
const TESTS = {
  status: (row, value) => [...value].every((digit, i) => digit === "x" || String(row[STATUS] ?? "")[i] === digit),
  method: (row, value) => row[METHOD].toLowerCase() === value,
  path: (row, value) => row[PATH].toLowerCase().includes(value),
  is: (row, value) => row[MARK] === value,
};

function parseFilter(text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const wanted = !(word.startsWith("-") && word.length > 1);
    const term = wanted ? word : word.slice(1);
    const [, name, value] = term.match(/^(\w+):(.+)$/) ?? [];
    if (Object.hasOwn(TESTS, name)) return (row) => TESTS[name](row, value) === wanted;
    return (row) => `${row[METHOD]} ${row[PATH]} ${row[STATUS]}`.toLowerCase().includes(term) === wanted;
  });
  return (row) => tests.every((test) => test(row));
}

/* The list. Only the rows in view have nodes. */
function makeList(view, id) {
  const heads = COLUMNS.map(([name, heading], column) => {
    const button = makeButton(heading, () => sortBy(view, column), { className: "" });
    return make("div", { className: `dml-c-${name}`, role: "columnheader" }, button);
  });
  const scale = make("div", { className: "dml-c-timeline", role: "columnheader", textContent: "When" });
  const head = make("div", { className: "dml-b-head", role: "row" }, ...heads, scale);
  const body = make("div", { className: "dml-b-body", role: "rowgroup" });
  const grid = make("div", { className: "dml-b-grid", role: "grid", tabIndex: 0, id }, head, body);
  grid.setAttribute("aria-label", "Interactions");
  grid.addEventListener("scroll", () => schedule(view, draw));
  return { grid, heads, scale, body, nodes: [] };
}

function makeRow(view) {
  const cells = COLUMNS.map(([name]) => make("div", { className: `dml-c-${name}`, role: "gridcell" }));
  const bar = make("div");
  const timeline = make("div", { className: "dml-c-timeline", role: "gridcell" }, bar);
  const root = make("div", { className: "dml-b-row", role: "row" }, ...cells, timeline);
  root.addEventListener("click", () => {
    select(view, root.index);
    open(view);
  });
  return { root, cells, bar };
}

function showRow(view, { root, cells, bar }, position) {
  const index = view.shown[position];
  const row = view.rows[index];
  root.index = index;
  root.id = `${view.list.grid.id}-${index}`;
  root.style.top = `${position * ROW_PX}px`;
  root.dataset.mark = row[MARK];
  root.setAttribute("aria-rowindex", position + 2);
  root.setAttribute("aria-selected", String(index === view.selected));
  root.classList.toggle("dml-compared", index === view.compared);
  COLUMNS.forEach(([, , , format], column) => setText(cells[column], format(row, index, view)));
  cells[3].title = row[PATH];
  cells[4].setAttribute("aria-label", `${row[STATUS] ?? ""} ${row[MARK]}`.trim());
  const scale = 100 / Math.max(view.until - view.since, 1);
  bar.hidden = row[AT] === null;
  bar.style.left = `${scale * (row[AT] - (row[ELAPSED] ?? 0) - view.since)}%`;
  bar.style.width = `${scale * (row[ELAPSED] ?? 0)}%`;
}

function draw(view) {
  const { grid, body, nodes } = view.list;
  body.style.height = `${view.shown.length * ROW_PX}px`;
  const first = Math.max(0, Math.floor(grid.scrollTop / ROW_PX) - SPARE_ROWS);
  const last = Math.min(view.shown.length, first + Math.ceil(grid.clientHeight / ROW_PX) + 2 * SPARE_ROWS);
  while (nodes.length < last - first) {
    nodes.push(makeRow(view));
    body.append(nodes.at(-1).root);
  }
  nodes.forEach((node, i) => {
    node.root.hidden = first + i >= last;
    if (!node.root.hidden) showRow(view, node, first + i);
    else node.root.id = "";
  });
  const selected = document.getElementById(`${grid.id}-${view.selected}`);
  grid.setAttribute("aria-activedescendant", selected?.id ?? "");
}

/* Filter and sort the rows, and draw them. */
function arrange(view) {
  const passes = parseFilter(view.filter.value);
  const [column, descending] = view.order;
  view.shown = [...view.rows.keys()].filter((index) => passes(view.rows[index]));
  if (column || descending) {
    const keys = view.rows.map((row, index) => COLUMNS[column][2](row, index));
    const sign = descending ? -1 : 1;
    const compare = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : sign * (a < b ? -1 : 1));
    view.shown.sort((a, b) => compare(keys[a], keys[b]) || a - b);
  }
  view.list.heads.forEach((head, i) => {
    head.ariaSort = i !== column ? null : descending ? "descending" : "ascending";
  });
  view.list.grid.setAttribute("aria-rowcount", view.shown.length + 1);
  showCount(view);
  draw(view);
}

function showCount({ rows, shown, total, count }) {
  const parts = [plural(total, "interaction")];
  if (rows.length < total) parts[0] = `${formatCount(rows.length)} of ${parts[0]} read`;
  if (shown.length < rows.length) parts.unshift(`${formatCount(shown.length)} shown`);
  for (const [mark, symbol] of Object.entries(SYMBOLS)) {
    const marked = rows.filter((row) => row[MARK] === mark).length;
    if (marked) parts.push(`${symbol} ${formatCount(marked)} ${mark}`);
  }
  setText(count, parts.join(" · "));
}

function sortBy(view, column) {
  const [before, descending] = view.order;
  if (before !== column) view.order = [column, false];
  else view.order = descending ? [0, false] : [column, true];
  arrange(view);
}

/* Rows are loaded in parts, a small one first: the list is there at once, however long it is. */
async function load(view, { restart = false, part = null } = {}) {
  view.restarts ||= restart;
  if (view.loading) {
    view.loadAgain = true;
    return;
  }
  if (part?.offset === view.rows.length && !view.restarts) {
    addRows(view, part);
    if (view.rows.length === view.total) return;
  }
  view.loading = true;
  try {
    do {
      view.loadAgain = false;
      if (view.restarts) clear(view);
      const offset = view.rows.length;
      const next = await view.source.request("list", { offset, limit: offset ? MAX_ROWS : FIRST_ROWS });
      if (view.destroyed) return;
      addRows(view, next);
    } while (view.rows.length < view.total || view.loadAgain);
  } catch (error) {
    setText(view.status, error.message);
  } finally {
    view.loading = false;
  }
}

function clear(view) {
  Object.assign(view, { restarts: false, rows: [], since: Infinity, until: -Infinity, selected: null });
  close(view);
}

function addRows(view, { title, base_url: baseUrl, note: problem, total, rows }) {
  const { grid, scale } = view.list;
  const follows = view.rows.length && grid.scrollTop + grid.clientHeight >= grid.scrollHeight - ROW_PX;
  setText(view.title, title);
  view.title.title = baseUrl ?? "";
  setText(view.status, problem ?? (total ? "" : "No request was sent yet."));
  for (const row of rows) {
    view.rows.push(row);
    if (row[AT] === null) continue;
    view.since = Math.min(view.since, row[AT] - (row[ELAPSED] ?? 0));
    view.until = Math.max(view.until, row[AT]);
  }
  // An empty part is the last, whatever the total.
  view.total = rows.length ? total : view.rows.length;
  grid.parentNode.style.setProperty("--dml-rows", view.total);
  view.spansDays = Math.floor(view.since / 864e5) !== Math.floor(view.until / 864e5);
  grid.classList.toggle("dml-b-days", view.spansDays);
  const seconds = (view.until - view.since) / 1000;
  setText(scale, seconds > 0 ? `When, over ${seconds.toPrecision(3)} s` : "When");
  arrange(view);
  if (follows) grid.scrollTop = grid.scrollHeight;
}

/* The selection. */
function select(view, index) {
  const { grid } = view.list;
  const top = view.shown.indexOf(index) * ROW_PX;
  const room = grid.clientHeight - 2 * ROW_PX;
  view.selected = index;
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
    if (!view.side.root.hidden) view.opening = setTimeout(() => open(view), 60);
  }
  return true;
}

/* The side: details, or a comparison. The last request wins. */
function makeSide(onClose) {
  const actions = div("dml-b-actions");
  const content = div("dml-b-content");
  const root = make("section", { className: "dml-b-side", tabIndex: -1, hidden: true }, actions, content);
  root.setAttribute("aria-label", "Details");
  return { root, actions, content, close: makeButton("Close", onClose) };
}

function revokeUrls(view) {
  for (const url of view.urls.splice(0)) URL.revokeObjectURL(url);
}

async function showSide(view, actions, response, render) {
  const { side } = view;
  const turn = (view.turn += 1);
  side.root.hidden = false;
  if (view.selected !== null) select(view, view.selected); // the list may be lower now
  const problem = (error) => [make("p", { className: "dml-b-problem", textContent: error.message })];
  const nodes = await response.then(
    (value) => () => render(value),
    (error) => () => problem(error),
  );
  if (turn !== view.turn || view.destroyed) return;
  revokeUrls(view);
  side.content.replaceChildren(...nodes());
  side.actions.replaceChildren(...actions, side.close);
  draw(view);
}

function open(view) {
  const { selected: index, compared, source } = view;
  if (index === null) return undefined;
  if (compared !== null && compared !== index) return compareTwo(view, compared, index);
  const copies = { curl: "curl", httpx: "httpx", request: "dm.request" };
  const actions = [
    make("span", { className: "dml-soft", textContent: "Copy as" }),
    ...Object.entries(copies).map(([format, name]) =>
      makeButton(name, () => copy(view, index, format), { ariaLabel: `Copy as ${name}` }),
    ),
    makeButton("Compare…", () => startComparing(view, index)),
  ];
  return showSide(view, actions, source.request("detail", { index }), (details) => renderDetails(view, details));
}

function close(view) {
  view.turn += 1;
  view.compared = null;
  view.side.root.hidden = true;
  revokeUrls(view);
  view.side.content.replaceChildren();
  draw(view);
}

async function copy(view, index, format) {
  const message = make("p", { className: "dml-soft", role: "status" });
  const code = make("pre", { tabIndex: 0, ariaLabel: "The copied text" });
  try {
    code.textContent = (await view.source.request("copy", { index, format })).text;
    await navigator.clipboard.writeText(code.textContent);
    message.textContent = "Copied to the clipboard.";
  } catch (error) {
    message.textContent = code.textContent ? "Select this text to copy it." : error.message;
  }
  view.side.content.querySelector(".dml-b-copy")?.remove();
  view.side.content.prepend(div("dml-b-copy", message, code));
}

/* Details. */
function renderDetails(view, { index, row, uri, reason, reading, request, response, buffers }) {
  const facts = [
    `${row[STATUS]} ${reason}`.trim(),
    row[ELAPSED] !== null && `${formatMs(row[ELAPSED])} ms`,
    row[AT] !== null && `${formatTime(row[AT], 0)} UTC`,
  ];
  const status = make("p", { className: "dml-b-facts", textContent: facts.filter(Boolean).join(" · ") });
  status.dataset.mark = row[MARK];
  const values = reading.flatMap(([name, value]) => [`${name} `, make("b", { textContent: value }), " "]);
  const body = (title, message, bytes) =>
    fold(view, title, describeBody(message.body), renderBody(view, message.body, bytes));
  const headers = (title, message) => fold(view, title, ` (${message.headers.length})`, renderPairs(message.headers));
  return [
    make("h3", { textContent: `${index + 1} ${row[METHOD]} ${row[PATH]}` }),
    status,
    make("p", { className: "dml-b-reading" }, ...values),
    note(uri),
    body("Response body", response, buffers[1]),
    headers("Response headers", response),
    headers("Request headers", request),
    body("Request body", request, buffers[0]),
  ];
}

function describeBody({ kind, media_type: mediaType, size, truncated }) {
  if (kind === "none" || kind === "absent") return "";
  return ` (${mediaType || kind}, ${truncated ? "the start of " : ""}${plural(size, "byte")})`;
}

// A fold that was closed stays closed when another interaction is opened.
function fold(view, title, description, content) {
  const summary = make("summary", { textContent: title + description });
  const root = make("details", { open: !view.folded.has(title) }, summary, content);
  root.addEventListener("toggle", () => view.folded[root.open ? "delete" : "add"](title));
  return root;
}

function renderPairs(pairs) {
  const nodes = pairs.map(([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: value })]);
  return make("dl", {}, ...nodes.flat());
}

function renderBody(view, { kind, media_type: mediaType, truncated }, bytes) {
  const renderers = {
    none: () => note("Empty."),
    absent: () => note("Not kept: only a recording keeps bodies."),
    json: () => renderJson(new TextDecoder().decode(bytes)),
    text: () => pre(new TextDecoder().decode(bytes)),
    image: () => renderImage(view, bytes, mediaType),
    pdf: () => renderPdf(view, bytes),
    binary: () => pre(hexDump(bytes)),
  };
  return make("div", {}, renderers[kind](), ...(truncated ? [note("The rest is not shown.")] : []));
}

function blobUrl(view, bytes, type) {
  view.urls.push(URL.createObjectURL(new Blob([bytes], { type })));
  return view.urls.at(-1);
}

function renderImage(view, bytes, mediaType) {
  const image = make("img", { alt: `The body, ${mediaType}` });
  const showBytes = () => image.replaceWith(note("This image cannot be shown:"), pre(hexDump(bytes.slice(0, 4096))));
  image.addEventListener("error", showBytes);
  image.src = blobUrl(view, bytes, mediaType);
  return image;
}

// A PDF may have links and forms, so it is shown only on request.
function renderPdf(view, bytes) {
  const type = "application/pdf";
  const show = () => make("object", { type, data: blobUrl(view, bytes, type), ariaLabel: "The PDF" });
  const button = makeButton("Show the PDF", () => button.replaceWith(show()));
  return button;
}

function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/* JSON as a tree. A number is shown as it was sent: 12345678901234567890 has no exact double. */
class NumberText {
  constructor(text) {
    this.text = text;
  }
}

function renderJson(source) {
  let value;
  try {
    value = JSON.parse(source, (_, member, context) =>
      typeof member === "number" ? new NumberText(context?.source ?? String(member)) : member,
    );
  } catch {
    return pre(source); // nested too deeply
  }
  return div("dml-b-tree", renderTree("", value, 0));
}

function renderTree(name, value, depth) {
  const label = name === "" ? [] : [make("span", { textContent: name }), ": "];
  if (value === null || typeof value !== "object" || value instanceof NumberText) {
    return div("dml-b-leaf", ...label, renderLeaf(value));
  }
  const members = Object.entries(value);
  const size = Array.isArray(value) ? `[${members.length}]` : `{${members.length}}`;
  label.push(make("span", { className: "dml-soft", textContent: size }));
  if (!members.length) return div("dml-b-leaf", ...label);
  const root = make("details", {}, make("summary", {}, ...label));
  root.addEventListener("toggle", () => appendMembers(root, members, depth), { once: true });
  root.open = depth < 2 && members.length <= MAX_MEMBERS;
  return root;
}

function appendMembers(root, members, depth) {
  for (const [name, value] of members.splice(0, MAX_MEMBERS)) root.append(renderTree(name, value, depth + 1));
  if (!members.length) return;
  const more = makeButton(`${formatCount(members.length)} more`, () => {
    more.remove();
    appendMembers(root, members, depth);
  });
  root.append(more);
}

function renderLeaf(value) {
  const isNumber = value instanceof NumberText;
  const text = isNumber ? value.text : JSON.stringify(value);
  const textContent = text.length > MAX_STRING ? `${text.slice(0, MAX_STRING)}…` : text;
  return make("span", { className: `dml-b-${isNumber ? "number" : typeof value}`, textContent });
}

/* Comparing. */
function startComparing(view, index) {
  view.compared = index;
  setText(view.status, `Choose what to compare with number ${index + 1}. Escape ends this.`);
  view.list.grid.focus();
  draw(view);
}

function stopComparing(view) {
  view.compared = null;
  setText(view.status, "");
  draw(view);
}

function compareTwo(view, first, second) {
  const back = makeButton("Back", () => {
    stopComparing(view);
    open(view);
  });
  const heads = ["Path", "Change", `Number ${first + 1}`, `Number ${second + 1}`];
  return showSide(view, [back], view.source.request("compare", { first, second }), ({ differences }) => [
    make("h3", { textContent: `Number ${second + 1} against number ${first + 1}` }),
    differences.length
      ? renderTable(heads, differences.map(differenceCells))
      : note("No difference in status, headers and body. Values that change with every call are not compared."),
  ]);
}

const differenceCells = ([part, path, change, before, after]) => [
  part === "header" ? `header ${path}` : path,
  change,
  before ?? "",
  after ?? "",
];

function compareRecordings(view, name) {
  stopComparing(view);
  const response = view.source.request("compare_recordings", { name });
  return showSide(view, [], response, ({ pairs, differences, ...lists }) => {
    const numbers = (title, list) =>
      lists[list].length ? [note(`${title}: ${lists[list].map((index) => index + 1).join(", ")}`)] : [];
    const rows = differences.map(([a, b, target, ...rest]) => [a + 1, b + 1, target, ...differenceCells(rest)]);
    const heads = ["Here", "There", "Request", "Path", "Change", "Here", "There"];
    return [
      make("h3", { textContent: `${name} against this recording` }),
      note(pairs ? `${plural(pairs, "pair")} compared, by method, path and query${rows.length ? "." : ": no difference."}` : "No request is in both."),
      ...(rows.length ? [renderTable(heads, rows)] : []),
      ...numbers("Only here", "only_first"),
      ...numbers("Only there", "only_second"),
      ...numbers("Not compared, since unreadable here", "unreadable_first"),
      ...numbers("Not compared, since unreadable there", "unreadable_second"),
    ];
  });
}

function renderTable(heads, rows) {
  const row = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, { textContent: cell })));
  const body = rows.map((cells) => row("td", cells));
  return make("table", {}, make("thead", {}, row("th", heads)), make("tbody", {}, ...body));
}

/* The keyboard. */
function onKey(view, event) {
  const { list, side, filter } = view;
  const isTyping = event.target === filter;
  const inList = event.target === list.grid;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") onEscape(view, event.target);
  else if (event.key === "/" && !isTyping) filter.focus();
  else if (isTyping && (event.key === "ArrowDown" || event.key === "Enter")) {
    list.grid.focus();
    if (view.selected === null) move(view, "ArrowDown");
  } else if (inList && event.key === "Enter") {
    open(view)?.then(() => side.root.focus());
  } else if (!inList || !move(view, event.key)) return;
  event.preventDefault();
}

function onEscape(view, target) {
  const { list, filter } = view;
  if (target === filter && filter.value) {
    filter.value = "";
    arrange(view);
  } else if (view.compared !== null) stopComparing(view);
  else if (target === list.grid) close(view);
  list.grid.focus();
}

/* The whole. */
async function offerRecordings(view) {
  const { names } = await view.source.request("recordings").catch(() => ({ names: [] }));
  view.others.hidden = !names.length;
  view.others.append(...["Compare with recording…", ...names].map((name, i) => new Option(name, i ? name : "")));
  view.others.addEventListener("change", () => {
    if (view.others.value) compareRecordings(view, view.others.value);
    view.others.value = "";
  });
}

export function createBrowser(root, source, { fill = false } = {}) {
  const view = {
    source, rows: [], shown: [], total: 0, since: Infinity, until: -Infinity, order: [0, false],
    selected: null, compared: null, turn: 0, urls: [], folded: new Set(["Request body"]),
  };
  view.title = div("dml-title");
  view.count = make("div", { className: "dml-soft", role: "status" });
  view.filter = make("input", { type: "search", ariaLabel: "Filter" });
  view.filter.placeholder = "Filter: text  status:4xx  method:POST  is:exhausted";
  view.filter.addEventListener("input", () => arrange(view));
  view.others = make("select", { hidden: true, ariaLabel: "Compare with another recording" });
  view.status = make("div", { className: "dml-soft dml-b-status", role: "status" });
  view.list = makeList(view, newId());
  view.side = makeSide(() => {
    close(view);
    view.list.grid.focus();
  });
  const top = div("dml-top", view.title, view.count, view.filter, view.others);
  const middle = div("dml-b-middle", view.list.grid, view.side.root);
  const whole = make("section", { className: "dml dml-box dml-browser" }, top, middle, view.status);
  whole.ariaLabel = "Recorded interactions";
  whole.classList.toggle("dml-b-fills", fill);
  keepKeys(whole);
  whole.addEventListener("keydown", (event) => onKey(view, event));
  const resized = new ResizeObserver(() => schedule(view, draw));
  resized.observe(view.list.grid);
  root.append(whole);
  const stop = source.onChange((change) => load(view, change));
  load(view);
  offerRecordings(view);
  return {
    destroy: () => {
      view.destroyed = true;
      stop();
      clearTimeout(view.opening);
      cancelAnimationFrame(view.frame);
      resized.disconnect();
      revokeUrls(view);
      whole.remove();
    },
  };
}
