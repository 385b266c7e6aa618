/* What the widgets have in common, after dom.js and before the script of each.
 *
 * Whatever a page shows comes in messages from the kernel.
 * No trait of the model is used but anywidget's own, so nothing of it is in a saved notebook.
 */

const KERNEL_PATIENCE_MS = 1500;

const now = () => performance.now() / 1000;

/* How many seconds are left until each of some moments, shown twice a second until all are over. */
function countDown(view, show) {
  clearTimeout(view.ticking);
  if (show((at) => Math.max(0, Math.ceil((at ?? 0) - now())))) {
    view.ticking = setTimeout(() => countDown(view, show), 500);
  }
}

/* The kernel: greeted now and after each reconnection. Silence is told: it may have been restarted. */
function connect(model, { onGreet, onMessage, onSilence }) {
  let waiting;
  const send = (message, buffers) => {
    clearTimeout(waiting);
    waiting = setTimeout(onSilence, KERNEL_PATIENCE_MS);
    try {
      model.send(message, undefined, buffers);
    } catch {
      onSilence(); // the connection is closed
    }
  };
  const hear = (message, buffers) => {
    clearTimeout(waiting);
    onMessage(message, buffers);
  };
  const greet = () => {
    onGreet();
    send({ type: "hello" });
  };
  model.on("msg:custom", hear);
  model.on("comm_live_update", greet);
  const close = () => {
    clearTimeout(waiting);
    model.off("msg:custom", hear);
    model.off("comm_live_update", greet);
  };
  return { send, greet, close };
}
