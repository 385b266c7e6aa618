/* What every page of ours makes its nodes with. A value is put in as text: never as HTML. */

function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function plural(count, one) {
  return `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;
}

/* Keys that are pressed inside a node are its own. JupyterLab looks for a shortcut from the focused
 * node upward, before any of ours is called, and stops at the first that has this attribute. */
function keepKeys(root) {
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  for (const kind of ["keydown", "keyup", "keypress", "paste", "copy", "cut"]) {
    root.addEventListener(kind, (event) => event.stopPropagation());
  }
}
