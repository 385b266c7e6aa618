/* Pairs of a name and a value. Each can be switched off. The last pair is always empty. */

import { div, make } from "./dom";
import type { Pair } from "./protocol";

export function createPairs(noun: string, onChange: () => void, names = "") {
  const pairs: { on: HTMLInputElement; name: HTMLInputElement; value: HTMLInputElement }[] = [];
  const box = div("dml-e-pairs");
  const add = ([name, value]: [string?, string?] = []) => {
    const label = `${noun} ${pairs.length + 1}`;
    const text = (part: string, filled = "") =>
      make("input", { ariaLabel: `${label} ${part}`, placeholder: part, value: filled, spellcheck: false, autocomplete: "off" });
    const pair = {
      on: make("input", { type: "checkbox", checked: true, ariaLabel: `Send ${label.toLowerCase()}` }),
      name: text("name", name),
      value: text("value", value),
    };
    if (names) pair.name.setAttribute("list", names);
    pairs.push(pair);
    box.append(pair.on, pair.name, pair.value);
  };
  box.addEventListener("input", ({ target }) => {
    if (target === pairs.at(-1)!.name) add();
    onChange();
  });
  const read = (): Pair[] => pairs.filter(({ on, name }) => on.checked && name.value).map(({ name, value }) => [name.value, value.value]);
  const fill = (values: Iterable<Pair>) => {
    box.replaceChildren();
    pairs.length = 0;
    for (const pair of values) add(pair);
    add();
  };
  fill([]);
  return { root: make("div", { role: "group", ariaLabel: `${noun}s` }, box), read, fill };
}
