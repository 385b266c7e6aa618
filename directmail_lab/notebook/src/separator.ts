/* A border that can be dragged, or moved with arrow keys. It keeps its place while the page is open. */

import { make } from "./dom";

const STEP = 3; // percent
const places: Record<string, number> = ((globalThis as Record<string, any>)["directmail-lab-borders"] ??= {});

export interface SeparatorOptions {
  /** The CSS variable for the percentage, set on `root`. `-x` or `-y` is added for the direction of the move. */
  name: string;
  label: string;
  root: HTMLElement;
  /** The element that is 100%. */
  whole: HTMLElement;
  /** Whether the border is between two parts that are side by side. */
  isVertical: () => boolean;
}

export function createSeparator({ name, label, root, whole, isVertical }: SeparatorOptions) {
  const node = make("div", { className: "dml-b-border", role: "separator", tabIndex: 0, ariaLabel: label });
  const percentOf = (x: number, y: number) => {
    const { left, top, width, height } = whole.getBoundingClientRect();
    return isVertical() ? (100 * (x - left)) / width : (100 * (y - top)) / height;
  };
  const place = () => {
    const { left, top } = node.getBoundingClientRect();
    return percentOf(left, top);
  };
  const tell = () => {
    if (!node.offsetWidth) return; // it is hidden
    node.setAttribute("aria-valuenow", String(Math.round(place())));
    node.setAttribute("aria-orientation", isVertical() ? "vertical" : "horizontal");
  };
  const move = (percent: number) => {
    const variable = `${name}-${isVertical() ? "x" : "y"}`;
    places[variable] = Math.round(Math.min(85, Math.max(15, percent)) * 10) / 10;
    root.style.setProperty(variable, `${places[variable]}%`);
    tell();
  };
  node.addEventListener("focus", tell);
  new ResizeObserver(tell).observe(node); // when it is first shown, too
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    event.preventDefault();
    node.focus();
  });
  node.addEventListener("pointermove", (event) => {
    if (node.hasPointerCapture(event.pointerId)) move(percentOf(event.clientX, event.clientY));
  });
  node.addEventListener("keydown", (event) => {
    const keys: Record<string, number> = isVertical() ? { ArrowLeft: -STEP, ArrowRight: STEP } : { ArrowUp: -STEP, ArrowDown: STEP };
    if (!(event.key in keys)) return;
    move(place() + keys[event.key]);
    event.preventDefault();
    event.stopPropagation();
  });
  for (const variable of [`${name}-x`, `${name}-y`]) {
    if (variable in places) root.style.setProperty(variable, `${places[variable]}%`);
  }
  return node;
}
