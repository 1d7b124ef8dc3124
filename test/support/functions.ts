// Functions as official command lines deploy them.

import type { Compiled } from '../../sdk/compile/compile.ts';

/** An entry of `flowConfigs`, with the fields that such a command line sends. */
export function flowConfig({
  name,
  code,
  integration = 'google-sheet',
  type = 'action',
  source = `// the source of ${name}`,
}: {
  name: string;
  code: string;
  integration?: string;
  type?: 'sync' | 'action';
  source?: string;
}) {
  return {
    syncName: name,
    providerConfigKey: integration,
    type,
    models: [],
    version: '0.0.1',
    runs: type === 'sync' ? 'every hour' : null,
    track_deletes: false,
    auto_start: true,
    attributes: {},
    metadata: { description: '', scopes: [] },
    endpoints: [],
    features: [],
    models_json_schema: { definitions: {} },
    fileBody: { js: code, ts: source },
  };
}

/** The body of a deploy; `more` says otherwise. */
export function deployBody(flowConfigs: object[], more: object = {}) {
  return {
    flowConfigs,
    onEventScriptsByProvider: [],
    deployMode: 'all',
    reconcile: true,
    debug: false,
    nangoYamlBody: '',
    source: 'repo',
    sdkVersion: '0.71.10-zero',
    ...more,
  };
}

/** What was compiled out of a folder, as the body of a deploy. */
export function deployBodyOf(compiled: readonly Compiled[], more: object = {}) {
  const files = ({ code, source }: Compiled) => ({ js: code, ts: source });
  const events = Map.groupBy(
    compiled.filter(({ kind }) => kind === 'on_event'),
    ({ integrationKey }) => integrationKey,
  );
  return deployBody(
    compiled.flatMap((one) => {
      const { kind: type, name, code, source, integrationKey: integration } = one;
      return type === 'on_event' ? [] : [flowConfig({ name, code, integration, type, source })];
    }),
    {
      onEventScriptsByProvider: [...events].map(([providerConfigKey, scripts]) => ({
        providerConfigKey,
        scripts: scripts.map((one) => ({
          name: one.name,
          fileBody: files(one),
          event: 'validate-connection',
        })),
      })),
      ...more,
    },
  );
}

/** CommonJS of an action that doubles a number; `more` stands among its fields, `before` in front. */
export function actionCode({ more = '', before = '' }: { more?: string; before?: string } = {}): string {
  return `"use strict";
const { z } = require("zod");
${before}
exports.default = {
  type: "action",
  description: "Doubles a number.",
  input: z.object({ n: z.number() }),
  output: z.object({ n: z.number() }),
  exec: async (nango, input) => ({ n: input.n * 2 }),
  ${more}
};
`;
}

/** CommonJS of a sync that saves one record; `more` stands among its fields. */
export function syncCode({ model = 'Thing', more = '' }: { model?: string; more?: string } = {}): string {
  return `"use strict";
const { z } = require("zod");
exports.default = {
  type: "sync",
  description: "Saves a thing.",
  frequency: "every hour",
  models: { ${model}: z.object({ id: z.string() }) },
  exec: async (nango) => { await nango.batchSave([{ id: "1" }], "${model}"); },
  ${more}
};
`;
}
