/* The place of a body: a plain text box at once, and CodeMirror in it as soon as that is loaded. */

import { activeElement, make } from "./dom";

export type Language = "json" | "text";

/** Where the cursor is in JSON, as `data[3].id`, and the text of the value there. */
export interface Place {
  path: string;
  text: () => string;
}

export interface EditorOptions {
  parent: HTMLElement;
  label: string;
  readOnly?: boolean;
  onChange?: () => void;
  onPlace?: (place: Place | null) => void;
}

export interface Editor {
  text(): string;
  /** Show another text; what was done to the last one cannot be undone. */
  fill(text: string, language: Language): void;
  /** Change the text, which can be undone. */
  replace(text: string): void;
  setLanguage(language: Language): void;
  focus(): void;
  find(): void;
  fold(): void;
  unfold(): void;
  destroy(): void;
}

export interface EditorModule {
  createEditor(options: EditorOptions): Editor;
}

/** Load the module of this address, which is made when it is first needed in this page. */
export type LoadEditor = () => Promise<string>;

const MOST_PLAIN = 50_000;
declare const EDITOR: string; // build.mjs sets what names the bundle's content
const loaded: Record<string, Promise<EditorModule> | undefined> = ((globalThis as Record<string, any>)["directmail-lab"] ??= {});

export function createEditor(options: EditorOptions, load: LoadEditor): Editor {
  const plain = createPlain(options);
  let [editor, text, language]: [Editor, string, Language] = [plain, "", "text"];
  let [isDestroyed, isLoading] = [false, false];
  const upgrade = async () => {
    isLoading = true;
    const module = await (loaded[EDITOR] ??= load().then((address) => import(address)));
    if (isDestroyed) return;
    const hasFocus = options.parent.contains(activeElement(options.parent));
    const typed = plain.text();
    plain.destroy();
    editor = module.createEditor(options);
    editor.fill(text, language);
    if (typed !== text && !options.readOnly) editor.replace(typed);
    if (hasFocus) editor.focus();
  };
  return {
    text: () => editor.text(),
    fill: (...shown) => {
      [text, language] = shown;
      // A text box takes seconds for megabytes: until the editor is there, it shows their start.
      editor.fill(editor === plain && options.readOnly ? text.slice(0, MOST_PLAIN) : text, language);
      if (isLoading) return;
      upgrade().catch(() => {
        loaded[EDITOR] = undefined; // the text box stays, and is good enough
        isLoading = false;
        editor.fill(text, language);
      });
    },
    replace: (changed) => editor.replace(changed),
    setLanguage: (as) => editor.setLanguage((language = as)),
    focus: () => editor.focus(),
    find: () => editor.find(),
    fold: () => editor.fold(),
    unfold: () => editor.unfold(),
    destroy: () => {
      isDestroyed = true;
      editor.destroy();
    },
  };
}

function createPlain({ parent, label, readOnly = false, onChange }: EditorOptions): Editor {
  const box = make("textarea", { ariaLabel: label, className: "dml-b-plain", readOnly, spellcheck: false });
  box.addEventListener("input", () => onChange?.());
  parent.append(box);
  let ending = "\n";
  const nothing = () => undefined;
  return {
    text: () => box.value.replaceAll("\n", ending),
    fill: (text) => {
      ending = text.includes("\r\n") ? "\r\n" : "\n";
      box.value = text;
    },
    replace: (text) => {
      box.value = text;
      onChange?.();
    },
    setLanguage: nothing,
    focus: () => box.focus(),
    find: nothing,
    fold: nothing,
    unfold: nothing,
    destroy: () => box.remove(),
  };
}
