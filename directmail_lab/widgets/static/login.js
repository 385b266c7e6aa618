/* The sign-in form.
 *
 * No trait of the model is used but anywidget's own, so nothing of it is in a saved notebook. All
 * that the form shows comes in messages from the kernel; what is typed goes there as binary
 * buffers, which no log of messages writes out. Without a kernel the form says to run the cell.
 */

const MODES = {
  live: { label: "Live", about: "Requests go to the service." },
  record: {
    label: "Record",
    about: "Requests go to the service and are kept in a cassette, without the key.",
  },
  replay: { label: "Replay", about: "Answers come from a cassette: no key, no network." },
};
const OTHER = "";
const SILENT_KERNEL =
  "No kernel answers: it is busy, or was restarted. Run this cell again to sign in.";
const PATIENCE_MS = 1500;

let views = 0;

function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function makeField(uid, name, label, control, ...others) {
  control.id = `${uid}-${name}`;
  const hint = make("div", { className: "dml-hint", id: `${uid}-${name}-hint` });
  control.setAttribute("aria-describedby", hint.id);
  const caption = make("label", { htmlFor: control.id, textContent: label });
  const row = make("div", { className: "dml-field" }, caption, control, ...others, hint);
  return { row, control, hint };
}

function makeModes(uid) {
  const radios = {};
  const about = make("div", { className: "dml-hint", id: `${uid}-about` });
  const strip = make("div", { className: "dml-modes" });
  for (const [mode, { label }] of Object.entries(MODES)) {
    const radio = make("input", { type: "radio", name: `${uid}-mode`, value: mode });
    radio.id = `${uid}-${mode}`;
    radio.setAttribute("aria-describedby", about.id);
    strip.append(radio, make("label", { htmlFor: radio.id, textContent: label }));
    radios[mode] = radio;
  }
  const legend = make("legend", { textContent: "What answers requests" });
  const row = make("fieldset", { className: "dml-mode" }, legend, strip, about);
  return { row, radios, about };
}

function makeText(props) {
  return make("input", { autocomplete: "off", spellcheck: false, ...props });
}

function makeForm(uid) {
  const title = make("div", { className: "dml-title", id: `${uid}-title`, role: "heading" });
  title.setAttribute("aria-level", "2");
  title.textContent = "Sign in to the direct mail service";
  const modes = makeModes(uid);
  const typed = makeText({ type: "text", inputMode: "url", placeholder: "https://…" });
  typed.id = `${uid}-typed`;
  typed.setAttribute("aria-label", "Another service address");
  const region = makeField(uid, "region", "Service address", make("select"));
  const address = makeField(uid, "address", "Service address", typed);
  const key = makeField(uid, "key", "API key", makeText({ type: "password" }));
  const recording = makeField(uid, "recording", "Cassette", makeText({ type: "text" }));
  recording.hint.textContent = "A name of your choice. One that exists is added to.";
  const played = makeField(uid, "played", "Cassette", make("select"));
  const submit = make("button", { type: "submit", className: "dml-primary" });
  const status = make("div", { className: "dml-status", role: "status" });
  const trouble = make("div", { className: "dml-trouble", role: "alert" });
  const actions = make("div", { className: "dml-actions" }, submit, status);
  const root = make("form", { className: "dml-form", noValidate: true });
  root.setAttribute("aria-labelledby", title.id);
  root.append(
    title,
    modes.row,
    region.row,
    address.row,
    key.row,
    recording.row,
    played.row,
    trouble,
    actions,
  );
  return { root, modes, region, address, key, recording, played, submit, status, trouble };
}

function makeAccount(uid) {
  const title = make("div", { className: "dml-title", role: "heading", id: `${uid}-account` });
  title.setAttribute("aria-level", "2");
  const detail = make("div", { className: "dml-detail" });
  const bar = make("div", { className: "dml-bar" }, make("div"));
  const left = make("span");
  const renews = make("span", { className: "dml-renews" });
  const allowance = make("div", { className: "dml-allowance" });
  allowance.append(make("div", { className: "dml-numbers" }, left, renews), bar);
  const note = make("div", { className: "dml-note", role: "note" });
  const out = make("button", { type: "button", className: "dml-secondary" });
  out.textContent = "Sign out";
  const head = make("div", { className: "dml-head" });
  head.append(make("span", { className: "dml-tick", ariaHidden: "true" }), title);
  const root = make("section", { className: "dml-account", tabIndex: -1 });
  root.setAttribute("aria-labelledby", title.id);
  root.append(head, detail, allowance, note, make("div", { className: "dml-actions" }, out));
  return { root, title, detail, allowance, bar, left, renews, note, out };
}

function fillSelect(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, label]) => make("option", { value, textContent: label })),
  );
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

/* Signed in: who, and what is left. */
function showAccount(view, account) {
  const { title, detail, allowance, bar, left, note } = view.account;
  title.textContent = account.title;
  detail.textContent = account.detail;
  note.textContent = account.note;
  note.hidden = !account.note;
  allowance.hidden = account.remaining === null || account.limit === null;
  if (!allowance.hidden) {
    left.textContent = `${account.remaining} of ${account.limit} left at sign-in`;
    const share = account.limit > 0 ? Math.min(1, account.remaining / account.limit) : 0;
    bar.firstChild.style.width = `${100 * share}%`;
  }
  const { renews_in_s: renewsIn } = account;
  view.renewsAt = renewsIn === null ? null : performance.now() / 1000 + renewsIn;
  countDown(view);
}

function countDown(view) {
  clearTimeout(view.ticking);
  const seconds = view.renewsAt === null ? 0 : Math.ceil(view.renewsAt - performance.now() / 1000);
  view.account.renews.textContent = seconds > 0 ? `renews in ${seconds} s` : "";
  if (seconds > 0) view.ticking = setTimeout(() => countDown(view), 1000);
}

/* The form, as the mode asks for it. */
function chosenMode(form) {
  return Object.keys(MODES).find((mode) => form.modes.radios[mode].checked) ?? "live";
}

function arrange(view) {
  const { form, offer } = view;
  const mode = chosenMode(form);
  const regions = offer.regions.length > 0;
  const sends = mode !== "replay";
  form.modes.about.textContent = MODES[mode].about;
  form.region.row.hidden = !sends || !regions;
  form.address.row.hidden = !sends || (regions && form.region.control.value !== OTHER);
  form.address.row.classList.toggle("dml-below", regions);
  form.key.row.hidden = !sends;
  form.recording.row.hidden = mode !== "record";
  form.played.row.hidden = mode !== "replay";
  form.submit.textContent = submitLabel(view, mode);
  form.submit.disabled = view.busy || !view.answered || (!sends && !offer.cassettes.length);
}

function submitLabel(view, mode) {
  if (view.busy) return mode === "replay" ? "Opening…" : "Signing in…";
  return mode === "replay" ? "Replay" : "Sign in";
}

function takeOffer(view, offer) {
  const { form } = view;
  const first = !view.offer.mode;
  view.offer = offer;
  const regions = offer.regions.map(([name, address]) => [address, `${name} — ${address}`]);
  const chosen = first ? offer.address : form.region.control.value;
  fillSelect(form.region.control, [...regions, [OTHER, "Another address…"]], chosen);
  const cassettes = offer.cassettes.map((name) => [name, name]);
  fillSelect(form.played.control, cassettes, form.played.control.value || offer.cassette);
  form.played.hint.textContent = cassettes.length
    ? "Recorded sessions found here."
    : "No cassette was found. Record one first.";
  form.key.hint.textContent = offer.key_hint;
  if (!first) return;
  if (!offer.regions.some(([, address]) => address === offer.address)) {
    form.address.control.value = offer.address;
    if (offer.address) form.region.control.value = OTHER;
  }
  form.recording.control.value = offer.cassette;
  form.modes.radios[offer.mode].checked = true;
}

/* Trouble: said in words, and shown at the field that has it. */
function fieldOf(form, name) {
  const mode = chosenMode(form);
  if (name === "cassette") return mode === "replay" ? form.played.control : form.recording.control;
  if (name === "key") return form.key.control;
  if (name !== "address") return form.submit;
  return form.address.row.hidden ? form.region.control : form.address.control;
}

function clearTrouble(form) {
  form.trouble.replaceChildren();
  for (const node of form.root.querySelectorAll("[aria-invalid]")) {
    node.removeAttribute("aria-invalid");
    node.removeAttribute("aria-errormessage");
  }
}

function showTrouble(view, { text, hint, field }) {
  const { form } = view;
  clearTrouble(form);
  form.trouble.append(make("strong", { textContent: text }));
  if (hint) form.trouble.append(make("div", { textContent: hint }));
  const place = fieldOf(form, field);
  if (place === form.submit) return place;
  form.trouble.id = `${view.uid}-trouble`;
  place.setAttribute("aria-invalid", "true");
  place.setAttribute("aria-errormessage", form.trouble.id);
  return place;
}

/* One picture of all that is known. */
function show(view) {
  const { form, account, state } = view;
  const signedIn = Boolean(state.account) && view.answered;
  form.root.hidden = signedIn;
  account.root.hidden = !signedIn;
  form.root.setAttribute("aria-busy", String(view.busy));
  for (const control of form.root.querySelectorAll("input, select")) {
    control.disabled = view.busy || !view.answered;
  }
  arrange(view);
  account.out.disabled = view.busy;
}

function receive(view, state) {
  if (state.type === "busy") {
    clearTimeout(view.waiting);
    view.form.status.textContent = "Asking the service…";
    return;
  }
  if (state.type !== "state") return;
  clearTimeout(view.waiting);
  const mine = view.asked;
  Object.assign(view, { state, answered: true, busy: false, asked: false });
  takeOffer(view, state.offer);
  view.form.status.textContent = state.notice;
  clearTrouble(view.form);
  if (state.account) showAccount(view, state.account);
  else clearTimeout(view.ticking);
  show(view);
  const place = state.trouble ? showTrouble(view, state.trouble) : null;
  // Only the view that asked takes the focus: another may stand next to what is being typed.
  if (mine) (state.account ? view.account.root : (place ?? view.form.submit)).focus();
}

function ask(view, message, buffers) {
  const give = () => {
    view.form.status.textContent = SILENT_KERNEL;
  };
  clearTimeout(view.waiting);
  view.waiting = setTimeout(give, PATIENCE_MS);
  try {
    view.model.send(message, undefined, buffers);
  } catch {
    give(); // the connection is closed: its kernel was restarted
  }
}

function greet(view) {
  Object.assign(view, { answered: false, busy: false });
  view.form.key.control.value = "";
  show(view);
  ask(view, { type: "hello" });
}

/* Sending. */
function problemBeforeSending(view, mode, typed) {
  if (mode !== "replay" && !typed.address) return ["address", "Type the service's address."];
  if (mode !== "replay" && !typed.key && !view.offer.key_known) {
    return ["key", "Type your API key."];
  }
  if (mode === "record" && !typed.cassette) return ["cassette", "Name the cassette."];
  return null;
}

function takeTyped(form, mode) {
  const key = form.key.control.value.trim();
  // Cleared before anything is sent: from here on the page does not hold it.
  form.key.control.value = "";
  const address = form.address.row.hidden ? form.region.control.value : form.address.control.value;
  const cassette = mode === "replay" ? form.played.control.value : form.recording.control.value;
  return { key, address: address.trim(), cassette: cassette.trim() };
}

function signIn(view) {
  if (view.busy || !view.answered) return;
  const mode = chosenMode(view.form);
  const typed = takeTyped(view.form, mode);
  const problem = problemBeforeSending(view, mode, typed);
  if (problem) {
    showTrouble(view, { field: problem[0], text: problem[1], hint: "" }).focus();
    return;
  }
  clearTrouble(view.form);
  Object.assign(view, { busy: true, asked: true });
  view.form.status.textContent = "";
  show(view);
  const encoder = new TextEncoder();
  const parts = [mode, typed.address, typed.cassette, mode === "replay" ? "" : typed.key];
  const buffers = parts.map((part) => encoder.encode(part).buffer);
  ask(view, { type: "sign_in" }, buffers);
}

function signOut(view) {
  if (view.busy) return;
  Object.assign(view, { busy: true, asked: true });
  show(view);
  ask(view, { type: "sign_out" });
}

function listen(view, root) {
  const { form, account, model } = view;
  form.root.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(view);
  });
  form.root.addEventListener("change", () => arrange(view));
  account.out.addEventListener("click", () => signOut(view));
  // JupyterLab's command mode listens above: a typed "d d" must not delete the cell.
  for (const kind of ["keydown", "keyup", "keypress", "paste", "copy", "cut"]) {
    root.addEventListener(kind, (event) => event.stopPropagation());
  }
  const onMessage = (state) => receive(view, state);
  const onLive = () => greet(view);
  model.on("msg:custom", onMessage);
  model.on("comm_live_update", onLive);
  return () => {
    clearTimeout(view.ticking);
    clearTimeout(view.waiting);
    model.off("msg:custom", onMessage);
    model.off("comm_live_update", onLive);
  };
}

function render({ model, el }) {
  views += 1;
  const uid = `dml-${Date.now().toString(36)}-${views}`;
  const view = {
    uid,
    model,
    form: makeForm(uid),
    account: makeAccount(uid),
    offer: { regions: [], cassettes: [], cassette: "", address: "", mode: "" },
    state: { account: null },
    renewsAt: null,
  };
  view.form.modes.radios.live.checked = true;
  const root = make("div", { className: "dml-login" }, view.form.root, view.account.root);
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  el.append(root);
  const stop = listen(view, root);
  greet(view);
  return stop;
}

export default { render };
