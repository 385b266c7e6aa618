/* The sign-in form. What is typed goes to the kernel as binary buffers, which no log writes out. */

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

let views = 0;

function makeField(uid, name, label, control) {
  const hint = make("div", { className: "dml-hint dml-soft", id: `${uid}-${name}-hint` });
  control.id = `${uid}-${name}`;
  control.setAttribute("aria-describedby", hint.id);
  const caption = make("label", { htmlFor: control.id, textContent: label });
  return { row: make("div", { className: "dml-field" }, caption, control, hint), control, hint };
}

function makeModes(uid) {
  const radios = {};
  const about = make("div", { className: "dml-hint dml-soft", id: `${uid}-about` });
  const strip = make("div", { className: "dml-modes" });
  for (const [mode, { label }] of Object.entries(MODES)) {
    const radio = make("input", { type: "radio", name: `${uid}-mode`, id: `${uid}-${mode}` });
    radio.setAttribute("aria-describedby", about.id);
    strip.append(radio, make("label", { htmlFor: radio.id, textContent: label }));
    radios[mode] = radio;
  }
  const legend = make("legend", { textContent: "What answers requests" });
  return { row: make("fieldset", {}, legend, strip, about), radios, about };
}

function makeForm(uid) {
  const text = (props) => make("input", { autocomplete: "off", spellcheck: false, ...props });
  const title = makeTitle(`${uid}-title`, "Sign in to the direct mail service");
  const modes = makeModes(uid);
  const typed = text({ type: "text", inputMode: "url", placeholder: "https://…" });
  typed.setAttribute("aria-label", "Another service address");
  const region = makeField(uid, "region", "Service address", make("select"));
  const address = makeField(uid, "address", "Service address", typed);
  const key = makeField(uid, "key", "API key", text({ type: "password" }));
  const recording = makeField(uid, "recording", "Cassette", text({ type: "text" }));
  recording.hint.textContent = "A name of your choice. One that exists is added to.";
  const played = makeField(uid, "played", "Cassette", make("select"));
  const submit = make("button", { type: "submit", className: "dml-primary" });
  const status = make("div", { className: "dml-status dml-soft", role: "status" });
  const problem = make("div", { className: "dml-problem", role: "alert", id: `${uid}-problem` });
  const fields = [region, address, key, recording, played].map(({ row }) => row);
  const actions = make("div", { className: "dml-actions" }, submit, status);
  const root = make("form", { className: "dml-box dml-form", noValidate: true });
  root.setAttribute("aria-labelledby", title.id);
  root.append(title, modes.row, ...fields, problem, actions);
  return { root, modes, region, address, key, recording, played, submit, status, problem };
}

function makeTitle(id, textContent) {
  return make("div", { className: "dml-title", role: "heading", "aria-level": "2", id, textContent });
}

function makeAccount(uid) {
  const title = makeTitle(`${uid}-account`, "");
  const detail = make("div", { className: "dml-detail dml-soft" });
  const fill = make("div");
  const left = make("span");
  const renews = make("span", { className: "dml-soft" });
  const allowance = make("div", { className: "dml-allowance" });
  allowance.append(
    make("div", { className: "dml-spread" }, left, renews),
    make("div", { className: "dml-bar" }, fill),
  );
  const note = make("div", { className: "dml-note", role: "note" });
  const out = make("button", { type: "button", className: "dml-secondary", textContent: "Sign out" });
  const head = make("div", { className: "dml-top" });
  head.append(make("span", { className: "dml-tick", "aria-hidden": "true" }, "✓"), title);
  const root = make("section", { className: "dml-box dml-account", tabIndex: -1 });
  root.setAttribute("aria-labelledby", title.id);
  root.append(head, detail, allowance, note, make("div", { className: "dml-actions" }, out));
  return { root, title, detail, allowance, fill, left, renews, note, out };
}

/* Signed in: who, and what is left. */
function showAccount(view, account) {
  const { title, detail, allowance, fill, left, renews, note } = view.account;
  const { limit, remaining, renews_in_s: renewsIn } = account;
  title.textContent = account.title;
  detail.textContent = account.detail;
  note.textContent = account.note;
  note.hidden = !account.note;
  allowance.hidden = remaining === null || limit === null;
  left.textContent = `${remaining} of ${limit} left at sign-in`;
  fill.style.width = `${limit > 0 ? Math.min(100, (100 * remaining) / limit) : 0}%`;
  const renewsAt = renewsIn === null ? null : now() + renewsIn;
  countDown(view, (secondsUntil) => {
    const seconds = secondsUntil(renewsAt);
    renews.textContent = seconds > 0 ? `renews in ${seconds} s` : "";
    return seconds > 0;
  });
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
  form.played.row.hidden = sends;
  const labels = sends ? ["Sign in", "Signing in…"] : ["Replay", "Opening…"];
  form.submit.textContent = labels[Number(view.busy)];
  form.submit.disabled = view.busy || !view.answered || (!sends && !offer.cassettes.length);
}

function fillSelect(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, label]) => make("option", { value, textContent: label })),
  );
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

function takeOffer(view, offer) {
  const { form } = view;
  const { region, address, key, recording, played, modes } = form;
  const first = !view.offer.mode;
  view.offer = offer;
  const regions = offer.regions.map(([name, url]) => [url, `${name} — ${url}`]);
  const chosen = first ? offer.address : region.control.value;
  fillSelect(region.control, [...regions, [OTHER, "Another address…"]], chosen);
  const cassettes = offer.cassettes.map((name) => [name, name]);
  fillSelect(played.control, cassettes, played.control.value || offer.cassette);
  played.hint.textContent = cassettes.length
    ? "Recorded sessions found here."
    : "No cassette was found. Record one first.";
  key.hint.textContent = offer.key_hint;
  key.control.placeholder = offer.key_source && `the key in ${offer.key_source}`;
  if (!first) return;
  if (!regions.some(([url]) => url === offer.address)) {
    address.control.value = offer.address;
    if (offer.address) region.control.value = OTHER;
  }
  recording.control.value = offer.cassette;
  modes.radios[offer.mode].checked = true;
}

/* A problem: said in words, and shown at the field that has it. */
function fieldOf(form, name) {
  const shown = (...fields) => fields.find(({ row }) => !row.hidden)?.control;
  if (name === "cassette") return shown(form.played, form.recording);
  if (name === "address") return shown(form.address, form.region);
  return name === "key" ? form.key.control : undefined;
}

function showProblem(form, problem) {
  form.problem.replaceChildren();
  for (const node of form.root.querySelectorAll("[aria-invalid]")) {
    node.removeAttribute("aria-invalid");
    node.removeAttribute("aria-errormessage");
  }
  if (!problem) return undefined;
  form.problem.append(make("strong", { textContent: problem.text }));
  if (problem.hint) form.problem.append(make("div", { textContent: problem.hint }));
  const field = fieldOf(form, problem.field);
  field?.setAttribute("aria-invalid", "true");
  field?.setAttribute("aria-errormessage", form.problem.id);
  return field;
}

/* One picture of all that is known. */
function show(view, signedIn = false) {
  const { form, account } = view;
  form.root.hidden = signedIn;
  account.root.hidden = !signedIn;
  form.root.setAttribute("aria-busy", String(view.busy));
  for (const control of form.root.querySelectorAll("input, select")) {
    control.disabled = view.busy || !view.answered;
  }
  account.out.disabled = view.busy;
  arrange(view);
}

function receive(view, state) {
  const { form, account } = view;
  if (state.type === "busy") {
    form.status.textContent = "Asking the service…";
    return;
  }
  const { asked: mine, key } = view;
  Object.assign(view, { answered: true, busy: false, asked: false, key: "" });
  takeOffer(view, state.offer);
  form.status.textContent = state.notice;
  clearTimeout(view.ticking);
  if (state.account) showAccount(view, state.account);
  show(view, Boolean(state.account));
  const field = showProblem(form, state.problem);
  // Only a key that is wrong has to be typed again.
  if (mine && state.problem && state.problem.field !== "key") form.key.control.value = key;
  // Only the view that asked takes the focus: another may stand next to what is being typed.
  if (mine) (state.account ? account.root : (field ?? form.submit)).focus();
}

/* Sending. */
function signIn(view) {
  if (view.busy || !view.answered) return;
  const { form } = view;
  const mode = chosenMode(form);
  const valueOf = (name) => fieldOf(form, name)?.value.trim() ?? "";
  const parts = [mode, valueOf("address"), valueOf("cassette"), valueOf("key")];
  // Cleared before anything is sent, so that nothing that saves the page finds it there.
  view.key = form.key.control.value;
  form.key.control.value = "";
  if (mode === "replay") parts[3] = "";
  form.status.textContent = "";
  showProblem(form, null);
  send(view, { type: "sign_in" }, parts.map((part) => new TextEncoder().encode(part).buffer));
}

function send(view, message, buffers) {
  Object.assign(view, { busy: true, asked: true });
  show(view, view.form.root.hidden);
  view.kernel.send(message, buffers);
}

function listen(view, root) {
  const { form, account } = view;
  form.root.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(view);
  });
  form.root.addEventListener("change", () => arrange(view));
  account.out.addEventListener("click", () => send(view, { type: "sign_out" }));
  keepKeys(root);
}

function render({ model, el }) {
  views += 1;
  const uid = `dml-${Date.now().toString(36)}-${views}`;
  const view = { form: makeForm(uid), account: makeAccount(uid) };
  const { form, account } = view;
  view.offer = { regions: [], cassettes: [], mode: "" };
  view.kernel = connect(model, {
    onGreet: () => {
      Object.assign(view, { answered: false, busy: false, asked: false, key: "" });
      form.key.control.value = "";
      show(view);
    },
    onMessage: (state) => receive(view, state),
    onSilence: () => setText(form.status, SILENT_KERNEL),
  });
  form.modes.radios.live.checked = true;
  const root = make("div", { className: "dml dml-login dml-hides-next" }, form.root, account.root);
  listen(view, root);
  el.append(root);
  view.kernel.greet();
  return () => {
    view.kernel.close();
    clearTimeout(view.ticking);
  };
}

export default { render };
