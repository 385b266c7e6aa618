/* The live monitor: a row for each operation, and a canvas that shows its last responses.
 *
 * The kernel sends a complete snapshot of bounded size, at most ten times a second. A row is created once
 * and then updated. A canvas is drawn at most once a frame.
 */

import { div, make, makeButton, plural, scheduler, setText } from "./dom";
import { connect, type Context, type Message } from "./kernel";

type Point = [remaining: number | null, mark: "" | "refused" | "failed"];

interface Operation {
  name: string;
  limit: number | null;
  remaining: number | null;
  renews_in_s: number | null;
  age_s: number | null;
  responses: number;
  refused: number;
  failed: number;
  points: Point[];
}

type Row = ReturnType<typeof makeRow> & { operation?: Operation; renewsAt?: number | null; readAt?: number | null };

interface View {
  page: ReturnType<typeof makePage>;
  rows: Map<string, Row>;
  resized: ResizeObserver;
  frames: ReturnType<typeof scheduler>;
  waitsUntil: number | null;
  countdown?: ReturnType<typeof setTimeout>;
}

const LOW = 0.2;

const now = () => performance.now() / 1000;
const secondsUntil = (moment: number | null | undefined) => Math.max(0, Math.ceil((moment ?? 0) - now()));

function makeRow() {
  const name = div("dml-name");
  const left = div("dml-left");
  const fill = div("");
  const renews = div("dml-renews");
  const marks = div("dml-marks");
  const canvas = make("canvas", { className: "dml-history", role: "img" });
  const texts = div("dml-texts", div("dml-spread", name, left), div("dml-bar", fill), div("dml-spread dml-soft", marks, renews));
  const root = make("div", { className: "dml-row", role: "listitem" }, texts, canvas);
  return { root, name, left, fill, renews, marks, canvas };
}

function makePage(onStop: () => void) {
  const source = div("dml-soft");
  const count = div("dml-count dml-soft");
  const stop = makeButton("Stop", onStop, { title: "Stop updating. A picture stays in the notebook." });
  const light = make("span", { className: "dml-live", "aria-hidden": "true" });
  const top = div("dml-top", light, make("div", { className: "dml-title", textContent: "Rate limits" }), source, count, stop);
  const rows = make("div", { role: "list", "aria-label": "Rate limits by operation" });
  const wait = make("div", { className: "dml-wait", role: "timer" });
  const foot = make("div", { className: "dml-foot dml-soft", role: "status" });
  const root = make("section", { className: "dml dml-box dml-monitor" }, top, wait, rows, foot);
  return { root, source, count, stop, wait, rows, foot };
}

/* The texts of a row. */
function levelOf({ limit, remaining }: Operation) {
  if (remaining === null || limit === null || remaining >= LOW * limit) return "";
  return remaining <= 0 ? "none" : "low";
}

function describeMarks({ responses, refused, failed }: Operation) {
  const marks = [plural(responses, "response")];
  if (refused) marks.push(`× ${refused} refused`);
  if (failed) marks.push(`▲ ${failed} failed`);
  return marks.join(" · ");
}

function showRow(row: Row, operation: Operation) {
  const { name, limit, remaining, renews_in_s: renewsIn, age_s: age } = operation;
  row.operation = operation;
  row.renewsAt = renewsIn === null ? null : now() + renewsIn;
  row.readAt = age === null ? null : now() - age;
  row.fill.style.width = `${limit ? Math.min(100, (100 * (remaining ?? 0)) / limit) : 0}%`;
  setText(row.name, name);
  setText(row.marks, describeMarks(operation));
  showLeft(row);
  row.canvas.setAttribute("aria-label", `${name}: ${row.left.textContent}, ${row.marks.textContent}`);
}

/* Show what is left, or was left in a window that has ended, and return whether this changes with time. */
function showLeft({ operation, renewsAt, readAt, root, left, renews }: Row): boolean {
  const { limit, remaining } = operation!;
  const seconds = secondsUntil(renewsAt);
  const hasEnded = renewsAt !== null && !seconds;
  const age = readAt == null ? 0 : Math.floor(now() - readAt);
  const ago = age < 100 ? `${age} s ago` : `${Math.floor(age / 60)} min ago`;
  root.dataset.level = hasEnded ? "ended" : levelOf(operation!);
  setText(left, remaining === null || limit === null ? "allowance unknown" : `${remaining} of ${limit} ${hasEnded ? "were left" : "left"}`);
  setText(renews, hasEnded ? "the window has ended" : seconds ? `renews in ${seconds} s` : age ? ago : "");
  return !hasEnded && (seconds > 0 || readAt !== null);
}

function countDown(view: View) {
  clearTimeout(view.countdown);
  const wait = secondsUntil(view.waitsUntil);
  const changes = [...view.rows.values()].map(showLeft).some(Boolean);
  setText(view.page.wait, view.waitsUntil === null ? "" : `A request waits: ${wait} s until the allowance renews`);
  if (wait || changes) view.countdown = setTimeout(() => countDown(view), 500);
}

/* The canvas of a row: a line of what remained after each response, and the limit as a dashed line. */
function drawRow({ canvas, operation }: Row) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!operation || !width) return;
  const pixels = window.devicePixelRatio || 1;
  // Setting a canvas's size also clears it.
  canvas.width = Math.round(width * pixels);
  canvas.height = Math.round(height * pixels);
  const context = canvas.getContext("2d")!;
  context.scale(pixels, pixels);
  const { points, limit } = operation;
  const highest = Math.max(limit ?? 0, ...points.map(([remaining]) => remaining ?? 0), 1);
  const step = (width - 12) / Math.max(points.length - 1, 1);
  const x = (i: number) => (points.length === 1 ? width / 2 : 6 + i * step);
  const y = (value: number) => 5 + (1 - value / highest) * (height - 22);
  // A canvas cannot read CSS variables, so its style resolves them.
  const color = (name: string) => {
    canvas.style.color = `var(--dml-${name})`;
    return getComputedStyle(canvas).color;
  };
  if (limit !== null) drawLimit(context, y(limit), width, color("line"));
  drawLine(context, points, x, y, color("accent"));
  drawMarks(context, points, x, height - 7, { refused: ["×", color("bad")], failed: ["▲", color("warn")] });
}

function drawLimit(context: CanvasRenderingContext2D, height: number, width: number, color: string) {
  context.strokeStyle = color;
  context.setLineDash([4, 4]);
  context.stroke(new Path2D(`M0 ${height}H${width}`));
  context.setLineDash([]);
}

type Place = (value: number) => number;

function drawLine(context: CanvasRenderingContext2D, points: Point[], x: Place, y: Place, color: string) {
  Object.assign(context, { strokeStyle: color, fillStyle: color, lineWidth: 1.6, lineJoin: "round" });
  context.beginPath();
  points.forEach(([remaining], i) => {
    const isFirst = (points[i - 1]?.[0] ?? null) === null;
    if (remaining !== null) context[isFirst ? "moveTo" : "lineTo"](x(i), y(remaining));
  });
  context.stroke();
  const last = points.findLastIndex(([remaining]) => remaining !== null);
  if (last < 0) return;
  context.beginPath();
  context.arc(x(last), y(points[last][0] ?? 0), 2.6, 0, 2 * Math.PI);
  context.fill();
}

function drawMarks(context: CanvasRenderingContext2D, points: Point[], x: Place, y: number, symbols: Record<"refused" | "failed", [string, string]>) {
  Object.assign(context, { textAlign: "center", textBaseline: "middle", font: "bold 13px system-ui, sans-serif" });
  let nextX = 0; // marks do not overlap
  points.forEach(([, mark], i) => {
    if (!mark || x(i) < nextX) return;
    const [symbol, color] = symbols[mark];
    context.fillStyle = color;
    context.fillText(symbol, x(i), y);
    nextX = x(i) + 7;
  });
}

/* The whole page. */
function show(view: View, snapshot: Message) {
  const { page, rows } = view;
  const { live, source, note, waits_s: waits, responses, operations } = snapshot;
  page.root.classList.add("dml-hides-next");
  page.root.classList.toggle("dml-is-live", live);
  page.stop.hidden = !live;
  setText(page.source, source);
  setText(page.count, plural(responses, "response"));
  setText(page.foot, note || (operations.length ? "" : "No responses yet. Make a request, such as dm.me()."));
  const names = new Set<string>(operations.map(({ name }: Operation) => name));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    row.root.remove();
    view.resized.unobserve(row.canvas);
    rows.delete(name);
  }
  for (const operation of operations as Operation[]) {
    showRow(rows.get(operation.name) ?? addRow(view, operation.name), operation);
  }
  view.waitsUntil = waits === null ? null : now() + waits;
  countDown(view);
  view.frames.schedule();
}

function addRow(view: View, name: string): Row {
  const row: Row = makeRow();
  view.rows.set(name, row);
  view.page.rows.append(row.root);
  view.resized.observe(row.canvas);
  return row;
}

function render({ model, el }: Context) {
  const view = { rows: new Map(), waitsUntil: null } as unknown as View;
  view.page = makePage(() => {
    stop.hidden = true;
    setText(foot, "Stopping…");
    kernel.send({ type: "stop" });
  });
  const { root, stop, foot } = view.page;
  view.frames = scheduler(() => view.rows.forEach((row) => drawRow(row)));
  view.resized = new ResizeObserver(view.frames.schedule);
  const kernel = connect(model, {
    onGreet: () => {
      root.classList.remove("dml-hides-next", "dml-is-live");
      stop.hidden = true;
    },
    onMessage: (message) => show(view, message),
    onSilence: (reason) => setText(foot, reason),
  });
  el.append(root);
  kernel.greet();
  return () => {
    kernel.close();
    clearTimeout(view.countdown);
    view.frames.cancel();
    view.resized.disconnect();
  };
}

export default { render };
