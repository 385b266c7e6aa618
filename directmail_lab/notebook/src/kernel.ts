/* The connection of a widget's page to the kernel.
 *
 * Everything that a page shows comes in messages from the kernel. The model has only anywidget's own
 * traits, so a saved notebook contains nothing that was shown.
 */

export type Message = any; // our own Python module sends it, in the same version

export interface Model {
  send(message: unknown, callbacks?: unknown, buffers?: ArrayBuffer[]): void;
  on(event: string, callback: (...args: any[]) => void): void;
  off(event: string, callback: (...args: any[]) => void): void;
}

export interface Context {
  model: Model;
  el: HTMLElement;
}

const PATIENCE_MS = 1500;

export const SILENT_KERNEL = "The kernel does not respond. If it is busy, wait. If it was restarted, run this cell again.";

const encode = (text: string) => new TextEncoder().encode(text).buffer as ArrayBuffer;

/** Connect to the kernel. `greet` asks it for what to show; a reconnection asks again. Texts and bytes are
 * sent as binary buffers, so that no log contains them. `onSilence` is called if no message comes back in time. */
export function connect(
  model: Model,
  on: { onGreet?: () => void; onMessage: (message: Message, buffers?: DataView[]) => void; onSilence: () => void },
) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const send = (message: object, parts: (string | ArrayBuffer)[] = []) => {
    timer ??= setTimeout(on.onSilence, PATIENCE_MS);
    try {
      model.send(message, undefined, parts.map((part) => (typeof part === "string" ? encode(part) : part)));
    } catch {
      on.onSilence(); // the connection is closed
    }
  };
  const receive = (message: Message, buffers?: DataView[]) => {
    clearTimeout(timer);
    timer = undefined;
    on.onMessage(message, buffers);
  };
  const greet = () => {
    on.onGreet?.();
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
