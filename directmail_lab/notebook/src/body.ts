/* Shows the body of a request or response: JSON and text in an editor, a picture, or a note. */

import { div, make, makeButton, plural, setText, soft } from "./dom";
import { createEditor, type LoadEditor, type Place } from "./editor";
import { layOutJson } from "./json";
import type { Body } from "./protocol";

const NOT_TEXT = "This body is not text. Save it to open it elsewhere.";
/* What another program shows better. The page never does: it could fetch from a network. */
const FILES: Record<string, string> = { "application/pdf": "a PDF file", "text/html": "a web page" };
const NOTHING_SHOWN: Record<string, string> = { none: "No body.", absent: "This body was not kept.", binary: NOT_TEXT };

export interface BodyOptions {
  label: string;
  loadEditor: LoadEditor;
  /** Called to load the whole of a large body. */
  onWhole: () => void;
  onSave: () => void;
  onCopy: (text: string) => void;
}

export function createBody({ label, loadEditor, onWhole, onSave, onCopy }: BodyOptions) {
  const said = div("dml-b-said");
  const picture = div("dml-b-picture");
  const box = div("dml-b-editor");
  const path = make("code", {});
  let place: Place | null = null;
  const copyingValue = makeButton("Copy value", () => place && onCopy(place.text()));
  const copyingPath = makeButton("Copy path", () => place && onCopy(place.path));
  const strip = make("div", { className: "dml-b-place", hidden: true }, path, copyingValue, copyingPath);
  const onPlace = (found: Place | null) => {
    place = found;
    strip.hidden = !found?.path;
    setText(path, found?.path ?? "");
  };
  const editor = createEditor({ parent: box, label, readOnly: true, onPlace }, loadEditor);
  let url = "";

  const finding = makeButton("Find", () => editor.find(), { title: "Find in the body (Ctrl+F)" });
  const folding = makeButton("Fold", () => editor.fold(), { title: "Fold all" });
  const unfolding = makeButton("Expand", () => editor.unfold(), { title: "Expand all" });
  const copying = makeButton("Copy", () => onCopy(editor.text()), { title: "Copy the body as it is shown" });
  const saving = makeButton("Save", onSave, { title: "Save the body as a file", ariaLabel: "Save body" });
  const tools = [finding, folding, unfolding, copying, saving];
  const root = div("dml-b-body", said, picture, box, strip);

  function show({ kind, media_type: mediaType, size, truncated }: Body, bytes: Uint8Array<ArrayBuffer> | undefined) {
    clear();
    const isText = kind === "json" || kind === "text";
    const isJson = kind === "json";
    for (const tool of [folding, unfolding]) tool.hidden = !isJson;
    box.hidden = !isText;
    finding.hidden = copying.hidden = !isText;
    const isFile = mediaType in FILES && size > 0;
    saving.hidden = kind === "none" || kind === "absent" || isFile;
    if (isFile) {
      const opening = makeButton("Save as a file", onSave);
      said.append(soft(`This is ${FILES[mediaType]}. To see it, save it and open the file.`), opening);
    } else if (kind in NOTHING_SHOWN) said.append(soft(NOTHING_SHOWN[kind]));
    if (kind === "image") picture.append(makePicture(bytes!, mediaType));
    if (truncated) {
      const whole = makeButton("Show all", onWhole, { ariaLabel: `Show all of the ${label.toLowerCase()}` });
      said.append(soft(`Only the start of ${plural(size, "byte")} is shown.`), whole);
    }
    if (!isText) return;
    const text = new TextDecoder().decode(bytes);
    editor.fill(isJson ? layOutJson(text, { readable: true }) : text, isJson ? "json" : "text");
  }

  function makePicture(bytes: Uint8Array<ArrayBuffer>, mediaType: string) {
    url = URL.createObjectURL(new Blob([bytes], { type: mediaType }));
    const image = make("img", { alt: `The body, ${mediaType}`, src: url });
    image.addEventListener("error", () => image.replaceWith(soft(NOT_TEXT)));
    return image;
  }

  function clear() {
    URL.revokeObjectURL(url);
    said.replaceChildren();
    picture.replaceChildren();
    box.hidden = true;
    onPlace(null);
    for (const tool of tools) tool.hidden = true;
  }

  const destroy = () => {
    clear();
    editor.destroy();
  };
  return { root, tools, show, clear, destroy };
}
