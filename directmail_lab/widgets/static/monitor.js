/* The live monitor: a row for each operation, its course drawn on a canvas.
 *
 * The kernel sends a whole picture, at most ten times a second and of bounded size; a row is made
 * once and then only changed, and a canvas is drawn at most once a frame.
 */

const SILENT_KERNEL = "No kernel answers. The picture below is the last one.";
const LOW = 0.2;

function makeRow() {
  const part = (tag, className, ...children) => make(tag, { className }, ...children);
  const name = part("div", "dml-name");
  const left = part("div", "dml-left");
  const fill = part("div");
  const renews = part("span", "dml-renews");
  const marks = part("span", "dml-marks");
  const canvas = make("canvas", { className: "dml-course", role: "img" });
  const words = part("div", "dml-words");
  words.append(
    part("div", "dml-spread", name, left),
    part("div", "dml-bar", fill),
    part("div", "dml-spread dml-soft", marks, renews),
  );
  const root = make("div", { className: "dml-row", role: "listitem" }, words, canvas);
  return { root, name, left, fill, renews, marks, canvas, operation: null, renewsAt: null };
}

function makeFrame() {
  const source = make("span", { className: "dml-source dml-soft" });
  const count = make("span", { className: "dml-count dml-soft" });
  const stop = make("button", { className: "dml-secondary", type: "button", textContent: "Stop" });
  stop.title = "Stop following; a picture stays in the notebook";
  const top = make("div", { className: "dml-top" });
  top.append(
    make("span", { className: "dml-live", "aria-hidden": "true" }),
    make("div", { className: "dml-title", textContent: "Rate limits" }),
    source,
    count,
    stop,
  );
  const rows = make("div", { role: "list", "aria-label": "Rate limits by operation" });
  const foot = make("div", { className: "dml-foot dml-soft", role: "status" });
  const root = make("section", { className: "dml dml-box dml-monitor" }, top, rows, foot);
  return { root, source, count, stop, rows, foot };
}

/* A row's words. */
function levelOf({ limit, remaining }) {
  if (remaining === null || limit === null) return "unknown";
  if (remaining <= 0) return "none";
  return remaining < LOW * limit ? "low" : "fine";
}

function marksOf(operation) {
  const marks = [plural(operation.responses, "response")];
  if (operation.exhausted) marks.push(`× ${operation.exhausted} exhausted`);
  if (operation.failed) marks.push(`▲ ${operation.failed} failed`);
  if (operation.others) marks.push(`${operation.others} used by others`);
  if (operation.faulty) marks.push(`${operation.faulty} with faulty headers`);
  return marks.join(" · ");
}

function showRow(row, operation) {
  const { name, limit, remaining, renews_in_s: renewsIn } = operation;
  const known = remaining !== null && limit !== null;
  const share = known && limit > 0 ? Math.min(1, remaining / limit) : 0;
  row.operation = operation;
  row.renewsAt = renewsIn === null ? null : now() + renewsIn;
  row.root.dataset.level = levelOf(operation);
  row.fill.style.width = `${100 * share}%`;
  setText(row.name, name);
  setText(row.left, known ? `${remaining} of ${limit} left` : "allowance not told");
  setText(row.marks, marksOf(operation));
  row.canvas.setAttribute("aria-label", `${name}: ${row.left.textContent}, ${marksOf(operation)}`);
}

function showCountdowns(view) {
  countDown(view, (secondsUntil) => {
    let waits = false;
    for (const row of view.rowsByName.values()) {
      const seconds = secondsUntil(row.renewsAt);
      setText(row.renews, seconds > 0 ? `renews in ${seconds} s` : "");
      waits ||= seconds > 0;
    }
    return waits;
  });
}

/* A row's course: what remained, response by response, below the limit. */
function fit(canvas) {
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  // Setting a canvas's size also clears it.
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return { pen, width, height };
}

/* A canvas knows no variables: the style of the node that it is resolves them. */
function colorsOf(node) {
  return (name) => {
    node.style.color = `var(--dml-${name})`;
    return getComputedStyle(node).color;
  };
}

function place(operation, width, height) {
  const { bins, limit } = operation;
  const most = Math.max(limit ?? 0, ...bins.map(([, high]) => high ?? 0), 1);
  const step = (width - 12) / Math.max(bins.length - 1, 1);
  return {
    x: (i) => (bins.length === 1 ? width / 2 : 6 + i * step),
    y: (value) => 5 + (1 - value / most) * (height - 22),
    markY: height - 7,
  };
}

function drawLimit(pen, limit, { y }, width, color) {
  if (limit === null) return;
  pen.strokeStyle = color;
  pen.setLineDash([4, 4]);
  pen.beginPath();
  for (const value of [0, limit]) {
    pen.moveTo(0, y(value));
    pen.lineTo(width, y(value));
  }
  pen.stroke();
  pen.setLineDash([]);
}

function drawCourse(pen, bins, { x, y }, color) {
  pen.strokeStyle = color;
  pen.fillStyle = color;
  pen.lineWidth = 1.6;
  pen.lineJoin = "round";
  pen.beginPath();
  let down = false;
  bins.forEach(([low, high, last], i) => {
    if (low !== null) {
      // A bin that ends high saw the allowance renew: its low came first.
      const rises = high - last < last - low;
      pen[down ? "lineTo" : "moveTo"](x(i), y(rises ? low : high));
      if (low !== high) pen.lineTo(x(i), y(rises ? high : low));
    }
    down = low !== null;
  });
  pen.stroke();
  const last = bins.findLastIndex(([low]) => low !== null);
  if (last < 0) return;
  pen.beginPath();
  pen.arc(x(last), y(bins[last][2]), 2.6, 0, 2 * Math.PI);
  pen.fill();
}

function drawMarks(pen, bins, { x, markY }, bad, warn) {
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.font = "bold 13px system-ui, sans-serif";
  bins.forEach(([, , , exhausted, failed], i) => {
    pen.fillStyle = exhausted ? bad : warn;
    if (exhausted) pen.fillText("×", x(i), markY);
    else if (failed) pen.fillText("▲", x(i), markY);
  });
}

function drawRow({ canvas, operation }) {
  if (!operation || !canvas.clientWidth) return;
  const { pen, width, height } = fit(canvas);
  const colorOf = colorsOf(canvas);
  const where = place(operation, width, height);
  drawLimit(pen, operation.limit, where, width, colorOf("line"));
  drawCourse(pen, operation.bins, where, colorOf("accent"));
  drawMarks(pen, operation.bins, where, colorOf("bad"), colorOf("warn"));
}

function drawSoon(view) {
  view.drawing ||= requestAnimationFrame(() => {
    view.drawing = 0;
    for (const row of view.rowsByName.values()) drawRow(row);
  });
}

/* The whole. */
function showPicture(view, picture) {
  const { frame, rowsByName } = view;
  frame.root.classList.add("dml-hides-next");
  frame.root.classList.toggle("dml-is-live", picture.live);
  frame.stop.hidden = !picture.live;
  setText(frame.source, picture.source);
  setText(frame.count, plural(picture.responses, "response"));
  const names = new Set(picture.operations.map(({ name }) => name));
  for (const [name, row] of rowsByName) {
    if (!names.has(name)) removeRow(view, name, row);
  }
  for (const operation of picture.operations) {
    if (!rowsByName.has(operation.name)) addRow(view, operation.name);
    showRow(rowsByName.get(operation.name), operation);
  }
  setText(frame.foot, footOf(picture));
  showCountdowns(view);
  drawSoon(view);
}

function footOf({ advice, more, operations }) {
  if (advice) return advice;
  if (!operations.length) return "No responses yet. Make a request, such as me().";
  return more ? `and ${plural(more, "operation")} not shown` : "";
}

function addRow(view, name) {
  const row = makeRow();
  view.rowsByName.set(name, row);
  view.frame.rows.append(row.root);
  view.resized.observe(row.canvas);
}

function removeRow(view, name, row) {
  row.root.remove();
  view.resized.unobserve(row.canvas);
  view.rowsByName.delete(name);
}

function render({ model, el }) {
  const view = { frame: makeFrame(), rowsByName: new Map(), drawing: 0 };
  const { root, stop, foot } = view.frame;
  view.resized = new ResizeObserver(() => drawSoon(view));
  const kernel = connect(model, {
    onGreet: () => {
      root.classList.remove("dml-hides-next", "dml-is-live");
      stop.hidden = true;
    },
    onMessage: (message) => showPicture(view, message),
    onSilence: () => setText(foot, SILENT_KERNEL),
  });
  stop.addEventListener("click", () => {
    stop.hidden = true;
    setText(foot, "Stopping…");
    model.send({ type: "stop" });
  });
  el.append(root);
  kernel.greet();
  return () => {
    kernel.close();
    clearTimeout(view.ticking);
    cancelAnimationFrame(view.drawing);
    view.resized.disconnect();
  };
}

export default { render };
