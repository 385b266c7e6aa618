/* Tabs and the panels that they show. The Left and Right keys move between tabs. */

import { div, make, newId, setText } from "./dom";

export interface Tab {
  name: string;
  label: string;
  panel: HTMLElement;
  /** Called when the panel is shown. */
  onShow?: () => unknown;
  /** Buttons that are shown with this panel only. */
  tools?: HTMLElement[];
}

export function createTabs(label: string, tabs: Tab[], ...tools: HTMLElement[]) {
  const id = newId();
  let current = tabs[0].name;
  const buttons = tabs.map(({ name, label: text, panel }) => {
    const button = make("button", { type: "button", role: "tab", className: "dml-b-tab", textContent: text, id: `${id}-${name}` });
    panel.id = `${id}-${name}-panel`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", button.id);
    button.setAttribute("aria-controls", panel.id);
    button.addEventListener("click", () => show(name));
    return button;
  });
  const list = make("div", { role: "tablist", ariaLabel: label }, ...buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const visible = tabs.filter((_, i) => !buttons[i].hidden);
    const at = visible.findIndex(({ name }) => name === current);
    show(visible[(at + step + visible.length) % visible.length].name);
    buttons[tabs.findIndex(({ name }) => name === current)].focus();
    event.preventDefault();
    event.stopPropagation();
  });
  const own = tabs.map((tab) => div("dml-b-tools", ...(tab.tools ?? [])));
  const bar = div("dml-b-tabs", list, div("dml-b-tools", ...tools, ...own));

  function show(name: string) {
    current = name;
    tabs.forEach((tab, i) => {
      const isShown = tab.name === name;
      buttons[i].setAttribute("aria-selected", String(isShown));
      buttons[i].tabIndex = isShown ? 0 : -1;
      tab.panel.hidden = own[i].hidden = !isShown;
    });
    tabs.find((tab) => tab.name === name)!.onShow?.();
  }
  const indexOf = (name: string) => tabs.findIndex((tab) => tab.name === name);
  return {
    bar,
    show,
    current: () => current,
    label: (name: string, text: string) => setText(buttons[indexOf(name)], text),
    hide: (name: string, isHidden: boolean) => (buttons[indexOf(name)].hidden = isHidden),
    isHidden: (name: string) => buttons[indexOf(name)].hidden,
    focus: () => buttons[indexOf(current)].focus(),
  };
}
