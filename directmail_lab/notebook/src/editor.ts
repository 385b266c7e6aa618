/* The editor of a body: a plain text box at first, then CodeMirror once it is loaded. */

import { activeElement, make } from "./dom";

export type Language = "json" | "text";

/** The path of the cursor in JSON, such as `data[3].id`, and the text of the value there. */
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
  /** Show another text. Changes to the previous text can no longer be undone. */
  fill(text: string, language: Language): void;
  /** Replace the text. This can be undone. */
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

/** Return the address of the CodeMirror module. A page loads it once, when it is first needed. */
export type LoadEditor = () => Promise<string>;

const MOST_PLAIN = 50_000;
declare const EDITOR: string; // a hash of the bundle, set by build.mjs
const loaded: Record<string, Promise<EditorModule> | undefined> = ((globalThis as Record<string, any>)["directmail-lab"] ??= {});

export function createEditor(options: EditorOptions, load: LoadEditor): Editor {
  const plain = createPlain(options);
  let editor: Editor = plain;
  let text = "";
  let language: Language = "text";
  let isDestroyed = false;
  let isLoading = false;
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
      // A text box takes seconds for megabytes, so it shows only the start until CodeMirror is loaded.
      editor.fill(editor === plain && options.readOnly ? text.slice(0, MOST_PLAIN) : text, language);
      if (isLoading) return;
      upgrade().catch(() => {
        loaded[EDITOR] = undefined; // without CodeMirror, the text box stays
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

const nothing = () => undefined;

function createPlain({ parent, label, readOnly = false, onChange }: EditorOptions): Editor {
  const box = make("textarea", { ariaLabel: label, className: "dml-b-plain", readOnly, spellcheck: false });
  box.addEventListener("input", () => onChange?.());
  parent.append(box);
  let ending = "\n";
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
