/* The editor of bodies: CodeMirror 6, in a separate bundle that a page loads when it first shows a body. */

import { defaultKeymap, history, historyKeymap, isolateHistory } from "@codemirror/commands";
import { json, jsonParseLinter } from "@codemirror/lang-json";
import {
  bracketMatching,
  codeFolding,
  ensureSyntaxTree,
  foldAll,
  foldGutter,
  foldKeymap,
  syntaxHighlighting,
  syntaxTree,
  unfoldAll,
} from "@codemirror/language";
import { linter, lintGutter } from "@codemirror/lint";
import { highlightSelectionMatches, openSearchPanel, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import type { Editor, EditorOptions, Language, Place } from "./editor";

type SyntaxNode = ReturnType<ReturnType<typeof syntaxTree>["resolveInner"]>;

const PATIENCE_MS = 200;
const LONGEST_WRAPPED = 5000; // wrapping a line of a megabyte is slow
const VALUES = new Set(["Object", "Array", "String", "Number", "True", "False", "Null"]);
const NAME = /^[A-Za-z_]\w*$/;

const THEME = EditorView.theme({
  "&": { backgroundColor: "transparent", color: "inherit" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--jp-code-font-family, monospace)", fontSize: "var(--jp-code-font-size, 13px)" },
  ".cm-gutters": { backgroundColor: "var(--dml-paper)", border: "0", color: "var(--dml-soft)" },
  ".cm-content": { caretColor: "var(--dml-ink)" },
  ".cm-cursor": { borderLeftColor: "var(--dml-ink)" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "var(--dml-row)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--dml-selection)",
  },
  ".cm-selectionMatch, .cm-searchMatch, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--dml-found)" },
  ".cm-searchMatch-selected": { outline: "2px solid var(--dml-accent)" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--dml-row)", border: "0", color: "var(--dml-soft)", padding: "0 4px" },
  ".cm-panels, .cm-tooltip": { backgroundColor: "var(--dml-paper)", borderColor: "var(--dml-edge)", color: "inherit" },
  ".cm-panel .cm-button": { backgroundImage: "none", borderColor: "var(--dml-line)" },
  ".cm-panel .cm-textfield": { backgroundColor: "transparent", borderColor: "var(--dml-soft)" },
});

/** Return where the text is not valid JSON; an empty one is no error yet. */
const findErrors = (view: EditorView) => (view.state.doc.toString().trim() ? jsonParseLinter()(view) : []);

const members = (node: SyntaxNode): SyntaxNode[] => {
  const found = [];
  for (let each = node.firstChild; each; each = each.nextSibling) {
    if (each.name === "Property" || VALUES.has(each.name)) found.push(each);
  }
  return found;
};

/** Return the path of a position in JSON, such as `data[3].id`, and the value there. */
function placeAt(state: EditorState, position: number): Place | null {
  const tree = ensureSyntaxTree(state, Math.min(state.doc.length, position + 1), PATIENCE_MS) ?? syntaxTree(state);
  // At the end of a line, take the value before the cursor.
  const line = state.doc.lineAt(position);
  const before = line.text.slice(0, position - line.from).replace(/[\s,]+$/, "");
  const isEnd = before && /^[\s,]*$/.test(line.text.slice(position - line.from));
  let node: SyntaxNode | null = isEnd ? tree.resolveInner(line.from + before.length, -1) : tree.resolveInner(position, 1);
  if (node.name === "PropertyName" || node.name === "Property") node = (node.name === "Property" ? node : node.parent!).lastChild;
  while (node && !VALUES.has(node.name)) node = node.parent;
  if (!node) return null;
  const { from, to } = node;
  const steps: string[] = [];
  for (let each = node; each.parent; each = each.parent) {
    const { parent } = each;
    if (parent.name === "Array") steps.unshift(`[${members(parent).findIndex((member) => member.from === each.from)}]`);
    if (parent.name !== "Property") continue;
    const source = state.sliceDoc(parent.firstChild!.from, parent.firstChild!.to);
    const name = String(JSON.parse(source));
    steps.unshift(NAME.test(name) ? `.${name}` : `[${source}]`);
  }
  const text = () => {
    const source = state.sliceDoc(from, to);
    return source[0] === '"' ? String(JSON.parse(source)) : source;
  };
  return { path: steps.join("").replace(/^\./, ""), text };
}

function languageOf(language: Language, readOnly: boolean): Extension {
  if (language !== "json") return [];
  return [json(), readOnly ? [] : [linter(findErrors, { delay: 300 }), lintGutter()]];
}

const folding = codeFolding({
  preparePlaceholder: (state, { from }) => members(syntaxTree(state).resolveInner(from, -1).parent!).length,
  placeholderDOM: (_, onclick, count) => {
    const node = document.createElement("span");
    node.className = "cm-foldPlaceholder";
    node.textContent = count ? `… ${count}` : "…";
    node.ariaLabel = "folded";
    node.onclick = onclick;
    return node;
  },
});

const wrapping = (text: string): Extension =>
  text.split("\n").some((line) => line.length > LONGEST_WRAPPED) ? [] : EditorView.lineWrapping;

export function createEditor({ parent, label, readOnly = false, onChange, onPlace }: EditorOptions): Editor {
  const [variable, editing] = [new Compartment(), new Compartment()];
  let [ending, isFilling] = ["\n", false];
  const extensions = [
    lineNumbers(),
    foldGutter(),
    folding,
    highlightSpecialChars(),
    drawSelection(),
    bracketMatching(),
    highlightActiveLine(),
    highlightSelectionMatches(),
    search({ top: true, literal: true }),
    syntaxHighlighting(classHighlighter),
    // Escape closes only the search; the page does not handle the key then.
    keymap.of([...searchKeymap, ...historyKeymap, ...foldKeymap, ...defaultKeymap.filter(({ key }) => key !== "Mod-Enter")]),
    // Keys reach any editable text, but axe-core 4.12 sees that only by its tabindex.
    EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label, "aria-readonly": String(readOnly) }),
    EditorState.readOnly.of(readOnly),
    THEME,
    EditorView.updateListener.of(({ docChanged, selectionSet, view }) => {
      if (docChanged && !isFilling) onChange?.();
      if (docChanged || selectionSet) onPlace?.(placeOf(view));
    }),
  ];
  let language: Language = "text";
  const placeOf = ({ state }: EditorView) => (language === "json" ? placeAt(state, state.selection.main.head) : null);
  const stateOf = (text: string) => {
    const options = [languageOf(language, readOnly), wrapping(text)];
    return EditorState.create({ doc: text, extensions: [extensions, variable.of(options), editing.of(readOnly ? [] : history())] });
  };
  const view = new EditorView({ parent, state: stateOf("") });
  return {
    text: () => view.state.doc.toString().replaceAll("\n", ending),
    fill: (text, as) => {
      language = as;
      ending = text.includes("\r\n") ? "\r\n" : "\n";
      isFilling = true;
      view.setState(stateOf(text));
      view.scrollDOM.scrollTop = 0; // the new text may be measured before the effect below counts
      view.dispatch({ effects: EditorView.scrollIntoView(0) });
      isFilling = false;
      onPlace?.(null);
    },
    replace: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, annotations: isolateHistory.of("full") }),
    setLanguage: (as) => {
      language = as;
      view.dispatch({ effects: variable.reconfigure([languageOf(as, readOnly), wrapping(view.state.doc.toString())]) });
    },
    focus: () => view.focus(),
    find: () => openSearchPanel(view),
    fold: () => foldAll(view),
    unfold: () => unfoldAll(view),
    destroy: () => view.destroy(),
  };
}
