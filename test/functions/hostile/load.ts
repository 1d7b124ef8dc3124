/**
 * Bundles that give the service as much to do as they can, each in a way of its own. Their text is made when it is asked
 * for: some have megabytes.
 */

const definition = (type: string, fields: string, exec: string) => `"use strict";
const { z } = require("zod");
exports.default = { type: "${type}", description: "Means harm.", ${fields} exec: async (trellis, input) => { ${exec} } };
`;
const action = (exec: string) => definition('action', 'input: z.any(), output: z.any(),', exec);
const sync = (exec: string) =>
  definition(
    'sync',
    'frequency: "every day", autoStart: false, models: { Row: z.object({ id: z.string() }).loose() },',
    exec,
  );
/** For so long a run of an action goes on, so that it is started seldom and works much. */
const again = (body: string) => `
  const until = Date.now() + 5_000;
  const told = [];
  do {
    try { await (async () => { ${body} })(); told[0] ??= 'done'; } catch (error) { told[1] = error.message.slice(0, 200); }
  } while (Date.now() < until);
  return told;`;

/** A source map of about so many bytes, all of it positions. */
export function denseSourceMap(bytes: number): string {
  const mappings = 'AAAA,CAAC,'.repeat(Math.ceil(bytes / 10));
  return JSON.stringify({ version: 3, sources: ['a.ts'], names: [], mappings });
}

export function withSourceMap(code: string, map: string): string {
  return `${code}\n//# sourceMappingURL=data:application/json;base64,${Buffer.from(map).toString('base64')}\n`;
}

/** Takes a processor for five seconds and sends nothing. */
export const spinningAction = (): string =>
  action(
    `const until = Date.now() + 5_000; let text = ""; while (Date.now() < until) text = JSON.stringify([text.length, {}]);`,
  );

export const hostileActions: Record<string, () => string> = {
  'throws-with-large-map': () =>
    withSourceMap(action(`throw new Error("at " + Math.random())`), denseSourceMap(7e6)),
  'sends-many-values': () =>
    action(
      again(
        `const value = []; for (let n = 0; n < 5e6; n++) value.push([]); await trellis.setMetadata({ value })`,
      ),
    ),
  'sends-nested-values': () =>
    action(
      again(
        `const value = []; for (let n = 0; n < 1e6; n++) value.push([[[[]]]]); await trellis.setMetadata({ value })`,
      ),
    ),
  'sends-metadata-at-once': () =>
    action(
      again(
        `const value = Array(1e5).fill(1); await Promise.all(Array.from({ length: 32 }, () => trellis.updateMetadata({ value })))`,
      ),
    ),
  'returns-many-values': () =>
    action(`const out = []; for (let n = 0; n < 9e5; n++) out.push({ a: 1 }); return out`),
  'returns-text': () => action(`return "\\u00e9".repeat(4e6)`),
  'sends-bodies-by-byte': () =>
    action(
      again(`async function* bytes() { for (let n = 0; n < 3e5; n++) yield "x"; }
      const send = () => trellis.proxy({ method: "POST", endpoint: "/x", data: "x".repeat(1e7), retries: 0 });
      await Promise.race([new Promise((r) => setTimeout(r, 2_000)), Promise.all(Array.from({ length: 32 }, send))])`),
    ),
  'fetches-with-bodies': () =>
    action(
      again(`const url = new URL("https://192.0.2.1/");
      const send = () => trellis.uncontrolledFetch({ url, method: "POST", body: "x".repeat(9e6) });
      await Promise.race([new Promise((r) => setTimeout(r, 2_000)), Promise.all(Array.from({ length: 8 }, send))])`),
    ),
  'logs-and-calls': () =>
    action(`for (let n = 0; n < 480; n++) trellis.log("x".repeat(8000) + n);
      for (let n = 0; n < 20; n++) await Promise.all(Array.from({ length: 500 }, () => trellis.getCheckpoint()));
      throw Object.assign(new Error("x".repeat(4096)), { payload: Array(3e4).fill(1), stack: "  at x".repeat(4000) })`),
};

export const hostileSyncs: Record<string, () => string> = {
  'saves-many-values': () =>
    sync(`for (let k = 0; k < 4; k++) {
      const records = Array.from({ length: 1000 }, (_, n) => ({ id: String(n), k, v: Array(1500).fill([]) }));
      await trellis.batchSave(records, "Row").catch(() => {});
      const one = []; for (let n = 0; n < 2e6; n++) one.push([]);
      await trellis.batchSave([{ id: "one", k, one }], "Row").catch(() => {});
    }
    for (let k = 0; k < 4; k++) await trellis.batchUpdate(Array.from({ length: 1000 }, (_, n) => ({ id: String(n), u: k })), "Row");
    for await (const record of trellis.listRecords("Row")) if (record.id === "none") break;`),
  'keeps-large-states': () =>
    sync(`const { randomBytes } = require("crypto");
      const text = Array.from({ length: 60 }, () => randomBytes(5e5).toString("hex")).join("");
      for (let n = 0; n < 3; n++) { await trellis.saveState(text + n); await trellis.getState(); }`),
  'updates-large-records': () =>
    sync(`const rows = (v) => Array.from({ length: 15 }, (_, n) => ({ id: "r" + n, v, w: Array(50_000).fill({ a: 1 }) }));
      for (let k = 0; k < 3; k++) {
        for (const row of rows(k)) await trellis.batchSave([row], "Row");
        await trellis.batchUpdate(rows(k).map(({ id }) => ({ id, k })), "Row");
        await trellis.batchUpdate(rows(k + 1), "Row").catch(() => {});
        await Promise.all([1, 2, 3, 4].map(() => trellis.getRecordsByIds(rows(k).map(({ id }) => id), "Row")));
      }`),
};
