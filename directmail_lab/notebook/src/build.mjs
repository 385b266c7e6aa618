// Bundles the front end into ../static, which is committed: `npm ci && npm run build`.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { build } from "esbuild";

const options = {
  bundle: true,
  charset: "utf8",
  format: "esm",
  legalComments: "none",
  minify: true,
  outdir: "../static",
  target: "es2022",
};

const licence = await readFile("node_modules/@codemirror/state/LICENSE", "utf8");
await build({ ...options, entryPoints: ["codemirror.ts"], banner: { js: `/*! CodeMirror and Lezer\n\n${licence}*/` } });
// A page may show widgets of two versions of this package. Each loads the editor that it was built with.
const editor = createHash("sha256").update(await readFile("../static/codemirror.js")).digest("hex").slice(0, 12);
const entryPoints = ["browser", "login", "monitor"].flatMap((name) => [`${name}.ts`, `${name}.css`]);
await build({ ...options, entryPoints, define: { EDITOR: JSON.stringify(editor) } });
