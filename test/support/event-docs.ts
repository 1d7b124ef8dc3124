import { z } from 'zod';
import { toJsonSchema } from '../../server/events/catalogue.ts';
import {
  type DescribedType,
  eventCatalogue,
  ofConnection,
  ofDataset,
  ofIntegration,
} from '../../server/events/event-types.ts';
import { withIntegrationId } from '../../server/http/spellings.ts';

/** What several types say in the same words, told once: the first whose fields a type has all of. */
const subjects = [
  { name: 'connection', fields: ofConnection },
  { name: 'dataset', fields: ofDataset },
  { name: 'integration', fields: ofIntegration },
];
const [begin, end] = [
  '<!-- Written by scripts/event-docs.ts from server/events/. -->',
  '<!-- The end of what is written. -->',
];

type Property = { type?: unknown; enum?: string[]; const?: unknown; anyOf?: Property[]; format?: string };

/** All types of events as Markdown: meaning, fields and an example of each. */
export function describeEventTypes(): string {
  const types = Object.entries<DescribedType>(eventCatalogue);
  const shared = subjects.map(
    ({ name, fields }) =>
      `An event about ${name === 'integration' ? 'an' : 'a'} ${name} carries:\n\n${fieldTable(z.strictObject(fields), [])}`,
  );
  return [...shared, ...types.map(([type, described]) => describeType(type, described))].join('\n\n');
}

/** The page with this text where it describes the types. */
export function withEventTypes(page: string, text: string): string {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error('docs/reference/event-types.md has no place for the types');
  return `${page.slice(0, from)}${begin}\n\n${text}\n\n${page.slice(to)}`;
}

function describeType(type: string, { meaning, data, example }: DescribedType): string {
  const subject = subjects.find(({ fields }) => Object.keys(fields).every((name) => name in data.shape));
  const table = fieldTable(
    data,
    subject === undefined ? [] : [...Object.keys(subject.fields), 'integration_id'],
  );
  return [
    `### \`${type}\``,
    subject === undefined
      ? meaning
      : `${meaning} About ${subject.name === 'integration' ? 'an' : 'a'} ${subject.name}.`,
    ...(table === '' ? [] : [table]),
    `\`\`\`json\n${exampleOf(type, withIntegrationId({ ...example }))}\n\`\`\``,
  ].join('\n\n');
}

/** A field a line. */
function exampleOf(type: string, data: object): string {
  const fields = Object.entries(data).map(([name, value]) => `    "${name}": ${JSON.stringify(value)}`);
  return `{\n  "type": "${type}",\n  "data": {\n${fields.join(',\n')}\n  }\n}`;
}

/** Empty where no field is left. */
function fieldTable(data: z.ZodObject, without: string[]): string {
  const { properties, required } = toJsonSchema(data) as {
    properties: Record<string, Property & { description?: string }>;
    required: string[];
  };
  const rows = Object.entries(properties)
    .filter(([name]) => !without.includes(name))
    .map(([name, property]) => {
      const words = [property.description, required.includes(name) ? undefined : 'may be absent'];
      return `| \`${name}\` | ${kindOf(property)} | ${words.filter(Boolean).join('; ')} |`;
    });
  return rows.length === 0 ? '' : ['| field | is | |', '|---|---|---|', ...rows].join('\n');
}

function kindOf({ type, enum: values, const: only, anyOf, format }: Property): string {
  if (anyOf !== undefined) return anyOf.map(kindOf).join(' or ');
  if (values !== undefined) return values.map((value) => `\`${value}\``).join(', ');
  if (only !== undefined) return `\`${String(only)}\``;
  if (format === 'date-time') return 'time';
  return [type].flat().join(' or ');
}
