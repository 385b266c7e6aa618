/* What all widgets share, after dom.js and before the script of each.
 *
 * Everything that a page shows comes in messages from the kernel. No trait of the model is used but
 * anywidget's own, so a saved notebook contains nothing of it.
 */

const KERNEL_PATIENCE_MS = 1500;

/* The connection to the kernel, which is greeted now and after each reconnection. Texts and bytes are sent as
 * binary buffers, which no log writes out. `onSilence` is called if no message comes back in time. */
function connect(model, { onGreet, onMessage, onSilence }) {
  let timer;
  const encode = (text) => new TextEncoder().encode(text).buffer;
  const send = (message, texts = []) => {
    clearTimeout(timer);
    timer = setTimeout(onSilence, KERNEL_PATIENCE_MS);
    try {
      model.send(message, undefined, texts.map((text) => (typeof text === "string" ? encode(text) : text)));
    } catch {
      onSilence(); // the connection is closed
    }
  };
  const receive = (message, buffers) => {
    clearTimeout(timer);
    onMessage(message, buffers);
  };
  const greet = () => {
    onGreet?.();
    send({ type: "hello" });
  };
  model.on("msg:custom", receive);
  model.on("comm_live_update", greet);
  const close = () => {
    clearTimeout(timer);
    model.off("msg:custom", receive);
    model.off("comm_live_update", greet);
  };
  return { send, greet, close };
}
