/* The live monitor: a row for each operation, its course drawn on a canvas.
 *
 * The kernel sends a whole picture, at most ten times a second and of bounded size; a row is made
 * once and then only changed, and a canvas is drawn at most once a frame. Nothing is kept in traits.
 */

const SILENT_KERNEL = "No kernel answers. The picture below is the last one.";
const PATIENCE_MS = 1500;
const LOW = 0.2;

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...children);
  return node;
}

function makeRow() {
  const name = make("div", "dmm-name");
  const left = make("div", "dmm-left");
  const fill = make("div", "dmm-fill");
  const bar = make("div", "dmm-bar", fill);
  const renews = make("span", "dmm-renews");
  const marks = make("span", "dmm-marks");
  const facts = make("div", "dmm-facts", marks, renews);
  const canvas = make("canvas", "dmm-course");
  canvas.setAttribute("role", "img");
  const root = make(
    "div",
    "dmm-row",
    make("div", "dmm-words", make("div", "dmm-head", name, left), bar, facts),
    canvas,
  );
  root.setAttribute("role", "listitem");
  return { root, name, left, fill, bar, renews, marks, canvas, track: null, renewsAt: null };
}

function makeFrame() {
  const title = make("div", "dmm-title");
  const source = make("span", "dmm-source");
  const count = make("span", "dmm-count");
  const stop = make("button", "dmm-stop");
  const live = make("span", "dmm-live");
  live.setAttribute("aria-hidden", "true");
  title.textContent = "Rate limits";
  stop.type = "button";
  stop.textContent = "Stop";
  stop.title = "Stop following; a picture stays in the notebook";
  const top = make("div", "dmm-top", live, title, source, count, stop);
  const rows = make("div", "dmm-rows");
  rows.setAttribute("role", "list");
  rows.setAttribute("aria-label", "Rate limits by operation");
  const foot = make("div", "dmm-foot");
  foot.setAttribute("role", "status");
  return { root: make("section", "dmm", top, rows, foot), source, count, stop, rows, foot };
}

const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/* A row's words. */
function levelOf({ limit, remaining }) {
  if (remaining === null || limit === null) return "unknown";
  if (remaining <= 0) return "none";
  return remaining < LOW * limit ? "low" : "fine";
}

function marksOf(track) {
  const marks = [plural(track.responses, "response")];
  if (track.exhausted) marks.push(`× ${track.exhausted} exhausted`);
  if (track.failed) marks.push(`▲ ${track.failed} failed`);
  if (track.unsound) marks.push(`${plural(track.unsound, "unsound header set")}`);
  return marks.join(" · ");
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function showRow(row, track) {
  row.track = track;
  row.renewsAt = track.renews_in_s === null ? null : performance.now() / 1000 + track.renews_in_s;
  const known = track.remaining !== null && track.limit !== null;
  const share = known && track.limit > 0 ? Math.min(1, track.remaining / track.limit) : 0;
  row.root.dataset.level = levelOf(track);
  setText(row.name, track.name);
  setText(row.left, known ? `${track.remaining} of ${track.limit} left` : "allowance not told");
  row.fill.style.width = `${100 * share}%`;
  setText(row.marks, marksOf(track));
  row.canvas.setAttribute("aria-label", `${track.name}: ${row.left.textContent}, ${marksOf(track)}`);
}

function countDown(view) {
  clearTimeout(view.ticking);
  let waits = false;
  for (const row of view.rowsByName.values()) {
    const seconds = row.renewsAt === null ? 0 : Math.ceil(row.renewsAt - performance.now() / 1000);
    setText(row.renews, seconds > 0 ? `renews in ${seconds} s` : "");
    waits ||= seconds > 0;
  }
  if (waits) view.ticking = setTimeout(() => countDown(view), 500);
}

/* A row's course: what remained, response by response, below the limit. */
function fit(canvas) {
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

function colors(node) {
  const style = getComputedStyle(node);
  const of = (name) => style.getPropertyValue(`--dmm-${name}`).trim();
  return { line: of("line"), accent: of("accent"), bad: of("bad"), warn: of("warn") };
}

function place(track, width, height) {
  const bins = track.bins;
  const most = Math.max(track.limit ?? 0, ...bins.map(([, high]) => high ?? 0), 1);
  const step = (width - 12) / Math.max(bins.length - 1, 1);
  return {
    x: (i) => (bins.length === 1 ? width / 2 : 6 + i * step),
    y: (value) => 5 + (1 - value / most) * (height - 22),
    markY: height - 7,
  };
}

function drawLimit(pen, track, { y }, width, color) {
  if (track.limit === null) return;
  pen.save();
  pen.strokeStyle = color;
  pen.setLineDash([4, 4]);
  pen.beginPath();
  pen.moveTo(0, y(track.limit));
  pen.lineTo(width, y(track.limit));
  pen.moveTo(0, y(0));
  pen.lineTo(width, y(0));
  pen.stroke();
  pen.restore();
}

function drawCourse(pen, bins, { x, y }, color) {
  pen.strokeStyle = color;
  pen.fillStyle = color;
  pen.lineWidth = 1.6;
  pen.lineJoin = "round";
  pen.beginPath();
  let down = false;
  bins.forEach(([low, high, last], i) => {
    if (low === null) {
      down = false;
      return;
    }
    // A bin that ends high saw the allowance renew: its low came first.
    const rises = high - last < last - low;
    pen[down ? "lineTo" : "moveTo"](x(i), y(rises ? low : high));
    if (low !== high) pen.lineTo(x(i), y(rises ? high : low));
    down = true;
  });
  pen.stroke();
  const last = bins.findLastIndex(([low]) => low !== null);
  if (last < 0) return;
  pen.beginPath();
  pen.arc(x(last), y(bins[last][2]), 2.6, 0, 2 * Math.PI);
  pen.fill();
}

function drawMarks(pen, bins, { x, markY }, { bad, warn }) {
  bins.forEach(([, , , exhausted, failed], i) => {
    if (exhausted) {
      pen.strokeStyle = bad;
      pen.lineWidth = 1.8;
      pen.beginPath();
      pen.moveTo(x(i) - 3, markY - 3);
      pen.lineTo(x(i) + 3, markY + 3);
      pen.moveTo(x(i) + 3, markY - 3);
      pen.lineTo(x(i) - 3, markY + 3);
      pen.stroke();
    }
    if (failed) {
      pen.fillStyle = warn;
      pen.beginPath();
      pen.moveTo(x(i), markY - 4);
      pen.lineTo(x(i) + 4, markY + 3);
      pen.lineTo(x(i) - 4, markY + 3);
      pen.fill();
    }
  });
}

function drawRow({ canvas, track }) {
  if (!track || !canvas.clientWidth) return;
  const { pen, width, height } = fit(canvas);
  const paint = colors(canvas);
  const where = place(track, width, height);
  drawLimit(pen, track, where, width, paint.line);
  drawCourse(pen, track.bins, where, paint.accent);
  drawMarks(pen, track.bins, where, paint);
}

function drawSoon(view) {
  if (view.drawing) return;
  view.drawing = requestAnimationFrame(() => {
    view.drawing = 0;
    for (const row of view.rowsByName.values()) drawRow(row);
  });
}

/* The whole. */
function showPicture(view, picture) {
  const { frame, rowsByName } = view;
  clearTimeout(view.waiting);
  frame.root.classList.add("dmm-is-live");
  frame.stop.disabled = false;
  setText(frame.source, picture.source);
  setText(frame.count, plural(picture.responses, "response"));
  const names = new Set(picture.tracks.map(({ name }) => name));
  for (const [name, row] of rowsByName) {
    if (names.has(name)) continue;
    row.root.remove();
    view.resized.unobserve(row.canvas);
    rowsByName.delete(name);
  }
  for (const track of picture.tracks) {
    if (!rowsByName.has(track.name)) addRow(view, track.name);
    showRow(rowsByName.get(track.name), track);
  }
  const more = picture.more ? `and ${plural(picture.more, "operation")} not shown` : "";
  setText(frame.foot, picture.tracks.length ? more : "No responses yet. Make a request, such as me().");
  countDown(view);
  drawSoon(view);
}

function addRow(view, name) {
  const row = makeRow();
  view.rowsByName.set(name, row);
  view.frame.rows.append(row.root);
  view.resized.observe(row.canvas);
}

function greet(view) {
  view.frame.root.classList.remove("dmm-is-live");
  view.frame.stop.disabled = true;
  clearTimeout(view.waiting);
  view.waiting = setTimeout(() => setText(view.frame.foot, SILENT_KERNEL), PATIENCE_MS);
  try {
    view.model.send({ type: "hello" });
  } catch {
    setText(view.frame.foot, SILENT_KERNEL);
  }
}

function render({ model, el }) {
  const view = { model, frame: makeFrame(), rowsByName: new Map(), drawing: 0 };
  view.resized = new ResizeObserver(() => drawSoon(view));
  el.append(view.frame.root);
  const onMessage = (message) => {
    if (message.type !== "picture") return;
    showPicture(view, message);
  };
  const onLive = () => greet(view);
  model.on("msg:custom", onMessage);
  model.on("comm_live_update", onLive);
  view.frame.stop.addEventListener("click", () => model.send({ type: "stop" }));
  greet(view);
  return () => {
    clearTimeout(view.ticking);
    clearTimeout(view.waiting);
    cancelAnimationFrame(view.drawing);
    view.resized.disconnect();
    model.off("msg:custom", onMessage);
    model.off("comm_live_update", onLive);
  };
}

export default { render };
