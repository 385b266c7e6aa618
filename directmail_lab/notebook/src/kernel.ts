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
  widget_manager?: { kernel?: { status: string } };
}

export interface Context {
  model: Model;
  el: HTMLElement;
}

const PATIENCE_MS = 1500;

export const BUSY = "A cell is running. This goes on when it ends.";
/* By the kernel's status, which other programs than JupyterLab do not tell. */
const REASONS: Record<string, string> = {
  busy: BUSY,
  dead: "The kernel has stopped. Restart it, and run this cell again.",
  idle: "The kernel was restarted. Run this cell again.",
};

const encode = (text: string) => new TextEncoder().encode(text).buffer as ArrayBuffer;

/** Connect to the kernel. `greet` asks it for what to show; a reconnection asks again. Texts and bytes are
 * sent as binary buffers, so that no log contains them. `onSilence` is told why, as long as no message comes back. */
export function connect(
  model: Model,
  on: { onGreet?: () => void; onMessage: (message: Message, buffers?: DataView[]) => void; onSilence: (reason: string) => void },
) {
  let timer: ReturnType<typeof setInterval> | undefined;
  const tell = () => on.onSilence(REASONS[model.widget_manager?.kernel?.status ?? ""] ?? "The kernel is busy or has stopped. Wait, or run this cell again.");
  const send = (message: object, parts: (string | ArrayBuffer)[] = []) => {
    timer ??= setInterval(tell, PATIENCE_MS);
    try {
      model.send(message, undefined, parts.map((part) => (typeof part === "string" ? encode(part) : part)));
    } catch {
      tell(); // the connection is closed
    }
  };
  const receive = (message: Message, buffers?: DataView[]) => {
    clearInterval(timer);
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
    clearInterval(timer);
    model.off("msg:custom", receive);
    model.off("comm_live_update", greet);
  };
  return { send, greet, close };
}
