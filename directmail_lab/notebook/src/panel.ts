/* The browser of interactions: a list, and beside it the form for a request, above a response.
 *
 *   createBrowser(root, { send, loadEditor, … }) -> { filter, destroy }
 */

import { SYMBOLS } from "./columns";
import { createComposer, type Draft } from "./composer";
import { activeElement, div, formatCount, keepKeys, make, makeButton, plural, setText } from "./dom";
import type { LoadEditor } from "./editor";
import { KNOWN, parseFilter } from "./filter";
import { BUSY } from "./kernel";
import { createList } from "./list";
import { ask, type Details, rowsOf, type Send } from "./protocol";
import { createResponse } from "./response";
import { createSeparator } from "./separator";

const FIRST_ROWS = 200;
const MAX_ROWS = 5000;
const INSERT = "directmail-lab:insert-cell";

/** With `restart`, everything is new; `silence` says that Python does not respond. */
export interface Change {
  restart?: boolean;
  silence?: string;
}

export interface BrowserOptions {
  /** Sends a request to Python's `browser_data.handle_request`, and resolves to the response. */
  send: Send;
  loadEditor: LoadEditor;
  /** Takes a callback for changes. */
  onChange?: (callback: (change: Change) => void) => void;
  /** Called with the number of the selected interaction. Without it, no cell can be inserted. */
  onSelect?: (number: number) => void;
  /** Whether the browser is as high as `root`. */
  fill?: boolean;
  /** Keeps what is typed in the form, for when the page is shown anew. */
  draft?: Draft;
}

const HINTS: [keys: string, does: string, ofSession: boolean][] = [
  ["n", "new request", true],
  ["Ctrl+Enter", "send", true],
  ["Escape", "abort, or go back", true],
  ["↑ ↓ Enter", "select and open", false],
  ["e", "edit and send again", true],
  ["i", "insert a cell that sends it", true],
  ["c", "compare with the row selected before (Ctrl+click)", false],
  ["/", "filter", false],
];

export function createBrowser(root: HTMLElement, { send, loadEditor, onChange, onSelect, fill = false, draft = {} }: BrowserOptions) {
  let total = 0;
  let sends = false;
  let baseUrl = "";
  let turn = 0;
  let awaited: number | null = null;
  let isLoading = false;
  let loadsAgain = false;
  let restarts = false;
  let isDestroyed = false;
  let isFirst = true;
  let opening: ReturnType<typeof setTimeout> | undefined;
  let filter = parseFilter("");
  let note = "";
  let silence = "";

  const title = div("dml-title");
  const count = make("div", { className: "dml-soft", role: "status" });
  const marks = Object.keys(SYMBOLS).map((mark) =>
    makeButton("", () => toggle(`is:${mark}`), { className: `dml-secondary dml-b-mark dml-is-${mark}`, hidden: true, title: `Filter: is:${mark}` }));
  const placeholder = "Filter: text  status:4xx  ms:>100  bytes:>10k  path:/v1";
  const searching = make("input", { type: "search", ariaLabel: "Filter", placeholder });
  const progress = make("progress", { hidden: true, ariaLabel: "Reading" });
  const writing = makeButton("New request ", () => write(), { title: "Write a request (n)", hidden: true });
  writing.append(make("kbd", { textContent: "n", "aria-hidden": "true" }));
  const status = make("div", { className: "dml-soft dml-b-note", role: "status", textContent: "Reading …" });

  const list = createList({
    passes: (row) => filter.passes(row),
    onSelect: (number) => onSelect?.(number),
    onOpen: () => open(),
    onCompare: () => told(compare()),
  });
  const response = createResponse({
    send,
    loadEditor,
    hint,
    onWhole: () => open({ whole: true }).then(() => response.root.focus()),
    onEdit: () => edit(),
    onInsert: () => insertSelected(),
    onClose: () => leave(),
  });
  const composer = createComposer({
    send,
    loadEditor,
    onSent: (number) => {
      awaited = number;
      load();
    },
    onInsert: insertCell,
    onLeave: () => list.grid.focus(),
    draft,
  });

  const side = div("dml-b-side");
  const middle = div("dml-b-middle");
  const whole = make("section", { className: `dml dml-box dml-browser${fill ? " dml-b-fills" : ""}`, ariaLabel: "Recorded interactions" });
  const isWide = () => list.grid.offsetTop === side.offsetTop;
  const border = createSeparator({ name: "--dml-list", label: "Border of the list", root: whole, whole: middle, isVertical: isWide });
  const lower = createSeparator({ name: "--dml-request", label: "Border of the request", root: whole, whole: side, isVertical: () => false });
  side.append(composer.root, lower, response.root);
  middle.append(list.grid, border, side);
  const finding = div("dml-b-finding", ...marks, searching);
  whole.append(div("dml-top", title, count, progress, finding, writing), status, middle);
  keepKeys(whole);
  whole.addEventListener("keydown", (event) => handleKey(event) && event.preventDefault());
  searching.addEventListener("input", onFilter);
  showSide(false);
  root.append(whole);

  function hint(): HTMLElement {
    const shown = HINTS.filter(([, , ofSession]) => sends || !ofSession);
    const items = shown.flatMap(([keys, does]) => [make("dt", {}, make("kbd", { textContent: keys })), make("dd", { textContent: does })]);
    return make("dl", { className: "dml-b-keys" }, ...items);
  }

  // An error is shown above the list.
  const told = (promise: Promise<unknown>) => promise.catch((error: Error) => setText(status, (note = error.message)));

  /* Loading. Rows are loaded in parts, the first of them small, so that even a long list appears at once. */
  async function load({ restart = false } = {}) {
    restarts ||= restart;
    loadsAgain = true;
    if (isLoading) return;
    isLoading = true;
    const slow = setTimeout(() => (progress.hidden = false), 300);
    await told(loadParts());
    clearTimeout(slow);
    progress.hidden = true;
    isLoading = false;
  }

  async function loadParts() {
    while (!isDestroyed && (list.rows.length < total || loadsAgain)) {
      loadsAgain = false;
      if (restarts) clear();
      const first = list.rows.length + 1;
      show(await ask(send, "list", { first, limit: first > 1 ? MAX_ROWS : FIRST_ROWS }));
      progress.value = list.rows.length / Math.max(total, 1);
    }
  }

  function show(part: { title: string; base_url: string | null; note: string | null; total: number; fields: string[]; rows: unknown[][]; sends?: boolean }) {
    const rows = rowsOf(part.fields, part.rows);
    baseUrl = part.base_url ?? "";
    sends = Boolean(part.sends);
    setText(title, part.title);
    title.title = `${part.title}\n${baseUrl}`.trim();
    note = part.note || "";
    response.inserting.hidden = sends || !onSelect; // the form has such a button
    writing.hidden = response.editing.hidden = composer.root.hidden = lower.hidden = !sends;
    list.add(rows);
    if (sends) composer.suggest(list.rows);
    // An empty part is the last one, even if the total is greater.
    total = rows.length ? part.total : list.rows.length;
    whole.style.setProperty("--dml-rows", String(total));
    showCount();
    if (isFirst) showFirst();
    if (awaited && awaited <= list.rows.length) showAwaited();
  }

  /* Show an empty form and the list of keys. If the cell was run with Ctrl+Enter, focus the list, so that the keys work. */
  function showFirst() {
    isFirst = false;
    response.clear();
    if (sends) {
      composer.restore();
      showSide(true);
    }
    const cell = whole.closest(".jp-Cell.jp-mod-active");
    if (cell?.closest(".jp-Notebook.jp-mod-commandMode")?.contains(document.activeElement)) list.grid.focus({ preventScroll: true });
  }

  function clear() {
    list.clear();
    restarts = false;
    awaited = null;
    response.clear();
    if (!sends) showSide(false);
  }

  function showCount() {
    const { rows } = list;
    const parts = [plural(total, "interaction")];
    if (rows.length < total) parts[0] = `${formatCount(rows.length)} of ${parts[0]} read`;
    if (list.shownCount() < rows.length && searching.value) parts.unshift(`${formatCount(list.shownCount())} shown`);
    Object.entries(SYMBOLS).forEach(([mark, symbol], i) => {
      const marked = list.markedCount(mark);
      marks[i].hidden = !marked;
      marks[i].setAttribute("aria-pressed", String(words().includes(`is:${mark}`)));
      setText(marks[i], `${symbol} ${formatCount(marked)} ${mark}`);
    });
    setText(count, parts.join(" · "));
    const unknown = filter.unknown.join(", ");
    const isEmpty = rows.length > 0 && !list.shownCount();
    const none = !rows.length && sends ? "No requests yet: send one below, or run a cell that sends one." : "";
    const nothing = isEmpty ? "No interaction matches this filter." : none;
    setText(status, unknown ? `Unknown filter: ${unknown}. It is searched as text. The filters are ${KNOWN}.` : silence || note || nothing);
  }

  const words = () => searching.value.split(/\s+/).filter(Boolean);

  /** Add a term to the filter, or remove it. */
  function toggle(term: string) {
    const others = words().filter((word) => word !== term);
    searching.value = [...others, ...(others.length < words().length ? [] : [term])].join(" ");
    onFilter();
  }

  function onFilter() {
    filter = parseFilter(searching.value);
    list.arrange();
    showCount();
  }

  /* The response beside the list. Only the response to the last request is shown. */
  function showSide(isShown: boolean) {
    side.hidden = border.hidden = !isShown;
    list.draw();
  }

  async function detailsOf(number: number, whole: boolean): Promise<Details> {
    const details = await ask(send, "detail", { number, whole });
    return { ...details, number };
  }

  async function open({ whole: isWhole = false, fills = true } = {}): Promise<Details | null> {
    const number = list.selected();
    if (number === null) return null;
    const own = (turn += 1);
    clearTimeout(opening); // set by an arrow key
    showSide(true);
    list.select(number); // the list may be narrower now, so scroll to the row again
    const slow = setTimeout(() => setText(status, `Reading ${number} …`), 300);
    try {
      const details = await detailsOf(number, isWhole);
      if (own !== turn || isDestroyed) return null;
      response.show(details);
      // Keep what the person has typed.
      if (sends && fills && !isWhole && !composer.isDirty() && !composer.isBusy()) composer.fill(details);
      return details;
    } catch (error) {
      if (own === turn) response.clear((error as Error).message);
      return null;
    } finally {
      clearTimeout(slow);
      showCount();
    }
  }

  async function compare() {
    const number = list.compare();
    if (number === null) return setText(status, "Select another row first, and then the one to compare it with.");
    if (!(await open({ whole: true, fills: false }))) return;
    const own = turn;
    const first = await detailsOf(number, true);
    if (own === turn) response.compare(first);
  }

  /* Show the response to the request that was just sent, once its row is loaded. */
  function showAwaited() {
    const hadFocus = composer.root.contains(activeElement(root));
    list.select(awaited!);
    awaited = null;
    told(open({ fills: false }));
    if (!hadFocus && !whole.contains(activeElement(root))) list.grid.focus();
  }

  function leave() {
    turn += 1;
    showSide(false);
    response.clear();
    list.grid.focus();
  }

  /* A draft is left out only if this is asked for twice. */
  function write() {
    showSide(true);
    if (!composer.keepsDraft()) composer.fill(null);
    composer.focus();
  }

  async function edit() {
    if (list.selected() === null) return;
    const details = await open({ fills: false });
    if (!details) return;
    if (!composer.keepsDraft()) composer.fill(details);
    composer.focus();
  }

  async function insertSelected() {
    const number = list.selected();
    if (number === null) return sends ? composer.insert() : undefined;
    const { text } = await ask(send, "copy", { number, format: "request" });
    await insertCell(text);
  }

  /* In JupyterLab and Notebook, our extension inserts the cell and cancels the event. Elsewhere, copy the code. */
  async function insertCell(detail: string) {
    const event = new CustomEvent(INSERT, { bubbles: true, composed: true, cancelable: true, detail });
    if (whole.dispatchEvent(event)) await response.copy(detail, true);
  }

  /* The keyboard. */
  function handleKey(event: KeyboardEvent): boolean {
    const { key } = event;
    const target = event.target as HTMLElement;
    const isTyping = target.matches("input, textarea, select, [contenteditable=true]:not([aria-readonly=true])");
    if (key === "Escape" && composer.isBusy()) {
      composer.abort();
      return true;
    }
    if (composer.root.contains(target)) return composer.onKey(event) || (!isTyping && handleLetter(event));
    if (key === "Escape") return !event.defaultPrevented && onEscape(target);
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (target === searching && (key === "ArrowDown" || key === "Enter")) {
      list.grid.focus();
      if (list.selected() === null) list.move("ArrowDown");
      return true;
    }
    if (target === list.grid) {
      if (key === "Enter") {
        open().then(() => response.root.focus());
        return true;
      }
      if (list.move(key)) {
        // While an arrow key is held down, only the last row is opened.
        clearTimeout(opening);
        if (!side.hidden && list.selected() !== null) opening = setTimeout(open, 60);
        return true;
      }
    }
    return !isTyping && handleLetter(event);
  }

  function handleLetter({ key, ctrlKey, metaKey, altKey, repeat }: KeyboardEvent): boolean {
    if (ctrlKey || metaKey || altKey || repeat) return false;
    if (key === "/") searching.focus();
    else if (key === "n" && sends) write();
    else if (key === "e" && sends) told(edit());
    else if (key === "c") told(compare());
    else if (key === "i" && onSelect) told(insertSelected());
    else return false;
    return true;
  }

  function onEscape(target: HTMLElement): boolean {
    if (target === searching && searching.value) {
      searching.value = "";
      onFilter();
    } else if (target === list.grid && !side.hidden) leave();
    else if (target === list.grid) whole.closest<HTMLElement>(".jp-Notebook")?.focus();
    if (target !== list.grid) list.grid.focus();
    return true;
  }

  onChange?.((change) => {
    if ((change.silence ?? "") !== silence) {
      silence = change.silence ?? "";
      status.classList.toggle("dml-b-problem", Boolean(silence) && silence !== BUSY);
      showCount();
    }
    if (change.silence === undefined) load(change);
  });
  load();
  return {
    filter: (text: string) => {
      searching.value = text;
      onFilter();
    },
    destroy: () => {
      isDestroyed = true;
      clearTimeout(opening);
      list.destroy();
      response.destroy();
      composer.destroy();
      whole.remove();
    },
  };
}
