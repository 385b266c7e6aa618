// The JupyterLab extension: it shows recordings in a viewer, and adds cards to the launcher.

const ID = "directmail-lab:recording";
const FACTORY = "Recording"; // the name in "Open With"
const HAR = { name: "har", displayName: "HAR", extensions: [".har"], fileFormat: "text" };
const NOT_A_CASSETTE = 415;
const INSERT = "directmail-lab:insert-cell";

const isHar = (path) => /\.har$/i.test(path);
// The server checks the content; a file that is not a cassette is then opened as text.
const mayBeCassette = (path) => /^([^:]+\/)?cassettes\/(.+\/)?[^/]+\.(ya?ml|json)$/i.test(path);

const svg = (inner) =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">${inner}</svg>`;
// JupyterLab's classes make the icon grey as in its theme, and white on a selected item.
const TAPE = svg(
  '<rect class="jp-icon3 jp-icon-selectable" fill="#616161" x="1" y="4" width="22" height="16" rx="2"/>' +
    '<g class="jp-icon-selectable-inverse" fill="#fff"><circle cx="7.5" cy="11" r="3"/>' +
    '<circle cx="16.5" cy="11" r="3"/></g>',
);
// This blue has enough contrast on white and on black.
const lines = (inner) =>
  svg(`<g fill="none" stroke="#1e88e5" stroke-width="1.6" stroke-linejoin="round">${inner}</g>`);
const LETTER = lines('<path d="m3 6 9 7 9-7"/><rect x="2" y="5" width="20" height="14" rx="2"/>');
const BOOK = lines(
  '<path d="M12 7v13c-3-2-6-2-9-1.5v-13C6 5 9 5 12 7c3-2 6-2 9-1.5v13c-3-.5-6-.5-9 1.5"/>',
);

// `shared` resolves to one of JupyterLab's own packages by its name; {} if the page has none.
export async function createPlugin(shared) {
  const names =
    "docregistry services ui-components apputils application launcher notebook".split(" ");
  const [registry, services, ui, apputils, application, launcher, notebook] = await Promise.all(
    names.map((name) => shared(`@jupyterlab/${name}`)),
  );
  const widgets = await shared("@lumino/widgets");
  const icon = (name, svgstr) => new ui.LabIcon({ name: `directmail-lab:${name}`, svgstr });
  const tape = icon("tape", TAPE);

  // The viewer needs its own context: the editor's would load the text, and could save it.
  class ModelFactory extends registry.TextModelFactory {
    get name() {
      return ID;
    }
  }

  class Viewer extends widgets.Widget {
    constructor(context, server, openAsText) {
      super();
      Object.assign(this, { context, server, openAsText, last: Promise.resolve() });
      this.node.style.overflow = "auto";
      this.node.append("Reading … ", document.createElement("progress"));
    }

    onAfterAttach() {
      this.refresh();
    }

    onAfterShow() {
      this.refresh();
    }

    onActivateRequest() {
      this.node.querySelector("[role=grid]")?.focus();
    }

    dispose() {
      this.browser?.destroy();
      super.dispose();
    }

    refresh() {
      this.last = this.last.then(() => this.read()).catch((error) => this.explain(error));
    }

    async read() {
      await this.context.ready;
      const send = (request) => this.server.send(this.context.path, request); // renamed or not
      const { version } = await send({ action: "list", first: 1, limit: 0 });
      if (version === this.version || this.isDisposed) return;
      const { createBrowser, loadEditor } = await this.server.page();
      if (!this.version) this.context.fileChanged.connect(() => this.refresh());
      this.version = version;
      this.browser?.destroy();
      this.node.replaceChildren();
      this.browser = createBrowser(this.node, { send, loadEditor, fill: true });
    }

    explain(error) {
      if (this.isDisposed) return;
      const { path } = this.context;
      if (error.status === NOT_A_CASSETTE && !isHar(path)) this.openAsText(path, this.parent);
      else if (!this.browser) {
        const problem = document.createElement("p");
        Object.assign(problem, { role: "alert", textContent: error.message });
        problem.style.margin = "1em";
        this.node.replaceChildren(problem);
      }
    }
  }

  class Factory extends registry.ABCWidgetFactory {
    createNewWidget(context) {
      const content = new Viewer(context, this.server, this.openAsText);
      const widget = new registry.DocumentWidget({ content, context });
      widget.title.icon = tape;
      widget.toolbar.hide(); // its only content would be that the file is read-only
      return widget;
    }
  }

  function addViewer(app, server, drive, restorer) {
    const { docRegistry, commands } = app;
    // The viewer never writes: it does not save a recording, and makes no checkpoint of it.
    drive.contentProviderRegistry.register(ID, {
      get: async (path) => ({ ...(await drive.get(path, { content: false })), writable: false }),
      save: () => Promise.reject(new Error("This viewer does not change recordings.")),
    });
    docRegistry.addFileType({ ...HAR, icon: tape });
    docRegistry.addModelFactory(new ModelFactory());
    const models = { readOnly: true, modelName: ID, contentProviderId: ID };
    const factory = new Factory({ name: FACTORY, fileTypes: ["har"], defaultFor: ["har"], ...models });
    // A file type can match only a file's name, so the folder is checked here.
    const preferred = docRegistry.preferredWidgetFactories.bind(docRegistry);
    docRegistry.preferredWidgetFactories = (path) =>
      mayBeCassette(path) ? [factory, ...preferred(path)] : preferred(path);
    Object.assign(factory, { server, openAsText });
    docRegistry.addWidgetFactory(factory);

    async function openAsText(path, replaced) {
      const [{ name }] = preferred(path);
      if (app.name !== "JupyterLab") {
        // A page of Notebook shows one document, which its address names.
        const address = new URL(window.location.href);
        address.searchParams.set("factory", name);
        window.location.replace(address);
        return;
      }
      await commands.execute("docmanager:open", { path, factory: name, options: { ref: replaced.id } });
      replaced.close();
    }

    const tracker = new apputils.WidgetTracker({ namespace: ID });
    factory.widgetCreated.connect((_, widget) => {
      tracker.add(widget);
      widget.context.pathChanged.connect(() => tracker.save(widget));
    });
    restorer?.restore(tracker, {
      command: "docmanager:open",
      args: ({ context }) => ({ path: context.path, factory: FACTORY }),
      name: ({ context }) => context.path,
    });
  }

  function addCards({ commands }, server, cards) {
    const add = (name, label, caption, image, rank) => {
      const command = `directmail-lab:${name}`;
      const open = async ({ cwd }) => {
        const { path } = await server.make(name, cwd);
        return commands.execute("docmanager:open", { path });
      };
      const execute = (args) =>
        open(args).catch((error) => apputils.showErrorMessage(label, error.message));
      commands.addCommand(command, { label, caption, icon: icon(name, image), execute });
      cards?.add({ command, category: "Direct mail", rank });
    };
    const explore = "A new notebook: sign in, record, and explore";
    add("explore", "Explore a direct mail API", explore, LETTER, 0);
    const tutorials = "The first of the tutorial notebooks; they need no key and no network";
    add("tutorials", "Tutorials", tutorials, BOOK, 1);
  }

  // `browse` asks for this. The cell is only inserted; it runs when the user runs it.
  function insertCell(event, notebooks) {
    const panel = notebooks.find(({ node }) => node.contains(event.target));
    if (!panel?.content.model || panel.content.model.readOnly) return;
    event.preventDefault();
    const { content } = panel;
    const position = content.activeCellIndex + 1;
    const cell = { cell_type: "code", source: String(event.detail), metadata: {} };
    content.model.sharedModel.insertCell(position, cell);
    content.activeCellIndex = position;
    content.mode = "command";
    content.activate();
  }

  const optional = [services.IDefaultDrive, application.ILayoutRestorer, launcher.ILauncher];
  optional.push(notebook.INotebookTracker);
  return {
    id: "directmail-lab:plugin",
    description: "Opens recorded sessions, inserts cells, and adds cards to the launcher.",
    autoStart: true,
    requires: [],
    optional: optional.filter(Boolean),
    activate: (app, ...provided) => {
      const [drive, restorer, cards, notebooks] = optional.map((token) => token && provided.shift());
      const server = connect(app.serviceManager.serverSettings, services.ServerConnection);
      if (drive?.contentProviderRegistry) addViewer(app, server, drive, restorer);
      addCards(app, server, cards);
      if (notebooks) document.addEventListener(INSERT, (event) => insertCell(event, notebooks));
    },
  };
}

// Calls our extension of the Jupyter server. The message of an error is a sentence from there.
function connect(settings, { makeRequest }) {
  const address = (name) => `${settings.baseUrl}directmail-lab/${name}`;

  async function fetchJson(name, init = {}) {
    const response = await makeRequest(address(name), init, settings);
    const noJson = { message: "The server's response is not JSON." };
    const result = await response.json().catch(() => noJson);
    if (!response.ok) throw Object.assign(new Error(result.message), { status: response.status });
    return result;
  }

  async function send(path, request) {
    const query = new URLSearchParams({ path, request: JSON.stringify(request) });
    const { response, buffers, version } = await fetchJson(`recording?${query}`);
    const decode = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return { ...response, buffers: buffers.map(decode), version };
  }

  let page;
  return {
    send,
    make: (name, folder = "") =>
      fetchJson(`${name}?${new URLSearchParams({ folder })}`, { method: "POST" }),
    page: () => (page ??= loadPage(address)),
  };
}

async function loadPage(address) {
  const style = document.createElement("link");
  Object.assign(style, { rel: "stylesheet", href: address("browser.css") });
  await new Promise((loaded) => {
    style.addEventListener("load", loaded);
    style.addEventListener("error", loaded);
    document.head.append(style);
  });
  const { createBrowser } = await import(address("browser.js"));
  return { createBrowser, loadEditor: async () => address("codemirror.js") };
}
