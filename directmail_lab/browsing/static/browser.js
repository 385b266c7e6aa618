/* A browser of interactions: a list, and beside it what is known of one.
 *
 *   createBrowser(root, source, { fill = false } = {}) -> { destroy(), select(index) }
 *
 * `root` is an empty element; with `fill` the browser is as high as it. `source` is where
 * interactions come from, an object of functions; all but the last are async, and reject with an
 * Error whose message is shown. An index counts from 0.
 *
 *   list({ offset, limit }) -> { title, base_url, note, total, offset, rows }
 *       A row is an array: at (ms since 1970, UTC), method, path, status, remaining, elapsed (ms),
 *       bytes, mark ("", "exhausted", "failed" or "unreadable"); null for what is not known. At
 *       most 5,000 come at once; `note` is what is wrong with the recording, or null.
 *   detail(index) -> { index, row, uri, reason, reading: [[name, text]], request, response }
 *       Request and response: { headers: [[name, value]], body }. A body: { kind, media, size,
 *       truncated, bytes }, its kind "none", "json", "text", "image", "pdf", "binary" or "absent"
 *       (not kept); `bytes` is a Uint8Array, text in it UTF-8.
 *   copy(index, as) -> text; `as` is "curl", "httpx" or "request".
 *   compare(a, b) -> [[part, path, change, a's value, b's value]]
 *   others() -> names of recordings to compare with
 *   compareWith(name) -> { pairs, differences: [[a, b, target, ...as above]], only_first,
 *       only_second }
 *   onChange(callback) -> a function that ends it; the callback is called when there is more, with
 *       { part }, what list would give, where that is known; with { restart: true }, all is another.
 *
 * `sourceOf(ask, onChange)` makes a source of a function that takes the JSON that Python's
 * `directmail_lab.browsing.answer` does, and gives its JSON with `buffers` beside.
 *
 * It comes after `dom.js` in one module: `directmail_lab.browsing.page()` has both, and the style.
 */

const [AT, METHOD, PATH, STATUS, REMAINING, ELAPSED, BYTES, MARK] = Array(8).keys();
const ROW_PX = 24;
const SPARE_ROWS = 8;
const FIRST_ROWS = 200;
const MOST_ROWS = 5000;
const MOST_MEMBERS = 200;
const LONGEST_STRING = 5000;
const SIGNS = { exhausted: "×", failed: "▲", unreadable: "?" };

// Name, heading, what it is sorted by, and what it says.
const COLUMNS = [
  ["number", "#", (_, index) => index, (_, index) => String(index + 1)],
  ["time", "Time (UTC)", (row) => row[AT], (row, _, view) => timeOf(row[AT], view)],
  ["method", "Method", (row) => row[METHOD], (row) => row[METHOD]],
  ["path", "Path", (row) => row[PATH], (row) => row[PATH]],
  ["status", "Status", (row) => row[STATUS], (row) => `${row[STATUS] ?? ""} ${SIGNS[row[MARK]] ?? ""}`.trim()],
  ["left", "Left", (row) => row[REMAINING], (row) => count(row[REMAINING])],
  ["elapsed", "ms", (row) => row[ELAPSED], (row) => milliseconds(row[ELAPSED])],
  ["bytes", "Bytes", (row) => row[BYTES], (row) => count(row[BYTES])],
];

const count = (number) => (number === null ? "" : number.toLocaleString("en"));

function milliseconds(value) {
  return value === null ? "" : value.toFixed(value < 100 ? 1 : 0);
}

function timeOf(at, view) {
  if (at === null) return "";
  return new Date(at).toISOString().slice(view?.spansDays ? 5 : 11, 19).replace("T", " ");
}

export function sourceOf(ask, onChange = () => () => {}) {
  const asked = async (question) => {
    const { problem, ...answer } = await ask(question);
    if (problem) throw new Error(problem);
    return answer;
  };
  return {
    list: (part) => asked({ ask: "list", ...part }),
    detail: async (index) => {
      const { buffers, ...about } = await asked({ ask: "detail", index });
      [about.request.body.bytes, about.response.body.bytes] = buffers;
      return about;
    },
    copy: async (index, as) => (await asked({ ask: "copy", index, as })).text,
    compare: async (a, b) => (await asked({ ask: "compare", a, b })).differences,
    others: async () => (await asked({ ask: "others" })).names,
    compareWith: (name) => asked({ ask: "compare_with", name }),
    onChange,
  };
}

/* The filter. */
const TESTS = {
  status: (row, value) =>
    [...value].every((sign, i) => sign === "x" || String(row[STATUS] ?? "")[i] === sign),
  method: (row, value) => row[METHOD].toLowerCase() === value,
  path: (row, value) => row[PATH].toLowerCase().includes(value),
  is: (row, value) => row[MARK] === value,
};

function testOf(text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const wanted = !(word.startsWith("-") && word.length > 1);
    const term = wanted ? word : word.slice(1);
    const [, name, value] = term.match(/^(\w+):(.+)$/) ?? [];
    if (Object.hasOwn(TESTS, name)) return (row) => TESTS[name](row, value) === wanted;
    const holds = (row) => `${row[METHOD]} ${row[PATH]} ${row[STATUS]}`.toLowerCase().includes(term);
    return (row) => holds(row) === wanted;
  });
  return (row) => tests.every((test) => test(row));
}

/* The list. Only the rows in view have nodes. */
function makeList(view, uid) {
  const heads = COLUMNS.map(([name, heading], column) => {
    const button = make("button", { type: "button", tabIndex: -1, textContent: heading });
    button.addEventListener("click", () => sortBy(view, column));
    return make("div", { className: `dml-c-${name}`, role: "columnheader" }, button);
  });
  const scale = make("div", { className: "dml-c-course", role: "columnheader", textContent: "When" });
  const head = make("div", { className: "dml-b-head", role: "row" }, ...heads, scale);
  const room = make("div", { className: "dml-b-room", role: "rowgroup" });
  const grid = make("div", { className: "dml-b-grid", role: "grid", tabIndex: 0, id: uid }, head, room);
  grid.setAttribute("aria-label", "Interactions");
  grid.addEventListener("scroll", () => drawSoon(view));
  return { grid, heads, scale, room, pool: [] };
}

function makeRow(view) {
  const cells = COLUMNS.map(([name]) => make("div", { className: `dml-c-${name}`, role: "gridcell" }));
  const bar = make("div");
  const course = make("div", { className: "dml-c-course", role: "gridcell" }, bar);
  const root = make("div", { className: "dml-b-row", role: "row" }, ...cells, course);
  root.addEventListener("click", () => {
    select(view, root.index);
    open(view);
  });
  return { root, cells, bar };
}

function showRow(view, { root, cells, bar }, place) {
  const index = view.shown[place];
  const row = view.rows[index];
  root.index = index;
  root.id = `${view.list.grid.id}-${index}`;
  root.style.top = `${place * ROW_PX}px`;
  root.dataset.mark = row[MARK];
  root.setAttribute("aria-rowindex", place + 2);
  root.setAttribute("aria-selected", String(index === view.selected));
  root.classList.toggle("dml-compared", index === view.compared);
  COLUMNS.forEach(([, , , told], column) => setText(cells[column], told(row, index, view)));
  cells[3].title = row[PATH];
  cells[4].setAttribute("aria-label", `${row[STATUS] ?? ""} ${row[MARK]}`.trim());
  const span = Math.max(view.until - view.since, 1);
  bar.hidden = row[AT] === null;
  bar.style.left = `${(100 * (row[AT] - (row[ELAPSED] ?? 0) - view.since)) / span}%`;
  bar.style.width = `${(100 * (row[ELAPSED] ?? 0)) / span}%`;
}

function draw(view) {
  const { grid, room, pool } = view.list;
  room.style.height = `${view.shown.length * ROW_PX}px`;
  const rows = Math.ceil(grid.clientHeight / ROW_PX) + 2 * SPARE_ROWS;
  const first = Math.max(0, Math.floor(grid.scrollTop / ROW_PX) - SPARE_ROWS);
  const last = Math.min(view.shown.length, first + rows);
  while (pool.length < last - first) {
    pool.push(makeRow(view));
    room.append(pool.at(-1).root);
  }
  pool.forEach((row, i) => {
    row.root.hidden = first + i >= last;
    if (!row.root.hidden) showRow(view, row, first + i);
    else row.root.id = "";
  });
  const drawn = document.getElementById(`${grid.id}-${view.selected}`);
  grid.setAttribute("aria-activedescendant", drawn?.id ?? "");
}

function drawSoon(view) {
  view.drawing ||= requestAnimationFrame(() => {
    view.drawing = 0;
    draw(view);
  });
}

function arrange(view) {
  const passes = testOf(view.filter.value);
  const shown = [];
  view.rows.forEach((row, index) => {
    if (passes(row)) shown.push(index);
  });
  const [column, down] = view.order;
  if (column || down) {
    const key = COLUMNS[column][2];
    const sign = down ? -1 : 1;
    const keys = new Map(shown.map((index) => [index, key(view.rows[index], index)]));
    const order = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : sign * (a < b ? -1 : 1));
    shown.sort((a, b) => order(keys.get(a), keys.get(b)) || a - b);
  }
  view.shown = shown;
  view.list.heads.forEach((head, i) => {
    if (i === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  view.list.grid.setAttribute("aria-rowcount", shown.length + 1);
  tellCount(view);
  draw(view);
}

function tellCount(view) {
  const { rows, shown, total } = view;
  const marked = (mark) => rows.reduce((sum, row) => sum + (row[MARK] === mark), 0);
  const parts = [plural(total, "interaction")];
  if (rows.length < total) parts[0] = `${count(rows.length)} of ${parts[0]} read`;
  if (shown.length < rows.length) parts.unshift(`${count(shown.length)} shown`);
  for (const mark of ["exhausted", "failed", "unreadable"]) {
    const found = marked(mark);
    if (found) parts.push(`${SIGNS[mark]} ${count(found)} ${mark}`);
  }
  setText(view.count, parts.join(" · "));
}

function sortBy(view, column) {
  const [before, down] = view.order;
  if (before !== column) view.order = [column, false];
  else view.order = down ? [0, false] : [column, true];
  arrange(view);
}

/* Rows come in parts, small ones first: the list is there at once, however long it is. */
async function load(view, { restart = false, part: known = null } = {}) {
  view.restarts ||= restart;
  if (view.loading) {
    view.loadAgain = true;
    return;
  }
  if (known?.offset === view.rows.length && !view.restarts) {
    take(view, known);
    if (view.rows.length === view.total) return;
  }
  view.loading = true;
  try {
    do {
      view.loadAgain = false;
      if (view.restarts) empty(view);
      const offset = view.rows.length;
      const limit = offset ? MOST_ROWS : FIRST_ROWS;
      const part = await view.source.list({ offset, limit });
      if (view.destroyed) return;
      take(view, part);
    } while (view.rows.length < view.total || view.loadAgain);
  } catch (error) {
    setText(view.status, error.message);
  } finally {
    view.loading = false;
  }
}

function empty(view) {
  Object.assign(view, { restarts: false, rows: [], since: Infinity, until: -Infinity, selected: null });
  close(view);
}

function take(view, { title, base_url: baseUrl, note, total, rows }) {
  const { grid } = view.list;
  const atEnd = grid.scrollTop + grid.clientHeight >= grid.scrollHeight - ROW_PX;
  const isFirst = !view.rows.length;
  setText(view.title, title);
  view.title.title = baseUrl ?? "";
  setText(view.status, note ?? (total ? "" : "Nothing was sent yet."));
  // What gave fewer rows than it said has no more.
  view.total = rows.length ? total : view.rows.length;
  for (const row of rows) {
    view.rows.push(row);
    if (row[AT] === null) continue;
    view.since = Math.min(view.since, row[AT] - (row[ELAPSED] ?? 0));
    view.until = Math.max(view.until, row[AT]);
  }
  // A recording of several days tells the day too.
  view.spansDays = Math.floor(view.since / 864e5) !== Math.floor(view.until / 864e5);
  grid.classList.toggle("dml-b-days", view.spansDays);
  const seconds = (view.until - view.since) / 1000;
  setText(view.list.scale, seconds > 0 ? `When, over ${seconds.toPrecision(3)} s` : "When");
  arrange(view);
  if (atEnd && !isFirst && view.follows) grid.scrollTop = grid.scrollHeight;
}

/* What is chosen. */
function select(view, index, { keepsPlace = false } = {}) {
  view.selected = index;
  const place = view.shown.indexOf(index);
  const { grid } = view.list;
  if (place >= 0 && !keepsPlace) {
    const top = place * ROW_PX;
    const room = grid.clientHeight - 2 * ROW_PX;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top > grid.scrollTop + room) grid.scrollTop = top - room;
  }
  draw(view);
}

function move(view, key) {
  const page = Math.max(1, Math.floor(view.list.grid.clientHeight / ROW_PX) - 2);
  const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
  if (!(key in steps)) return false;
  const last = view.shown.length - 1;
  const at = view.shown.indexOf(view.selected);
  const next = at < 0 && steps[key] === 1 ? 0 : Math.min(last, Math.max(0, at + steps[key]));
  if (last >= 0) {
    select(view, view.shown[next]);
    // An arrow that is held down opens what it stops at.
    clearTimeout(view.waiting);
    if (!view.side.root.hidden) view.waiting = setTimeout(() => open(view), 60);
  }
  return true;
}

/* The side: details, or a comparison. The last that was asked for is shown. */
function makeSide() {
  const close = make("button", { type: "button", className: "dml-secondary", textContent: "Close" });
  const actions = make("div", { className: "dml-b-actions" });
  const content = make("div", { className: "dml-b-content" });
  const root = make("section", { className: "dml-b-side", tabIndex: -1, hidden: true }, actions, content);
  root.setAttribute("aria-label", "Details");
  return { root, actions, content, close };
}

function forget(view) {
  for (const url of view.urls.splice(0)) URL.revokeObjectURL(url);
}

async function fill(view, actions, ask, show) {
  const { side } = view;
  const turn = (view.turn += 1);
  side.root.hidden = false;
  try {
    const answer = await ask();
    if (turn !== view.turn || view.destroyed) return;
    forget(view);
    side.content.replaceChildren(...show(answer));
  } catch (error) {
    if (turn !== view.turn || view.destroyed) return;
    forget(view);
    side.content.replaceChildren(make("p", { className: "dml-b-problem", textContent: error.message }));
  }
  side.actions.replaceChildren(...actions, side.close);
  draw(view);
}

function button(text, action, label = text) {
  const made = make("button", { type: "button", className: "dml-secondary", textContent: text });
  made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
  return made;
}

function open(view) {
  const index = view.selected;
  if (index === null) return undefined;
  if (view.compared !== null && view.compared !== index) return compareTwo(view, view.compared, index);
  const copies = { curl: "curl", httpx: "httpx", request: "dm.request" };
  const actions = [
    make("span", { className: "dml-soft", textContent: "Copy as" }),
    ...Object.entries(copies).map(([as, text]) => button(text, () => copy(view, index, as), `Copy as ${text}`)),
    button("Compare…", () => startComparing(view, index)),
  ];
  return fill(view, actions, () => view.source.detail(index), (about) => details(view, about));
}

function close(view) {
  view.turn += 1;
  view.compared = null;
  view.side.root.hidden = true;
  forget(view);
  view.side.content.replaceChildren();
  draw(view);
}

async function copy(view, index, as) {
  const said = make("p", { className: "dml-soft", role: "status" });
  const code = make("pre", { className: "dml-b-code", tabIndex: 0 });
  code.setAttribute("aria-label", "The copied text");
  try {
    code.textContent = await view.source.copy(index, as);
    await navigator.clipboard.writeText(code.textContent);
    said.textContent = "Copied to the clipboard.";
  } catch (error) {
    said.textContent = code.textContent ? "Select this text to copy it." : error.message;
  }
  view.side.content.querySelector(".dml-b-copy")?.remove();
  view.side.content.prepend(make("div", { className: "dml-b-copy" }, said, code));
}

/* Details. */
function details(view, { index, row, uri, reason, reading, request, response }) {
  const facts = [
    `${row[STATUS]} ${reason}`.trim(),
    row[ELAPSED] !== null && `${milliseconds(row[ELAPSED])} ms`,
    row[AT] !== null && `${new Date(row[AT]).toISOString().slice(0, 19).replace("T", " ")} UTC`,
  ];
  const title = make("h3", { textContent: `${index + 1} ${row[METHOD]} ${row[PATH]}` });
  const told = make("p", { className: "dml-b-facts", textContent: facts.filter(Boolean).join(" · ") });
  told.dataset.mark = row[MARK];
  return [
    title,
    told,
    make("p", { className: "dml-b-reading" }, ...reading.flatMap(([name, said]) => [`${name} `, make("b", { textContent: said }), " "])),
    make("p", { className: "dml-soft", textContent: uri }),
    fold(view, `Response body${about(response.body)}`, body(view, response.body)),
    fold(view, `Response headers (${response.headers.length})`, pairs(response.headers)),
    fold(view, `Request headers (${request.headers.length})`, pairs(request.headers)),
    fold(view, `Request body${about(request.body)}`, body(view, request.body)),
  ];
}

function about({ kind, media, size, truncated }) {
  if (kind === "none" || kind === "absent") return "";
  return ` (${media || kind}, ${truncated ? "the start of " : ""}${plural(size, "byte")})`;
}

// A fold stays as it was left when another interaction is opened.
function fold(view, title, content) {
  const name = title.replace(/ \(.*/, "");
  const root = make("details", { open: !view.folded.has(name) }, make("summary", { textContent: title }), content);
  root.addEventListener("toggle", () => view.folded[root.open ? "delete" : "add"](name));
  return root;
}

function pairs(list) {
  const table = make("dl");
  for (const [name, value] of list) {
    table.append(make("dt", { textContent: name }), make("dd", { textContent: value }));
  }
  return table;
}

function body(view, { kind, media, bytes, truncated }) {
  const shows = {
    none: () => note("Empty."),
    absent: () => note("Not kept: only a recording keeps bodies."),
    json: () => json(new TextDecoder().decode(bytes)),
    text: () => text(new TextDecoder().decode(bytes)),
    image: () => picture(view, bytes, media),
    pdf: () => pdf(view, bytes),
    binary: () => text(hex(bytes)),
  };
  const shown = make("div", {}, shows[kind]());
  if (truncated) shown.append(note("The rest is not shown."));
  return shown;
}

const note = (said) => make("p", { className: "dml-soft", textContent: said });
const text = (said) => make("pre", { textContent: said });

function blobUrl(view, bytes, type) {
  view.urls.push(URL.createObjectURL(new Blob([bytes], { type })));
  return view.urls.at(-1);
}

function picture(view, bytes, media) {
  const image = make("img", { alt: `The body, ${media}` });
  image.addEventListener("error", () => image.replaceWith(note("This is no picture that can be shown:"), text(hex(bytes.slice(0, 4096)))));
  image.src = blobUrl(view, bytes, media);
  return image;
}

// A PDF may hold links and forms: it is shown when that is asked for.
function pdf(view, bytes) {
  const show = button("Show the PDF", () => {
    const type = "application/pdf";
    show.replaceWith(make("object", { type, data: blobUrl(view, bytes, type), ariaLabel: "The PDF" }));
  });
  return show;
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const signs = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${signs}`);
  }
  return lines.join("\n");
}

/* JSON as a tree. A number is shown as it was sent: 12345678901234567890 has no exact double. */
class Sent {
  constructor(source) {
    this.source = source;
  }
}

function json(source) {
  let value;
  try {
    value = JSON.parse(source, (_, each, context) =>
      typeof each === "number" ? new Sent(context?.source ?? String(each)) : each,
    );
  } catch {
    return text(source); // nested too deeply
  }
  return make("div", { className: "dml-b-tree" }, tree("", value, 0));
}

function tree(name, value, depth) {
  const label = name === "" ? [] : [make("span", { className: "dml-b-name", textContent: name }), ": "];
  if (value === null || typeof value !== "object" || value instanceof Sent) {
    return make("div", { className: "dml-b-leaf" }, ...label, leaf(value));
  }
  const members = Object.entries(value);
  const isList = Array.isArray(value);
  const size = make("span", {
    className: "dml-soft",
    textContent: isList ? `[${members.length}]` : `{${members.length}}`,
  });
  if (!members.length) return make("div", { className: "dml-b-leaf" }, ...label, size);
  const root = make("details", {}, make("summary", {}, ...label, size));
  const grow = () => more(root, members, depth);
  root.addEventListener("toggle", grow, { once: true });
  root.open = depth < 2 && members.length <= MOST_MEMBERS;
  return root;
}

function more(root, members, depth) {
  for (const [name, each] of members.splice(0, MOST_MEMBERS)) root.append(tree(name, each, depth + 1));
  if (!members.length) return;
  const next = button(`${count(members.length)} more`, () => {
    next.remove();
    more(root, members, depth);
  });
  root.append(next);
}

function leaf(value) {
  const kind = value === null ? "null" : value instanceof Sent ? "number" : typeof value;
  const whole = value instanceof Sent ? value.source : JSON.stringify(value);
  const shown = whole.length > LONGEST_STRING ? `${whole.slice(0, LONGEST_STRING)}…` : whole;
  return make("span", { className: `dml-b-${kind}`, textContent: shown });
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

function compareTwo(view, a, b) {
  const back = button("Back", () => {
    stopComparing(view);
    open(view);
  });
  return fill(view, [back], () => view.source.compare(a, b), (differences) => [
    make("h3", { textContent: `Number ${b + 1} against number ${a + 1}` }),
    differences.length
      ? table(["Path", "Change", `Number ${a + 1}`, `Number ${b + 1}`], differences.map(differenceCells))
      : note("No difference in status, headers and body. Values that change with every call are not compared."),
  ]);
}

const differenceCells = ([part, path, change, was, isNow]) => [
  part === "header" ? `header ${path}` : path,
  change,
  was ?? "",
  isNow ?? "",
];

function compareRecordings(view, name) {
  const numbers = (list) => list.map((index) => index + 1).join(", ");
  return fill(view, [], () => view.source.compareWith(name), (found) => [
    make("h3", { textContent: `${name} against this recording` }),
    note(`${plural(found.pairs, "pair")} compared, by method, path and query.`),
    found.differences.length
      ? table(
          ["Here", "There", "Request", "Path", "Change", "Here", "There"],
          found.differences.map(([a, b, target, ...each]) => [a + 1, b + 1, target, ...differenceCells(each)]),
        )
      : note("No difference."),
    ...(found.only_first.length ? [note(`Only here: ${numbers(found.only_first)}`)] : []),
    ...(found.only_second.length ? [note(`Only there: ${numbers(found.only_second)}`)] : []),
  ]);
}

function table(heads, rows) {
  const row = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, { textContent: cell })));
  return make("table", {}, make("thead", {}, row("th", heads)), make("tbody", {}, ...rows.map((cells) => row("td", cells))));
}

/* The whole. */
function onKey(view, event) {
  const { list, side, filter } = view;
  const isTyping = event.target === filter;
  const inList = event.target === list.grid;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") escape(view, event.target);
  else if (event.key === "/" && !isTyping) filter.focus();
  else if (isTyping && (event.key === "ArrowDown" || event.key === "Enter")) {
    list.grid.focus();
    if (view.selected === null) move(view, "ArrowDown");
  } else if (inList && event.key === "Enter") {
    open(view)?.then(() => side.root.focus());
  } else if (!inList || !move(view, event.key)) return;
  event.preventDefault();
}

function escape(view, target) {
  const { list, side, filter } = view;
  if (target === filter && filter.value) {
    filter.value = "";
    arrange(view);
  } else if (view.compared !== null) stopComparing(view);
  else if (target === list.grid) close(view);
  list.grid.focus();
}

async function offerOthers(view) {
  const names = await view.source.others().catch(() => []);
  view.others.hidden = !names.length;
  view.others.append(...["Compare with recording…", ...names].map((name, i) => new Option(name, i ? name : "")));
  view.others.addEventListener("change", () => {
    if (view.others.value) compareRecordings(view, view.others.value);
    view.others.value = "";
  });
}

let browsers = 0;

export function createBrowser(root, source, { fill: fills = false, follows = true } = {}) {
  browsers += 1;
  const view = {
    source, follows, rows: [], shown: [], total: 0, since: Infinity, until: -Infinity, order: [0, false],
    selected: null, compared: null, turn: 0, urls: [], folded: new Set(["Request body"]), drawing: 0,
  };
  view.title = make("div", { className: "dml-title" });
  view.count = make("div", { className: "dml-soft", role: "status" });
  view.filter = make("input", { type: "search", placeholder: "Filter: text  status:4xx  method:POST  is:exhausted" });
  view.filter.setAttribute("aria-label", "Filter");
  view.filter.addEventListener("input", () => arrange(view));
  view.others = make("select", { hidden: true });
  view.others.setAttribute("aria-label", "Compare with another recording");
  view.status = make("div", { className: "dml-soft dml-b-status", role: "status" });
  view.list = makeList(view, `dml-b-${Date.now().toString(36)}-${browsers}`);
  view.side = makeSide();
  view.side.close.addEventListener("click", () => {
    close(view);
    view.list.grid.focus();
  });
  const top = make("div", { className: "dml-top" }, view.title, view.count, view.filter, view.others);
  const middle = make("div", { className: "dml-b-middle" }, view.list.grid, view.side.root);
  const whole = make("section", { className: "dml dml-box dml-browser" }, top, middle, view.status);
  whole.setAttribute("aria-label", "Recorded interactions");
  keepKeys(whole);
  whole.classList.toggle("dml-b-fills", fills);
  whole.addEventListener("keydown", (event) => onKey(view, event));
  const resized = new ResizeObserver(() => drawSoon(view));
  resized.observe(view.list.grid);
  root.append(whole);
  const end = source.onChange((change) => load(view, change));
  load(view);
  offerOthers(view);
  return {
    select: (index) => {
      select(view, index);
      return open(view);
    },
    destroy: () => {
      view.destroyed = true;
      end?.();
      clearTimeout(view.waiting);
      cancelAnimationFrame(view.drawing);
      resized.disconnect();
      forget(view);
      whole.remove();
    },
  };
}
