/* The browser of interactions, in a notebook: what it asks goes to the kernel. */

let views = 0;

function render({ model, el }) {
  views += 1;
  const uid = `${Date.now().toString(36)}-${views}`;
  const waiting = new Map(); // another view of this widget hears the same messages
  let onChange = () => {};
  let asked = 0;
  const ask = (question) =>
    new Promise((resolve) => {
      asked += 1;
      const turn = `${uid}-${asked}`;
      waiting.set(turn, resolve);
      kernel.send({ type: "ask" }, [new TextEncoder().encode(JSON.stringify({ ...question, turn })).buffer]);
    });
  const kernel = connect(model, {
    onGreet: () => {},
    onMessage: (message, buffers) => {
      setText(silence, "");
      if (message.type === "changed") onChange(message);
      const bodies = (buffers ?? []).map((part) => new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
      waiting.get(message.turn)?.({ ...message.answer, buffers: bodies });
      waiting.delete(message.turn);
    },
    onSilence: () => setText(silence, "No kernel answers. It is busy, or this cell has to be run again."),
  });
  const source = sourceOf(ask, (callback) => {
    onChange = callback;
    return () => {};
  });
  const silence = make("div", { className: "dml dml-soft", role: "status" });
  const root = make("div", { className: "dml-hides-next" });
  el.append(root, silence);
  const browser = createBrowser(root, source);
  kernel.greet();
  return () => {
    kernel.close();
    browser.destroy();
  };
}

export default { render };
