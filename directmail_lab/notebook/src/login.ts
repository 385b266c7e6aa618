/* The sign-in form. */

import { div, keepKeys, make, makeButton, newId, setText } from "./dom";
import { connect, type Context, type Message } from "./kernel";

type Form = ReturnType<typeof makeForm>;
interface Choices {
  regions: [string, string][];
  address?: string;
  key_sources: Record<string, string>;
  remember: boolean;
  /** Why no key can be remembered, or "". */
  keyring_problem: string;
}

interface View {
  form: Form;
  account: ReturnType<typeof makeAccount>;
  kernel: ReturnType<typeof connect>;
  choices: Choices;
  connected: boolean;
  busy: boolean;
  isSender: boolean;
  key: string;
  waiting?: ReturnType<typeof setInterval>;
}

const OTHER = "";
const NO_CHOICES: Choices = { regions: [], key_sources: {}, remember: false, keyring_problem: "" };
const REMEMBER =
  "Once the service has accepted the key, this computer's keyring keeps it: the password manager of the system. " +
  "You then sign in without typing it, and the address is filled in. Signing out removes both.";

function makeField<Control extends HTMLElement>(id: string, name: string, label: string, control: Control) {
  const hint = make("div", { className: "dml-hint dml-soft", id: `${id}-${name}-hint` });
  control.id = `${id}-${name}`;
  control.setAttribute("aria-describedby", hint.id);
  const row = div("dml-field", make("label", { htmlFor: control.id, textContent: label }), control, hint);
  return { row, control, hint };
}

function makeRemember(id: string) {
  const box = make("input", { type: "checkbox", id: `${id}-remember` });
  const label = make("label", { htmlFor: box.id, textContent: "Remember this key and address" });
  const row = make("div", { className: "dml-remember", title: REMEMBER }, box, label);
  const problem = div("dml-hint dml-soft");
  box.setAttribute("aria-description", REMEMBER);
  return { row, box, problem };
}

function makeTitle(id: string, textContent: string) {
  return make("div", { className: "dml-title", role: "heading", "aria-level": "2", id, textContent });
}

function makeForm(id: string) {
  const text = (props: object) => make("input", { autocomplete: "off", spellcheck: false, ...props });
  const title = makeTitle(`${id}-title`, "Sign in to the direct mail service");
  const typed = text({ type: "text", inputMode: "url", placeholder: "https://…" });
  const fields = {
    region: makeField(id, "region", "Service address", make("select")),
    address: makeField(id, "address", "Service address", typed),
    key: makeField(id, "key", "Key", text({ type: "password" })),
  };
  const submit = make("button", { type: "submit", className: "dml-primary", textContent: "Sign in" });
  const status = make("div", { className: "dml-status dml-soft", role: "status" });
  const seconds = make("span", { className: "dml-soft", "aria-hidden": "true" });
  const problem = make("div", { className: "dml-problem", role: "alert", id: `${id}-problem` });
  const root = make("form", { className: "dml-box dml-form", noValidate: true, "aria-labelledby": title.id });
  const remember = makeRemember(id);
  fields.key.row.append(remember.row, remember.problem);
  const key = fields.key.control;
  const showing = makeButton("Show key", () => showKey(key.type === "password"));
  const showKey = (isShown: boolean) => {
    key.type = isShown ? "text" : "password";
    setText(showing, isShown ? "Hide key" : "Show key");
  };
  key.replaceWith(div("dml-top dml-key", showing));
  showing.before(key);
  root.append(title, ...Object.values(fields).map(({ row }) => row), problem, div("dml-actions", submit, status, seconds));
  const emptyKey = () => {
    key.value = "";
    showKey(false);
  };
  return { root, ...fields, remember, submit, status, seconds, problem, emptyKey };
}

function makeAccount(id: string, onSignOut: () => void) {
  const title = makeTitle(`${id}-account`, "");
  const detail = div("dml-detail dml-soft");
  const fill = div("");
  const left = div("");
  const allowance = div("dml-allowance", left, div("dml-bar", fill));
  const note = make("div", { className: "dml-note", role: "note" });
  const signOut = makeButton("Sign out", onSignOut);
  const head = div("dml-top", make("span", { className: "dml-tick", "aria-hidden": "true" }, "✓"), title);
  const root = make("section", { className: "dml-box dml-account", tabIndex: -1, "aria-labelledby": title.id });
  root.append(head, detail, allowance, note, div("dml-actions", signOut));
  return { root, title, detail, allowance, fill, left, note, signOut };
}

/* Signed in: the account, and what is left of its allowance. */
function showAccount(view: View, account: Message) {
  const { title, detail, allowance, fill, left, note } = view.account;
  const { limit = null, remaining = null, note: warning = "" } = account;
  title.textContent = account.title;
  detail.textContent = account.detail;
  note.textContent = warning;
  note.hidden = !warning;
  allowance.hidden = remaining === null || limit === null;
  left.textContent = `${remaining} of ${limit} left at sign-in`;
  fill.style.width = `${limit > 0 ? Math.min(100, (100 * remaining) / limit) : 0}%`;
}

/* The form, with a field for the address only if no region is chosen. */
function arrange(view: View) {
  const { form, choices } = view;
  const hasRegions = choices.regions.length > 0;
  form.region.row.hidden = !hasRegions;
  form.address.row.hidden = hasRegions && form.region.control.value !== OTHER;
  form.address.row.classList.toggle("dml-below", hasRegions);
  form.address.control.ariaLabel = hasRegions ? "Another service address" : null;
  const source = choices.key_sources[fieldOf(form, "address")?.value.trim() ?? ""];
  const kept = form.remember.box.checked ? "this computer's keyring" : "the kernel's memory";
  form.key.hint.textContent = source ? `Leave it empty to use the key in ${source}.` : `Kept in ${kept}, and not in the notebook.`;
  form.key.control.placeholder = source ? `the key in ${source}` : "";
  form.submit.textContent = view.busy ? "Signing in…" : "Sign in";
  form.submit.disabled = view.busy || !view.connected;
}

function showChoices(view: View, choices: Choices) {
  const { region, address, remember } = view.form;
  const isFirst = view.choices === NO_CHOICES;
  view.choices = choices;
  const names = [...choices.regions.map(([name]) => name), OTHER];
  const selected = (isFirst && choices.address) || region.control.value;
  const options = choices.regions.map(([name, url]) => new Option(`${name} — ${url}`, name));
  region.control.replaceChildren(...options, new Option("Another service address…", OTHER));
  if (names.includes(selected)) region.control.value = selected;
  remember.row.hidden = Boolean(choices.keyring_problem);
  remember.problem.textContent = choices.keyring_problem && `${choices.keyring_problem} You type the key each time.`;
  if (!isFirst) return;
  remember.box.checked = choices.remember;
  if (!names.includes(choices.address ?? OTHER)) {
    address.control.value = choices.address ?? "";
    if (choices.address) region.control.value = OTHER;
  }
}

/* A problem is shown below the fields, and its field is marked. */
function fieldOf({ address, region, key }: Form, name: string): HTMLInputElement | HTMLSelectElement | undefined {
  const fields: Record<string, { row: HTMLElement; control: HTMLInputElement | HTMLSelectElement }[]> = { address: [address, region], key: [key] };
  return fields[name]?.find(({ row }) => !row.hidden)?.control;
}

function showProblem(form: Form, problem: { text: string; hint: string; field: string } | null) {
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

function show(view: View, isSignedIn = false) {
  const { form, account } = view;
  form.root.hidden = isSignedIn;
  account.root.hidden = !isSignedIn;
  form.root.setAttribute("aria-busy", String(view.busy));
  for (const control of form.root.querySelectorAll<HTMLInputElement | HTMLSelectElement>("input, select")) {
    control.disabled = view.busy || !view.connected;
  }
  account.signOut.disabled = view.busy;
  arrange(view);
}

function receive(view: View, state: Message) {
  const { form, account } = view;
  clearInterval(view.waiting);
  if (state.type === "busy") {
    const started = Date.now();
    form.status.textContent = "Waiting for the service …";
    view.waiting = setInterval(() => (form.seconds.textContent = `${Math.round((Date.now() - started) / 1000)} s`), 1000);
    return;
  }
  form.seconds.textContent = "";
  const { isSender, key } = view;
  Object.assign(view, { connected: true, busy: false, isSender: false, key: "" });
  showChoices(view, state.choices);
  form.status.textContent = state.notice;
  if (state.account) showAccount(view, state.account);
  show(view, Boolean(state.account));
  const field = showProblem(form, state.problem);
  if (!isSender) return; // do not move the focus away from another view
  // Only a wrong key has to be typed again.
  if (state.problem && state.problem.field !== "key") form.key.control.value = key;
  (state.account ? account.root : (field ?? form.submit)).focus();
}

/* Sending. */
function signIn(view: View) {
  if (view.busy || !view.connected) return;
  const { form } = view;
  const valueOf = (name: string) => fieldOf(form, name)?.value.trim() ?? "";
  const texts = [valueOf("address"), valueOf("key"), form.remember.box.checked ? "yes" : ""];
  // The field is emptied before anything is sent, so that a saved page does not contain the key.
  view.key = form.key.control.value;
  form.emptyKey();
  form.status.textContent = "";
  showProblem(form, null);
  send(view, { type: "sign_in" }, texts);
}

function send(view: View, message: object, texts?: string[]) {
  Object.assign(view, { busy: true, isSender: true });
  show(view, Boolean(view.form.root.hidden));
  view.kernel.send(message, texts);
}

function render({ model, el }: Context) {
  const id = newId();
  const view = { choices: NO_CHOICES } as unknown as View;
  const form = (view.form = makeForm(id));
  const account = (view.account = makeAccount(id, () => send(view, { type: "sign_out" })));
  view.kernel = connect(model, {
    onGreet: () => {
      Object.assign(view, { connected: false, busy: false, isSender: false, key: "" });
      form.emptyKey();
      show(view);
    },
    onMessage: (state) => receive(view, state),
    onSilence: (reason) => setText(form.status, reason),
  });
  form.root.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(view);
  });
  form.root.addEventListener("input", () => {
    showProblem(form, null);
    arrange(view);
  });
  form.root.addEventListener("change", () => arrange(view));
  const root = div("dml dml-login dml-hides-next", form.root, account.root);
  keepKeys(root);
  el.append(root);
  view.kernel.greet();
  return () => {
    clearInterval(view.waiting);
    view.kernel.close();
  };
}

export default { render };
