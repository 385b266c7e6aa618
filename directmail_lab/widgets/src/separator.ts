/* A border that is dragged, or moved by arrow keys. The places of all borders are kept while the page is open. */

import { make } from "./dom";

const STEP = 3; // percent
const places: Record<string, number> = ((globalThis as Record<string, any>)["directmail-lab-borders"] ??= {});

export interface SeparatorOptions {
  /** The CSS variable, set on `root`, that has the percentage. */
  name: string;
  label: string;
  root: HTMLElement;
  /** What the percentage is of. */
  whole: HTMLElement;
  /** Whether it lies between two parts that are side by side. */
  isVertical: () => boolean;
  initial: number;
}

export function createSeparator({ name, label, root, whole, isVertical, initial }: SeparatorOptions) {
  const node = make("div", { className: "dml-b-border", role: "separator", tabIndex: 0, ariaLabel: label });
  const move = (percent: number) => {
    const place = Math.round(Math.min(85, Math.max(15, percent)) * 10) / 10;
    places[name] = place;
    root.style.setProperty(name, `${place}%`);
    node.setAttribute("aria-valuenow", String(Math.round(place)));
    node.setAttribute("aria-orientation", isVertical() ? "vertical" : "horizontal");
  };
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    event.preventDefault();
    node.focus();
  });
  node.addEventListener("pointermove", (event) => {
    if (!node.hasPointerCapture(event.pointerId)) return;
    const { left, top, width, height } = whole.getBoundingClientRect();
    move(isVertical() ? (100 * (event.clientX - left)) / width : (100 * (event.clientY - top)) / height);
  });
  node.addEventListener("keydown", (event) => {
    const keys: Record<string, number> = isVertical() ? { ArrowLeft: -STEP, ArrowRight: STEP } : { ArrowUp: -STEP, ArrowDown: STEP };
    if (!(event.key in keys)) return;
    move(places[name] + keys[event.key]);
    event.preventDefault();
    event.stopPropagation();
  });
  move(places[name] ?? initial);
  return node;
}
