// JupyterLab loads this file like a webpack container, and gets the extension from it. All other
// files come from our server extension, so they always have the installed version.
(() => {
  let scope;

  async function load() {
    const page = JSON.parse(document.getElementById("jupyter-config-data").textContent);
    const address = `${page.baseUrl ?? "/"}directmail-lab/plugin.js`;
    try {
      const { createPlugin } = await import(address);
      return { __esModule: true, default: await createPlugin(shared) };
    } catch (error) {
      console.warn("directmail-lab: its Jupyter Server extension is not enabled.", error);
      return { __esModule: true, default: [] };
    }
  }

  // Return one of JupyterLab's own packages, in the version that JupyterLab uses.
  async function shared(name) {
    const versions = Object.values(scope[name] ?? {});
    const version = versions.find(({ loaded }) => loaded) ?? versions[0];
    return version ? (await version.get())() : {};
  }

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB["directmail-lab"] = {
    init: (packages) => { scope = packages; },
    get: async () => {
      const extension = await load();
      return () => extension;
    },
  };
})();
