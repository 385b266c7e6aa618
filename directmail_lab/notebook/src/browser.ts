/* The browser of interactions in a notebook: it sends requests to the kernel. The viewer uses `createBrowser`. */

import { div, newId } from "./dom";
import { connect, type Context } from "./kernel";
import { type Change, createBrowser } from "./panel";
import type { Response, Send } from "./protocol";

export { createBrowser };

function render({ model, el }: Context, draft: object) {
  const id = newId(); // other views of this widget get the same messages
  const pending = new Map<string, (response: Response) => void>();
  const root = div("dml-hides-next");
  let requests = 0;
  let listener: (change: Change) => void;
  const kernel = connect(model, {
    onMessage: (message, buffers) => {
      listener(message.type === "changed" ? message : { silence: "" });
      const bodies = buffers?.map((part) => new Uint8Array(part.buffer as ArrayBuffer, part.byteOffset, part.byteLength));
      pending.get(message.request_id)?.({ ...message.response, buffers: bodies });
      pending.delete(message.request_id);
    },
    onSilence: (silence) => listener({ silence }),
  });
  const send: Send = (request, body) =>
    new Promise((resolve) => {
      requests += 1;
      const request_id = `${id}-${requests}`;
      pending.set(request_id, resolve);
      kernel.send({ type: "request" }, [JSON.stringify({ ...request, request_id }), ...(body ? [body] : [])]);
    });
  const loadEditor = async () => {
    const { buffers } = await send({ action: "editor" });
    return URL.createObjectURL(new Blob(buffers, { type: "text/javascript" }));
  };
  el.append(root);
  const browser = createBrowser(root, {
    send,
    loadEditor,
    draft,
    onChange: (callback) => (listener = callback),
    onSelect: (number) => send({ action: "select", number }),
  });
  kernel.greet();
  return () => {
    kernel.close();
    browser.destroy();
  };
}

/** Called once for each widget. A cell that is moved shows its widget anew, with what was typed in its form. */
export default () => {
  const draft = {};
  return { render: (context: Context) => render(context, draft) };
};
