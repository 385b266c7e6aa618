/* Helpers that make the nodes of every page. They set values as text, never as HTML. */

export type Child = Node | string;

let pages = 0;

/** Return an id prefix that is unique in the document, even if a page is shown twice. */
export function newId(): string {
  pages += 1;
  return `dml-${Date.now().toString(36)}-${pages}`;
}

export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  props: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in node) (node as unknown as Record<string, unknown>)[name] = value;
    else node.setAttribute(name, String(value));
  }
  node.append(...children);
  return node;
}

/** Return the element that has the focus, even if the page is in a shadow root, as in marimo. */
export const activeElement = (node: Node) => (node.getRootNode() as Document | ShadowRoot).activeElement;

export const div = (className: string, ...children: Child[]) => make("div", { className }, ...children);

export const soft = (textContent: string) => make("p", { className: "dml-soft", textContent });

export function makeButton(text: string, onClick: (event: MouseEvent) => unknown, props: Record<string, unknown> = {}) {
  const button = make("button", { type: "button", className: "dml-secondary", textContent: text, ...props });
  button.addEventListener("click", onClick);
  return button;
}

export function makeSelect(ariaLabel: string, options: Record<string, string>) {
  const nodes = Object.entries(options).map(([value, text]) => make("option", { value }, text));
  return make("select", { ariaLabel }, ...nodes);
}

export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

const { format } = new Intl.NumberFormat("en");
export const formatCount = (number: number | null) => (number === null ? "" : format(number));
export const plural = (count: number, noun: string) => `${format(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Return a function that calls `draw` once in the next frame, however often it is called. */
export function scheduler(draw: () => void) {
  let frame = 0;
  const schedule = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
  return { schedule, cancel: () => cancelAnimationFrame(frame) };
}

/** Keep keys that are pressed inside a node from JupyterLab's shortcuts. JupyterLab looks for shortcuts
 * from the focused node upward, before our listeners run, and stops at a node with this attribute. */
export function keepKeys(root: HTMLElement): void {
  root.addEventListener("focusin", ({ target }) => (target as Element).setAttribute("data-lm-suppress-shortcuts", "true"));
  for (const kind of ["keydown", "keyup", "keypress", "paste", "copy", "cut"]) {
    root.addEventListener(kind, (event) => event.stopPropagation());
  }
}
