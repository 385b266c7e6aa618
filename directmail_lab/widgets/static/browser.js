/* The browser of interactions, in a notebook: its requests go to the kernel. */

function render({ model, el }) {
  const id = newId(); // another view of this widget gets the same messages
  const pending = new Map();
  const silence = make("div", { className: "dml dml-soft", role: "status" });
  const root = div("dml-hides-next");
  let requests = 0;
  let listener;
  const kernel = connect(model, {
    onMessage: (message, buffers) => {
      setText(silence, "");
      if (["changed", "reading"].includes(message.type)) listener(message);
      const bodies = buffers?.map((part) => new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
      pending.get(message.request_id)?.({ ...message.response, buffers: bodies });
      pending.delete(message.request_id);
    },
    onSilence: () => setText(silence, "The kernel does not respond. It is busy, or this cell has to be run again."),
  });
  const send = (request, ...bodies) =>
    new Promise((resolve) => {
      requests += 1;
      const request_id = `${id}-${requests}`;
      pending.set(request_id, resolve);
      kernel.send({ type: "request" }, [JSON.stringify({ ...request, request_id }), ...bodies]);
    });
  el.append(root, silence);
  const onChange = (callback) => (listener = callback);
  const onSelect = (number) => send({ action: "select", number });
  const browser = createBrowser(root, { send, onChange, onSelect, makeForm });
  kernel.greet();
  return () => {
    kernel.close();
    browser.destroy();
  };
}

export default { render };
