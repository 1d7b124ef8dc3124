// The Helm chart without Helm: its templates by an engine of the same language, with the functions that Helm adds.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  createEngine,
  type Engine,
  sprigDefaults,
  sprigDicts,
  sprigMath,
  sprigStrings,
} from '@promptctl/go-template-js';
import { Ajv } from 'ajv';
import { parse, parseAllDocuments, stringify } from 'yaml';

const chart = join(import.meta.dirname, '../../deploy/helm/trellis');
const read = (file: string) => readFileSync(join(chart, file), 'utf8');

export type Values = { [name: string]: unknown };
export type Manifest = {
  kind: string;
  metadata: { name: string; labels: Record<string, string> };
  // biome-ignore lint/suspicious/noExplicitAny: each kind has a shape of its own
  spec: any;
};

const fits = new Ajv({ strict: false }).compile(JSON.parse(read('values.schema.json')) as object);

/** All objects that a release called `prod` has with these values. Throws where the schema refuses them. */
export const render = (given: Values): Manifest[] => fillChart(given).manifests;

/** What Helm says once they are there. */
export const notesOf = (given: Values): string => fillChart(given).notes;

function fillChart(given: Values): { manifests: Manifest[]; notes: string } {
  const values = over(parse(read('values.yaml')) as Values, given);
  if (!fits(values)) throw new Error(JSON.stringify(fits.errors));
  const files = readdirSync(join(chart, 'templates'));
  const named = files
    .filter((file) => file.endsWith('.tpl'))
    .map((file) => read(`templates/${file}`))
    .join('');
  const { version, appVersion } = parse(read('Chart.yaml')) as { version: string; appVersion: string };
  const scope = {
    Values: values,
    Release: { Name: 'prod', Namespace: 'default', Service: 'Helm' },
    Chart: { Name: 'trellis', Version: version, AppVersion: appVersion },
  };
  const fill = (text: string, of: unknown) =>
    engine
      .parse(named + text)
      .evaluate(of as Values)
      .join('');
  const engine: Engine<string> = createEngine<string>({
    fromString: (text) => text,
    missingKey: 'error',
    funcs: {
      ...sprigDefaults(),
      ...sprigStrings(),
      ...sprigMath(),
      ...sprigDicts(),
      include: {
        fn: (name: unknown, of: unknown) => fill(`{{ template "${name}" . }}`, of),
        argTypes: ['string', 'value'],
        returnType: 'string',
      },
      toYaml: {
        fn: (value: unknown) => stringify(value).trimEnd(),
        argTypes: ['value'],
        returnType: 'string',
      },
      required: {
        fn: (message: unknown, value: unknown) => {
          if (value === undefined || value === '') throw new Error(String(message));
          return value;
        },
        argTypes: ['string', 'value'],
        returnType: 'value',
      },
    },
  });
  const notes = fill(read('templates/NOTES.txt'), scope);
  const manifests = files
    .filter((file) => file.endsWith('.yaml'))
    .flatMap((file) => parseAllDocuments(fill(read(`templates/${file}`), scope)))
    .map((document) => {
      if (document.errors.length > 0) throw document.errors[0];
      return document.toJSON() as Manifest;
    })
    .filter((manifest) => manifest !== null);
  return { manifests, notes };
}

/** As Helm lays values over those of the chart: objects are merged, anything else is replaced. */
function over(under: Values, given: Values): Values {
  const merged = { ...under };
  for (const [name, value] of Object.entries(given)) {
    const former = merged[name];
    merged[name] = isObject(former) && isObject(value) ? over(former, value) : value;
  }
  return merged;
}

function isObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
