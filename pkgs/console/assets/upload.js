// Files that are sent in pieces, each with its sum, and go on where they broke off (tus.io, version 1.0.0).
"use strict";

{
  /** As much as the console takes at once, in bytes. */
  const PIECE = 4 << 20;
  /** Tries of a piece that does not arrive, each after twice the time. */
  const TRIES = 6;

  const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const encoded = (text) => base64(new TextEncoder().encode(text));
  // All that a path could mean something by; the services escape the rest alike.
  const escaped = (name) => encodeURIComponent(name).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);

  /** What the console says too, in answers that have a body. */
  const SIGNED_OUT = "you are signed out: sign in, and send it once more; it goes on where it was";

  /** What somebody is told who cannot go on. */
  class Refused extends Error {}

  async function ask(form, method, place, fields, body) {
    const headers = { "tus-resumable": "1.0.0", "x-csrf": form.elements.csrf.value, ...fields };
    const response = await fetch(place, { method, headers, body, cache: "no-store" });
    // 409 is a piece that is there already, 423 and 460 one that is to be sent again, 5xx nobody's fault here.
    if (response.ok || [404, 423, 460].includes(response.status)) return response;
    if (response.status === 401) throw new Refused(SIGNED_OUT);
    const problem = method === "HEAD" ? {} : await response.json().catch(() => ({}));
    if (response.status === 409 && response.headers.has("upload-offset")) return response;
    if (response.status < 500 || response.status === 507) throw new Refused(problem.detail ?? `refused: ${response.status}`);
    throw new Error(problem.detail ?? `not now: ${response.status}`);
  }

  /** Tries, again and again where it is nobody's fault here, each after twice the time. */
  async function tried(said, work) {
    for (let failed = 1; ; failed += 1) {
      try {
        return await work();
      } catch (error) {
        if (error instanceof Refused || failed === TRIES) throw error;
        said.textContent = `It broke off (${error.message}), and goes on in a moment`;
        await new Promise((done) => setTimeout(done, 250 * 2 ** failed));
      }
    }
  }

  /** An upload of the same file that was begun before, if it is still known and may do to what is there what is asked now. */
  async function known(form, key) {
    const [place, replaces] = (localStorage.getItem(key) ?? "").split(" ");
    if (!place) return null;
    // Whether it replaces is said once, where it begins: the one that said otherwise is given up.
    const stale = Boolean(replaces) !== form.elements.replace.checked;
    const told = await ask(form, stale ? "DELETE" : "HEAD", place, {});
    if (stale || !told.ok) {
      localStorage.removeItem(key);
      return null;
    }
    return { place, offset: Number(told.headers.get("upload-offset")) };
  }

  async function begin(form, file, path) {
    const replace = form.elements.replace.checked ? ",replace" : "";
    const fields = { "upload-length": String(file.size), "upload-metadata": `path ${encoded(path)}${replace}` };
    const begun = await ask(form, "POST", form.dataset.uploads, fields);
    const place = begun.headers.get("location");
    if (!place) throw new Refused((await begun.json().catch(() => ({}))).detail ?? "nothing was begun");
    return { place, offset: 0 };
  }

  async function piece(form, file, upload) {
    const bytes = await file.slice(upload.offset, upload.offset + PIECE).arrayBuffer();
    const fields = { "upload-offset": String(upload.offset), "content-type": "application/offset+octet-stream" };
    // Only where the page came by TLS, or from this machine, are there sums.
    if (globalThis.crypto?.subtle) fields["upload-checksum"] = `sha256 ${base64(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)))}`;
    const answer = await ask(form, "PATCH", upload.place, fields, bytes);
    if (answer.status === 404) throw new Refused("the upload was given up; send it once more");
    const offset = answer.headers.get("upload-offset");
    if (offset === null) throw new Error("the piece did not arrive whole");
    return Number(offset);
  }

  async function send(form, file) {
    const [bar, said] = [form.querySelector("progress"), form.querySelector("[role=status]")];
    const path = `${form.dataset.path}${escaped(file.name)}`;
    const key = `upload ${path} ${file.size} ${file.lastModified}`;
    const show = (offset) => {
      bar.hidden = false;
      bar.value = file.size ? offset / file.size : 1;
      said.textContent = `${Math.floor(bar.value * 100)} % of ${file.name} sent`;
    };
    const upload = (await tried(said, () => known(form, key))) ?? (await tried(said, () => begin(form, file, path)));
    localStorage.setItem(key, form.elements.replace.checked ? `${upload.place} replace` : upload.place);
    show(upload.offset);
    let again = false;
    while (upload.offset < file.size) {
      upload.offset = await tried(said, async () => {
        if (again) {
          const told = await ask(form, "HEAD", upload.place, {});
          if (told.ok) upload.offset = Number(told.headers.get("upload-offset"));
          if (upload.offset >= file.size) return upload.offset;
        }
        again = true;
        return piece(form, file, upload);
      });
      again = false;
      show(upload.offset);
    }
    localStorage.removeItem(key);
  }

  addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("form[data-uploads]").forEach((form) => {
      form.addEventListener("submit", async (event) => {
        const [file] = form.elements.file.files;
        if (!file) return;
        event.preventDefault();
        const button = form.querySelector("button");
        button.disabled = true;
        try {
          await send(form, file);
          location.assign(`/files?${new URLSearchParams({ path: form.dataset.path, done: "1" })}`);
        } catch (error) {
          form.querySelector("[role=status]").textContent = `Not uploaded: ${error.message}`;
          button.disabled = false;
        }
      });
    });
  });
}
