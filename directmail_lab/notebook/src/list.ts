/* The list of interactions. Only visible rows have nodes. A hidden row with the widest cell of each column sets the
 * columns' widths. */

import { COLUMNS, isMarked } from "./columns";
import { div, formatCount, make, makeButton, newId, scheduler, setText } from "./dom";
import type { Row } from "./protocol";

const ROW_PX = 24;
const SPARE_ROWS = 8;
/* The end of a long path is never cut: it says which of many the row is about. */
const LONG_PATH = 16;
const PATH_END = 12;
const NAMES = COLUMNS.map(({ name }) => name);
const [PATH, STATUS, TIMELINE] = ["path", "status", "timeline"].map((name) => NAMES.indexOf(name));

const makeCells = (role: string) => NAMES.map((name) => make("div", { className: `dml-c-${name}`, role }));

export interface ListOptions {
  /** Whether a row passes the filter. */
  passes: (row: Row) => boolean;
  onSelect: (number: number) => void;
  onOpen: () => void;
  /** Called when the selected row is to be compared with the one that was selected before. */
  onCompare: () => void;
}

export function createList({ passes, onSelect, onOpen, onCompare }: ListOptions) {
  const id = newId();
  const rows: Row[] = [];
  const widest: (number | undefined)[] = [];
  const nodes: ReturnType<typeof makeRow>[] = [];
  let shown: number[] = [];
  let selected: number | null = null;
  let before: number | null = null;
  let compared: number | null = null;
  let sorted = 0;
  let descending = false;
  let since = Infinity;
  let until = -Infinity;
  let spansDays = false;

  const heads = makeCells("columnheader");
  heads.forEach((head, i) => head.append(makeButton(COLUMNS[i].heading, () => sortBy(i), { className: "" })));
  const widestCells = makeCells("presentation");
  const above = div("dml-b-space");
  const below = div("dml-b-space");
  const grid = make(
    "div",
    { className: "dml-b-grid", role: "grid", tabIndex: 0, id, "aria-label": "Interactions", "aria-multiselectable": "true" },
    make("div", { className: "dml-b-row dml-b-head", role: "row" }, ...heads),
    make("div", { className: "dml-b-row dml-b-sizes", "aria-hidden": "true" }, ...widestCells),
    above,
    below,
  );
  const frames = scheduler(draw);
  grid.addEventListener("scroll", frames.schedule);
  const resized = new ResizeObserver(frames.schedule);
  resized.observe(grid);

  const textOf = (column: number, number: number | undefined) =>
    number ? COLUMNS[column].text(rows[number - 1], spansDays) : "";

  function makeRow() {
    const cells = makeCells("gridcell");
    const path = make("span");
    const pathEnd = make("span", { className: "dml-c-end" });
    cells[PATH].append(path, pathEnd);
    const bar = cells[TIMELINE].appendChild(make("div"));
    const root = make("div", { className: "dml-b-row", role: "row" }, ...cells);
    const node = { root, cells, bar, path, pathEnd, number: 0 };
    root.addEventListener("click", ({ ctrlKey, metaKey }) => {
      select(node.number);
      if (ctrlKey || metaKey) onCompare();
      else onOpen();
    });
    return node;
  }

  function showRow(node: ReturnType<typeof makeRow>, position: number) {
    const { root, cells, bar, path, pathEnd } = node;
    const number = (node.number = shown[position]);
    const row = rows[number - 1];
    root.id = `${id}-${number}`;
    root.dataset.mark = row.mark;
    root.setAttribute("aria-rowindex", String(position + 2));
    root.setAttribute("aria-selected", String(number === selected || number === compared));
    cells.forEach((cell, i) => i !== PATH && i !== TIMELINE && setText(cell, textOf(i, number)));
    const wholePath = textOf(PATH, number);
    const end = wholePath.length > LONG_PATH ? wholePath.length - PATH_END : wholePath.length;
    setText(path, wholePath.slice(0, end));
    setText(pathEnd, wholePath.slice(end));
    cells[PATH].title = row.path;
    const status = row.status ?? (row.mark === "failed" ? "no response," : "");
    cells[STATUS].ariaLabel = row.mark === "aborted" ? "aborted" : `${status} ${row.mark}${row.replayed ? " replayed" : ""}`.trim();
    const scale = 100 / Math.max(until - since, 1);
    bar.hidden = row.time === null;
    bar.style.left = `${scale * ((row.time ?? 0) - (row.ms ?? 0) - since)}%`;
    bar.style.width = `${scale * (row.ms ?? 0)}%`;
  }

  /* A column is as wide as its widest cell. The path gets the remaining width, up to its own. Columns without
   * values are left out once there are rows. Some columns are left out if the list is narrow. */
  function layOut() {
    const has = COLUMNS.map(({ room, name }, i) =>
      (widest[i] !== undefined || (!rows.length && name !== "timeline")) && grid.clientWidth >= room);
    const rest = has[TIMELINE] ? "max-content" : "1fr";
    const tracks: Record<string, string> = { path: `minmax(8em, ${rest})`, timeline: "minmax(60px, 1fr)" };
    const template = NAMES.filter((_, i) => has[i]).map((name) => tracks[name] ?? "max-content").join(" ");
    if (grid.style.gridTemplateColumns !== template) grid.style.gridTemplateColumns = template;
    widestCells.forEach((cell, i) => i !== TIMELINE && setText(cell, textOf(i, widest[i])));
    for (const cells of [heads, widestCells, ...nodes.map((node) => node.cells)]) {
      cells.forEach((cell, i) => (cell.hidden = !has[i]));
    }
  }

  function draw() {
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(shown.length, first + Math.ceil(grid.clientHeight / ROW_PX) + 2 * SPARE_ROWS);
    above.style.height = `${Math.min(first, last) * ROW_PX}px`;
    below.style.height = `${(shown.length - last) * ROW_PX}px`;
    while (nodes.length < last - first) {
      nodes.push(makeRow());
      below.before(nodes.at(-1)!.root);
    }
    nodes.forEach((node, i) => {
      node.root.hidden = first + i >= last;
      if (node.root.hidden) node.root.id = "";
      else showRow(node, first + i);
    });
    layOut();
    const isDrawn = nodes.some(({ root, number }) => !root.hidden && number === selected);
    grid.setAttribute("aria-activedescendant", isDrawn ? `${id}-${selected}` : "");
  }

  /** Filter and sort the rows, and draw them. */
  function arrange() {
    shown = rows.map((_, i) => i + 1).filter((number) => passes(rows[number - 1]));
    if (sorted || descending) {
      const keys = rows.map((row, i) => COLUMNS[sorted].key(row, i + 1));
      const sign = descending ? -1 : 1;
      const compare = (a: string | number | null, b: string | number | null) =>
        a === b ? 0 : a === null ? 1 : b === null ? -1 : sign * (a < b ? -1 : 1);
      shown.sort((a, b) => compare(keys[a - 1], keys[b - 1]) || a - b);
    }
    heads.forEach((head, i) => {
      head.ariaSort = i !== sorted ? null : descending ? "descending" : "ascending";
    });
    grid.setAttribute("aria-rowcount", String(shown.length + 1));
    draw();
  }

  function sortBy(column: number) {
    descending = column === sorted && !descending;
    sorted = column;
    arrange();
  }

  function add(added: Row[]) {
    const follows = rows.length > 0 && grid.scrollTop + grid.clientHeight >= grid.scrollHeight - ROW_PX;
    for (const row of added) {
      const number = rows.push(row);
      NAMES.forEach((_, i) => {
        const least = widest[i] === undefined ? 0 : textOf(i, widest[i]).length;
        if (textOf(i, number).length > least) widest[i] = number;
      });
      if (row.time === null) continue;
      since = Math.min(since, row.time - (row.ms ?? 0));
      until = Math.max(until, row.time);
    }
    spansDays = Math.floor(since / 864e5) !== Math.floor(until / 864e5);
    const seconds = (until - since) / 1000;
    setText(heads[TIMELINE].firstChild!, seconds > 0 ? `Timeline, ${seconds < 60 ? seconds.toPrecision(3) : formatCount(Math.round(seconds))} s` : "Timeline");
    arrange();
    if (follows) grid.scrollTop = grid.scrollHeight;
  }

  function clear() {
    rows.length = widest.length = shown.length = 0;
    selected = null;
    before = null;
    compared = null;
    since = Infinity;
    until = -Infinity;
    draw();
  }

  function select(number: number) {
    const top = shown.indexOf(number) * ROW_PX;
    const room = grid.clientHeight - 2 * ROW_PX;
    const isNew = number !== selected;
    if (isNew) [selected, before, compared] = [number, selected, null];
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top > grid.scrollTop + room) grid.scrollTop = top - room;
    draw();
    if (isNew) onSelect(number);
  }

  /** Move the selection by a key, and return whether the key does so. */
  function move(key: string): boolean {
    const page = Math.max(1, Math.floor(grid.clientHeight / ROW_PX) - 2);
    const steps: Record<string, number> = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
    if (!(key in steps)) return false;
    const last = shown.length - 1;
    const at = selected === null ? -1 : shown.indexOf(selected);
    if (last >= 0) select(shown[Math.min(last, Math.max(0, at + steps[key]))]);
    return true;
  }

  /** Mark the row that was selected before the selected one, and return its number. */
  function compare(): number | null {
    compared = before;
    draw();
    return compared;
  }

  const destroy = () => {
    frames.cancel();
    resized.disconnect();
  };
  return {
    grid, rows, add, arrange, clear, draw, select, move, compare, destroy,
    selected: () => selected,
    markedCount: (mark: string) => rows.filter((row) => isMarked(row, mark)).length,
    shownCount: () => shown.length,
  };
}
