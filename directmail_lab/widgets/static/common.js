/* Helpers that make the nodes of all pages. Values are set as text, never as HTML. */

let pages = 0;

/* An id prefix that is unique in the document, however often a page is shown. */
function newId() {
  pages += 1;
  return `dml-${Date.now().toString(36)}-${pages}`;
}

function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const div = (className, ...children) => make("div", { className }, ...children);

function makeButton(text, onClick, props = {}) {
  const button = make("button", { type: "button", className: "dml-secondary", textContent: text, ...props });
  button.addEventListener("click", onClick);
  return button;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/* Call a function once in the next frame, however often it is scheduled. */
function schedule(view, draw) {
  view.frame ||= requestAnimationFrame(() => {
    view.frame = 0;
    draw(view);
  });
}

/* Keep JupyterLab's shortcuts from keys pressed inside a node. It looks for shortcuts from the focused
 * node upward, before any listener of ours runs, and stops at a node with this attribute. */
function keepKeys(root) {
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  for (const kind of ["keydown", "keyup", "keypress", "paste", "copy", "cut"]) {
    root.addEventListener(kind, (event) => event.stopPropagation());
  }
}
